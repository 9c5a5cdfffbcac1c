"""Opening a log: what is taken as it is, what is checked, what is cut, and what the report says."""

from itertools import islice

import pytest

from headrace.records import ControlType, CorruptBatch, build_batch, crc_of
from headrace.storage.checkpoint import Damage
from headrace.storage.compaction.cleaner import clean
from headrace.storage.config import LogConfig
from headrace.storage.errors import DamagedLog
from headrace.testing import MemoryFileSystem
from tests.small_logs import (
    EPOCH_MS,
    FOLDER,
    append,
    batches_from,
    end_transaction,
    new_log,
    open_small_log,
    records_from,
    some_records,
)

CONFIG = LogConfig(segment_bytes=500, index_interval_bytes=100)
SIZE = len(build_batch(some_records(2)))


def _write(batches=10, config=CONFIG):
    """A log that was left as a crash leaves it when everything reached the disk."""
    filesystem = MemoryFileSystem()
    log, _ = open_small_log(filesystem, config)
    for n in range(batches):
        append(log, some_records(2, first=2 * n))
    log.flush()
    log.abandon()
    return filesystem, log


def _open(filesystem, **options):
    return open_small_log(filesystem, CONFIG, **options)


def test_a_new_log_is_empty_and_clean():
    log, recovery = _open(MemoryFileSystem(), start_offset=7)
    assert (log.start_offset, log.end_offset, len(log.segments)) == (7, 7, 1)
    assert recovery.is_clean
    assert recovery.scanned_bytes == 0


def test_after_a_clean_shutdown_no_batch_is_read():
    filesystem, _ = _write()
    log, _ = _open(filesystem)
    log.close()
    before = filesystem.counts("*.log").reads
    log, recovery = _open(filesystem, was_clean=True)
    assert recovery.scanned_bytes == 0
    assert filesystem.counts("*.log").reads - before <= 2, "the last batch's header gives the end"
    assert log.durable_offset == log.end_offset == 20


def test_after_a_crash_everything_behind_the_recovery_point_is_read():
    filesystem, written = _write()
    log, recovery = _open(filesystem)
    assert recovery.scanned_bytes == written.size_bytes
    assert recovery.is_clean
    assert len(records_from(log)) == 20
    log.close()
    _, recovery = _open(filesystem, recovery_point=written.segments[-1].base_offset)
    assert recovery.scanned_bytes == written.segments[-1].size


@pytest.mark.parametrize("cut", [1, 50, SIZE - 1])
def test_a_torn_end_is_cut_and_reported(cut):
    filesystem, written = _write()
    path = written.segments[-1].path
    filesystem.open(path).truncate(filesystem.size(path) - cut)
    log, recovery = _open(filesystem)
    assert log.end_offset == 18
    assert recovery.cut_bytes == SIZE - cut
    assert recovery.cut_at == f"{path} at byte {written.segments[-1].size - SIZE}"
    assert recovery.cut_reason
    assert not recovery.is_clean
    assert filesystem.size(path) == log.segments[-1].size
    assert append(log, some_records(1)).base_offset == 18


def test_a_bad_batch_behind_the_recovery_point_takes_all_behind_it():
    filesystem, written = _write()
    assert len(written.segments) >= 3
    filesystem.corrupt(written.segments[0].path, SIZE + 70, b"\xff\xff")
    log, recovery = _open(filesystem)
    assert log.end_offset == 2
    assert recovery.removed_segments == len(written.segments) - 1
    assert recovery.cut_bytes == written.size_bytes - SIZE
    assert "checksum" in recovery.cut_reason
    assert [name for name in filesystem.list(FOLDER) if name.endswith(".log")] == ["00000000000000000000.log"]


def test_a_bad_batch_before_the_recovery_point_is_damage_and_reading_goes_on_behind_it():
    filesystem, written = _write()
    path = written.segments[0].path
    filesystem.corrupt(path, SIZE + 70, b"\xff\xff")
    log, recovery = _open(filesystem, recovery_point=20)
    assert recovery.is_clean, "what lies in segments before the recovery point is not looked at"
    log.abandon()
    filesystem.remove(f"{FOLDER}/00000000000000000000.index")
    log, recovery = _open(filesystem, recovery_point=20)
    assert recovery.damage == [Damage(0, SIZE, SIZE, 2, 4)]
    assert recovery.cut_bytes == 0
    assert [header.base_offset for header, _ in batches_from(log, 4)] == list(range(4, 20, 2))
    for offset in (2, 3):
        with pytest.raises(
            DamagedLog, match=rf"{path} is damaged at byte {SIZE} .* offsets 2 to 3 .* read on from offset 4"
        ):
            log.read(offset, 1000)
    assert log.read(0, 10**6).slice.size == SIZE, "a read stops before the damage"
    assert filesystem.exists(f"{FOLDER}/damaged-ranges")
    log.close()
    log, recovery = _open(filesystem, recovery_point=20, was_clean=True)
    assert recovery.damage == []
    with pytest.raises(DamagedLog):
        log.read(2, 1000)


