"""Looking at a directory from outside."""

import pytest

from headrace.model import TopicPartition
from headrace.records import ControlType, CorruptBatch, build_batch
from headrace.storage.config import LogConfig
from headrace.storage.directory import LogDirectory
from headrace.storage.errors import StorageError
from headrace.storage.inspection import partitions_in, records_in, segment_files, summarize, verify
from headrace.storage.scan import scan_file
from headrace.testing import FakeClock, MemoryFileSystem
from tests.small_logs import EPOCH_MS, PARTITION, append, end_transaction, some_records

SIZE = len(build_batch(some_records(2)))
FIRST = "data/orders-0/00000000000000000000.log"


@pytest.fixture
def filesystem():
    filesystem = MemoryFileSystem()
    with LogDirectory.open("data", filesystem=filesystem, clock=FakeClock(EPOCH_MS)) as directory:
        log = directory.create(PARTITION, LogConfig(segment_bytes=5 * SIZE))
        for n in range(8):
            append(log, some_records(2, first=2 * n))
        directory.create(TopicPartition("empty", 3), LogConfig())
        directory.delete_records(PARTITION, 3)
    return filesystem


def test_partitions(filesystem):
    assert partitions_in(filesystem, "data") == [("empty", 3), ("orders", 0)]
    with pytest.raises(StorageError, match="nowhere does not exist: name a data directory"):
        partitions_in(filesystem, "nowhere")


def test_a_summary_is_made_from_headers(filesystem):
    summary = summarize(filesystem, "data", PARTITION)
    assert (summary.start_offset, summary.end_offset, summary.size_bytes) == (3, 16, 8 * SIZE)
    assert [tuple(segment)[1:] for segment in summary.segments] == [
        (0, 10, 5 * SIZE, 5, 10, EPOCH_MS, EPOCH_MS + 9, ""),
        (10, 16, 3 * SIZE, 3, 6, EPOCH_MS + 10, EPOCH_MS + 15, ""),
    ]
    empty = summarize(filesystem, "data", TopicPartition("empty", 3))
    assert (empty.start_offset, empty.end_offset, empty.size_bytes) == (0, 0, 0)
    with pytest.raises(StorageError, match="data/none-0 does not exist: check the topic and partition"):
        summarize(filesystem, "data", TopicPartition("none", 0))


def test_a_summary_of_a_torn_file_says_what_is_wrong(filesystem):
    filesystem.open(FIRST).truncate(4 * SIZE + 20)
    (torn, whole) = summarize(filesystem, "data", PARTITION).segments
    assert (torn.next_offset, torn.batches) == (8, 4)
    assert f"at byte {4 * SIZE}" in torn.problem
    assert whole.problem == ""


def test_records_begin_where_readers_may_begin_and_markers_are_there(filesystem):
    with LogDirectory.open("data", filesystem=filesystem, clock=FakeClock(EPOCH_MS)) as directory:
        log = directory.log(PARTITION)
        append(log, some_records(1, first=70), producer_id=1, producer_epoch=0, base_sequence=0, transactional=True)
        end_transaction(log, ControlType.COMMIT, 1)
    found = list(records_in(filesystem, "data", PARTITION))
    assert [record.offset for _, record in found] == list(range(3, 18))
    assert [header.is_control for header, _ in found] == [False] * 14 + [True]
    assert found[0][1].key == b"key-0003"


def test_nothing_is_written_or_locked(filesystem):
    operations = filesystem.operations
    with LogDirectory.open("data", filesystem=filesystem, clock=FakeClock(EPOCH_MS)):
        operations = filesystem.operations
        summarize(filesystem, "data", PARTITION)
        list(records_in(filesystem, "data", PARTITION))
        for _, path in segment_files(filesystem, "data/orders-0"):
            verify(filesystem, path)
        assert filesystem.operations == operations


def test_a_whole_file_is_good(filesystem):
    assert verify(filesystem, FIRST) == (5 * SIZE, [])


def test_damage_is_found_and_reading_goes_on(filesystem):
    filesystem.corrupt(FIRST, SIZE + 65, b"\xff\xff")
    filesystem.corrupt(FIRST, 3 * SIZE + 8, b"\x7f\xff\xff\xff")
    good, problems = verify(filesystem, FIRST)
    assert good == 3 * SIZE
    assert [(p.path, p.position, p.size) for p in problems] == [(FIRST, SIZE, SIZE), (FIRST, 3 * SIZE, SIZE)]
    assert "checksum" in problems[0].reason
    assert "are announced" in problems[1].reason


def test_a_torn_end_is_damage(filesystem):
    filesystem.open(FIRST).truncate(4 * SIZE + 20)
    good, (problem,) = verify(filesystem, FIRST)
    assert (good, problem.position, problem.size) == (4 * SIZE, 4 * SIZE, 20)


def test_offsets_that_run_backwards_are_damage(filesystem):
    data = filesystem.read(FIRST)
    filesystem.corrupt(FIRST, SIZE, data[3 * SIZE : 4 * SIZE])
    good, problems = verify(filesystem, FIRST)
    assert good == 3 * SIZE
    assert [(p.position, p.size) for p in problems] == [(2 * SIZE, 2 * SIZE)]
    assert problems[0].reason == "offset 4 where at least 8 was due"


def test_batches_are_checked_on_the_way(filesystem):
    assert [scanned.header.base_offset for scanned in scan_file(filesystem, FIRST)] == [0, 2, 4, 6, 8]
    filesystem.corrupt(FIRST, 2 * SIZE + 70, b"\xff\xff")
    with pytest.raises(CorruptBatch, match=f"at byte {2 * SIZE}"):
        list(scan_file(filesystem, FIRST))