def test_damage_that_a_clean_shutdown_hides_does_not_keep_the_log_from_being_opened():
    filesystem, _ = _write()
    log, _ = _open(filesystem)
    append(log, some_records(2, first=20))
    log.close()
    filesystem.corrupt(log.segments[-1].path, log.segments[-1].size - SIZE + 8, b"\x7f")
    log, recovery = _open(filesystem, recovery_point=22, was_clean=True)
    assert [(damage.first_offset, damage.next_offset) for damage in recovery.damage] == [(20, 22)]
    assert log.end_offset == 22
    append(log, some_records(2, first=22))
    assert [header.base_offset for header, _ in batches_from(log, 22)] == [22]


@pytest.mark.parametrize("offset", [b"\0" * 8, b"\xff" * 8, b"\0\0\0\0\0\0\0\xff", b"\x7f" + b"\xff" * 7])
def test_a_log_that_does_not_end_where_it_was_closed_is_checked(offset):
    """No checksum covers an offset: what is appended behind a wrong one would be cut off at the next opening."""
    filesystem, _ = _write()
    log, _ = _open(filesystem)
    log.close()
    filesystem.corrupt(log.segments[-1].path, log.segments[-1].size - SIZE, offset)
    log, recovery = _open(filesystem, recovery_point=20, was_clean=True)
    assert [(damage.first_offset, damage.next_offset) for damage in recovery.damage] == [(18, 20)]
    append(log, some_records(2, first=20))
    log.flush()
    log, _ = _open(filesystem.crash(mode="keep_everything"), recovery_point=20)
    assert [header.base_offset for header, _ in batches_from(log, 20)] == [20]


def test_a_file_of_another_segment_in_place_of_the_last_is_noticed():
    filesystem, _ = _write()
    log, _ = _open(filesystem)
    log.close()
    first, last = log.segments[0].path, log.segments[-1].path
    filesystem.remove(last)
    file = filesystem.open(last, create=True)
    file.write_at([filesystem.read(first)], 0)
    log, _ = _open(filesystem, recovery_point=20, was_clean=True)
    assert log.end_offset == 20
    assert [header.base_offset for header, _ in islice(batches_from(log), 9)] == list(range(0, 18, 2))


def test_what_is_dropped_behind_a_tear_may_hold_offsets_of_any_other_segment():
    filesystem, written = _write()
    torn, dropped = written.segments[0].path, written.segments[1].path
    filesystem.corrupt(torn, SIZE, b"\xff" * 8)
    content = filesystem.read(torn)
    filesystem.remove(dropped)
    filesystem.remove(dropped.replace(".log", ".index"))
    filesystem.open(dropped, create=True).write_at([content], 0)
    log, recovery = _open(filesystem)
    assert (log.end_offset, recovery.removed_segments) == (2, len(written.segments) - 1)


def test_damage_in_an_older_segment_is_found_when_its_producers_are_lost_too():
    filesystem, written = _write()
    log, _ = _open(filesystem)
    log.close()
    filesystem.corrupt(written.segments[0].path, SIZE + 70, b"\xff\xff")
    for name in filesystem.list(FOLDER):
        if name.endswith(".snapshot"):
            filesystem.remove(f"{FOLDER}/{name}")
    filesystem.remove(written.segments[-1].path.replace(".log", ".index"))
    log, recovery = _open(filesystem, recovery_point=20, was_clean=True)
    assert [(damage.first_offset, damage.next_offset) for damage in recovery.damage] == [(2, 4)]
    assert [header.base_offset for header, _ in batches_from(log, 4)] == list(range(4, 20, 2))


def test_a_batch_that_claims_what_follows_it_takes_nothing_of_it_along():
    """Its checksum fits, so it is not a disk's doing; what was durable behind it is served all the same."""
    filesystem, written = _write(batches=2)
    path = written.segments[0].path
    batch = bytearray(filesystem.read(path)[:SIZE])
    batch[23:27] = (2**30).to_bytes(4, "big")  # its last offset, counted from its first
    batch[17:21] = crc_of(batch).to_bytes(4, "big")
    filesystem.corrupt(path, 0, bytes(batch))
    log, recovery = _open(filesystem, recovery_point=4)
    assert [(damage.first_offset, damage.next_offset) for damage in recovery.damage] == [(0, 2)]
    assert [record.offset for record in records_from(log, 2)] == [2, 3]


def test_what_is_before_damage_is_served_though_the_indexes_are_lost():
    filesystem, _ = _write()
    log, _ = _open(filesystem)
    log.close()
    path = log.segments[0].path
    filesystem.corrupt(path, 2 * SIZE + 8, b"\x7f")  # the length of the third batch
    filesystem.corrupt(path.replace(".log", ".timeindex"), 0, b"\xff")
    log, _ = _open(filesystem, recovery_point=20, was_clean=True)
    assert [header.base_offset for header, _ in islice(batches_from(log, max_bytes=SIZE), 2)] == [0, 2]
    with pytest.raises(CorruptBatch):
        log.read(4, 1000)
    assert next(header.base_offset for header, _ in batches_from(log, 8)) == 8


def test_missing_indexes_are_made_anew_even_after_a_clean_shutdown():
    filesystem, _ = _write()
    _open(filesystem)[0].close()
    indexes = {name: filesystem.read(f"{FOLDER}/{name}") for name in filesystem.list(FOLDER) if name.endswith("index")}
    for name in indexes:
        filesystem.remove(f"{FOLDER}/{name}")
    log, recovery = _open(filesystem, was_clean=True)
    assert recovery.scanned_bytes > 0
    log.close()
    assert {name: filesystem.read(f"{FOLDER}/{name}") for name in indexes} == indexes


def test_leftovers_are_removed():
    filesystem, _ = _write()
    leftovers = [
        "00000000000000000000.index.tmp",
        "00000000000000000000.log.cleaned",
        "00000000000000000004.log.deleted",
        "00000000000000099999.index",
    ]
    for name in leftovers:
        filesystem.open(f"{FOLDER}/{name}", create=True)
    log, recovery = _open(filesystem)
    assert not set(leftovers) & set(filesystem.list(FOLDER))
    assert recovery.is_clean
    assert log.end_offset == 20


def test_a_compaction_that_was_finished_but_not_in_place_is_put_in_place():
    filesystem, written = _write()
    names = [segment.path for segment in written.segments]
    data = filesystem.read(names[0])[:SIZE] + filesystem.read(names[1])[-SIZE:]
    filesystem.open(names[0] + ".swap", create=True).write_at([data], 0)
    log, _ = _open(filesystem)
    assert filesystem.read(names[0]) == data
    assert not filesystem.exists(names[1])
    assert not filesystem.exists(names[0] + ".swap")
    end = written.segments[2].base_offset
    assert [header.base_offset for header, _ in batches_from(log)] == [0, end - 2, *range(end, 20, 2)]


def test_segments_before_the_start_go():
    filesystem, written = _write()
    start = written.segments[2].base_offset + 1
    log, _ = _open(filesystem, start_offset=start)
    assert log.start_offset == start
    assert log.segments[0].base_offset == start - 1
    assert not filesystem.exists(written.segments[1].path)


def test_open_transactions_are_open_again():
    filesystem = MemoryFileSystem()
    log = new_log(filesystem)
    append(log, some_records(2))
    append(log, some_records(2), producer_id=1, producer_epoch=0, base_sequence=0, transactional=True)
    append(log, some_records(2), producer_id=2, producer_epoch=0, base_sequence=0, transactional=True)
    end_transaction(log, ControlType.ABORT, 2)
    log.flush()
    log.abandon()
    log, _ = open_small_log(filesystem)
    assert log.last_stable_offset == 2
    assert log.segments[0].indexes.transactions.entries == [(2, 4, 6, 2)]


def test_a_log_with_an_emptied_marker_can_be_opened_again():
    """Compaction keeps the last marker of a producer without its record; replay must take it."""
    filesystem = MemoryFileSystem()
    config = LogConfig(cleanup_policy=frozenset({"compact"}), delete_retention_ms=0)
    log, _ = open_small_log(filesystem, config)
    append(log, some_records(2), producer_id=1, producer_epoch=0, base_sequence=0, transactional=True)
    end_transaction(log, ControlType.ABORT, 1, producer_epoch=1)  # a new epoch: no batch of it but the marker
    append(log, some_records(3))
    for now_ms in (EPOCH_MS, EPOCH_MS + 1, EPOCH_MS + 2):
        log.roll(now_ms)
        clean(log, checkpoint=0, now_ms=now_ms)
        append(log, some_records(1))
    emptied = [header for header, _ in batches_from(log) if header.is_control and not header.record_count]
    assert len(emptied) == 1
    log.flush()
    expected = records_from(log)
    log.abandon()
    for name in filesystem.list(FOLDER):
        if name.endswith((".snapshot", "index")):
            filesystem.remove(f"{FOLDER}/{name}")
    log, recovery = open_small_log(filesystem, config)
    assert recovery.is_clean
    assert records_from(log) == expected


def test_a_wrong_offset_before_more_damage_takes_nothing_along_that_was_durable():
    """The batch that would tell that the offset is wrong is damaged too: the next whole one tells."""
    filesystem, written = _write(batches=4, config=LogConfig())  # all in one segment
    path = written.segments[0].path
    filesystem.corrupt(path, SIZE + 7, b"\xff")
    filesystem.corrupt(path, 2 * SIZE + 70, b"\xff\xff")
    log, recovery = _open(filesystem, recovery_point=8)
    assert [(damage.first_offset, damage.next_offset) for damage in recovery.damage] == [(2, 6)]
    assert [header.base_offset for header, _ in batches_from(log, 6)] == [6]
    assert log.end_offset == 8
