"""A data directory: who may use it, what is in it, and what is left when it is closed."""

import subprocess
import sys
from uuid import UUID

import pytest

from headrace.model import InvalidTopicName, TopicPartition
from headrace.records import Record, build_batch
from headrace.storage.checkpoint import CorruptCheckpoint
from headrace.storage.config import LogConfig
from headrace.storage.directory import LogDirectory, TopicUsage
from headrace.storage.errors import (
    DirectoryInUse,
    LogExists,
    OffsetOutOfRange,
    OutOfOrderSequence,
    StorageError,
    UnknownLog,
)
from headrace.testing import FakeClock, MemoryFileSystem
from tests.small_logs import EPOCH_MS, PARTITION, append, records_from, some_records

CUSTOMERS = TopicPartition("customers", 0)


def _open(filesystem, **options):
    return LogDirectory.open("data", filesystem=filesystem, **{"clock": FakeClock(EPOCH_MS), **options})


# --- who may use it


def test_a_second_opening_in_the_same_process_is_refused(tmp_path):
    path = str(tmp_path / "data")
    sentence = "is in use by another process: stop that one or name another directory"
    with LogDirectory.open(path):
        for again in (path, str(tmp_path / "x" / ".." / "data")):
            (tmp_path / "x").mkdir(exist_ok=True)
            with pytest.raises(DirectoryInUse, match=sentence):
                LogDirectory.open(again)
        with pytest.raises(DirectoryInUse):  # the refusal did not give the lock away
            LogDirectory.open(path)
    LogDirectory.open(path).close()


_OPEN = """
import sys
from headrace.storage.directory import LogDirectory
from headrace.storage.errors import DirectoryInUse
try:
    LogDirectory.open(sys.argv[1]).close()
except DirectoryInUse as error:
    print("refused:", error)
else:
    print("opened")
"""


def test_another_process_is_refused_while_it_is_open(tmp_path):
    def other() -> str:
        command = [sys.executable, "-c", _OPEN, str(tmp_path)]
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout.strip()

    with LogDirectory.open(str(tmp_path)) as directory:
        directory.create(PARTITION, LogConfig())
        assert other() == f"refused: {DirectoryInUse(str(tmp_path))}"
    assert other() == "opened"


def test_a_failed_opening_gives_the_lock_back():
    filesystem = MemoryFileSystem()
    _open(filesystem).close()
    path = "data/recovery-point-offset-checkpoint"
    filesystem.corrupt(path, 0, b"9")
    with pytest.raises(CorruptCheckpoint, match=rf"^{path}:1: "):
        _open(filesystem)
    filesystem.remove(path)
    _open(filesystem).close()


def test_a_path_that_cannot_be_a_directory_is_one_sentence(tmp_path):
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(StorageError, match=r"data directory .*file/data cannot be opened: Not a directory"):
        LogDirectory.open(str(tmp_path / "file" / "data"))


def test_closing_twice_is_harmless(tmp_path):
    """The second one must neither write checkpoints of no logs nor give back a lock that is another's by now."""
    directory = LogDirectory.open(str(tmp_path))
    append(directory.create(PARTITION, LogConfig()), some_records(3))
    directory.close()
    before = {p.name: p.read_bytes() for p in tmp_path.iterdir() if p.is_file()}
    directory.close()
    assert {p.name: p.read_bytes() for p in tmp_path.iterdir() if p.is_file()} == before
    with LogDirectory.open(str(tmp_path)) as again:
        assert again.log(PARTITION).end_offset == 3


def test_what_was_abandoned_is_not_marked_clean():
    filesystem = MemoryFileSystem()
    with _open(filesystem) as directory:
        append(directory.create(PARTITION, LogConfig()), some_records(3))
        directory.abandon()
    assert not filesystem.exists("data/.kafka_cleanshutdown")


# --- logs


def test_logs_are_made_found_and_deleted():
    filesystem = MemoryFileSystem()
    with _open(filesystem) as directory:
        log = directory.create(PARTITION, LogConfig())
        assert directory.log(PARTITION) is log
        assert dict(directory.logs) == {PARTITION: log}
        with pytest.raises(LogExists, match="log orders-0 is in data already"):
            directory.create(PARTITION, LogConfig())
        append(log, some_records(2))
        held = log.read(0, 100).slice
        expected = held.read()
        directory.delete(PARTITION)
        assert "orders-0" not in " ".join(filesystem.list("data"))
        assert held.read() == expected, "whoever reads, reads on"
        with pytest.raises(UnknownLog, match="there is no log orders-0 in data: create the topic first"):
            directory.log(PARTITION)
        with pytest.raises(UnknownLog):
            directory.delete(PARTITION)
        assert directory.create(PARTITION, LogConfig()).end_offset == 0
        assert filesystem.read("data/replication-offset-checkpoint") == b"0\n0\n"


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "ä", "x" * 250, "a b"])
def test_a_topic_that_kafka_would_refuse_is_refused(name):
    with _open(MemoryFileSystem()) as directory, pytest.raises(InvalidTopicName, match="use 1 to 249 letters"):
        directory.create(TopicPartition(name, 0), LogConfig())


def test_topic_ids_are_of_the_topic_and_survive():
    filesystem = MemoryFileSystem()
    given = UUID("12345678-1234-5678-1234-567812345678")
    with _open(filesystem) as directory:
        directory.create(PARTITION, LogConfig(), given)
        directory.create(TopicPartition("orders", 1), LogConfig())
        directory.create(CUSTOMERS, LogConfig())
        assert directory.topic_id(TopicPartition("orders", 1)) == given
        assert directory.topic_id(CUSTOMERS) not in (given, UUID(int=0))
        of_customers = directory.topic_id(CUSTOMERS)
    assert filesystem.read("data/orders-0/partition.metadata") == b"version: 0\ntopic_id: EjRWeBI0VngSNFZ4EjRWeA"
    with _open(filesystem) as directory:
        assert directory.topic_id(PARTITION) == given
        assert directory.topic_id(CUSTOMERS) == of_customers


@pytest.mark.parametrize("text", [b"version: 0\ntopic_id: x", b"version: 0\ntopic_id: AAAA"])
def test_a_topic_id_that_is_none_is_one_sentence_with_the_file(text):
    filesystem = MemoryFileSystem()
    with _open(filesystem) as directory:
        directory.create(PARTITION, LogConfig())
    path = "data/orders-0/partition.metadata"
    filesystem.remove(path)
    filesystem.open(path, create=True).write_at([text], 0)
    with pytest.raises(StorageError, match=path):
        _open(filesystem)


def test_a_deletion_that_was_interrupted_is_finished():
    filesystem = MemoryFileSystem()
    with _open(filesystem) as directory:
        append(directory.create(PARTITION, LogConfig()), some_records(2))
    filesystem.replace("data/orders-0", "data/orders-0.0123456789abcdef-delete")
    with _open(filesystem) as directory:
        assert directory.logs == {}
    assert not [name for name in filesystem.list("data") if "orders" in name]


def test_many_logs_are_made_with_few_syncs():
    """Somebody else waits meanwhile: two syncs a log, its content and its names, and a handful for all of them."""
    filesystem = MemoryFileSystem()
    directory = _open(filesystem)
    before = filesystem.counts().syncs
    wanted = [TopicPartition("wide", index) for index in range(100)]
    logs = directory.create_all(wanted, LogConfig())
    assert [log.topic_partition for log in logs] == wanted
    assert len({directory.topic_id(partition) for partition in wanted}) == 1
    assert filesystem.counts().syncs - before <= 2 * len(wanted) + 5
    after = _open(filesystem.crash(mode="lose_everything"))
    assert set(after.logs) == set(wanted)


@pytest.mark.parametrize("operation", ["make_directory", "open", "sync", "sync_directory", "replace"])
@pytest.mark.parametrize("skip", range(0, 9, 2))
def test_logs_are_made_all_or_none(operation, skip):
    filesystem = MemoryFileSystem()
    directory = _open(filesystem)
    wanted = [TopicPartition("wide", index) for index in range(5)]
    fault = filesystem.fail(operation, times=1, skip=skip)
    try:
        directory.create_all(wanted, LogConfig())
    except StorageError:
        assert not directory.logs
        assert not [name for name in filesystem.list("data") if name.startswith("wide")]
        filesystem.heal(fault)
        directory.create_all(wanted, LogConfig())
    assert set(directory.logs) == set(wanted)


def test_usage_is_by_topic():
    with _open(MemoryFileSystem()) as directory:
        for partition in range(3):
            log = directory.create(TopicPartition("orders", partition), LogConfig(segment_bytes=200))
            for _ in range(partition):
                append(log, some_records(2))
        directory.create(CUSTOMERS, LogConfig())
        sizes = sum(log.size_bytes for partition, log in directory.logs.items() if partition.topic == "orders")
        assert directory.usage() == {"customers": TopicUsage(1, 1, 0), "orders": TopicUsage(3, 4, sizes)}
        assert sizes > 0


def test_a_new_data_directory_survives_a_crash():
    """Its own name stands in the folder above, which has to be synced as well: or a synced record is lost with it."""
    filesystem = MemoryFileSystem()
    directory = _open(filesystem)
    log = directory.create(PARTITION, LogConfig())
    append(log, some_records(3))
    log.flush()
    with _open(filesystem.crash(mode="lose_everything")) as again:
        assert again.log(PARTITION).end_offset == 3


def test_records_are_deleted_for_good():
    filesystem = MemoryFileSystem()
    filesystem.make_directory("data")
    filesystem.sync_directory("/")
    directory = _open(filesystem)
    log = directory.create(PARTITION, LogConfig(segment_bytes=300))
    for n in range(10):
        append(log, some_records(2, first=n))
    directory.checkpoint()
    assert directory.delete_records(PARTITION, 7) == 7
    with pytest.raises(OffsetOutOfRange):
        directory.delete_records(PARTITION, 21)
    log.flush()
    with _open(filesystem.crash(mode="lose_everything")) as again:
        assert again.log(PARTITION).start_offset == 7
        assert [r.offset for r in records_from(again.log(PARTITION))][:2] == [6, 7]


# --- opening and closing


def test_a_clean_shutdown_saves_the_scan_and_its_marker_is_gone_while_open():
    filesystem = MemoryFileSystem()
    with _open(filesystem) as directory:
        append(directory.create(PARTITION, LogConfig()), some_records(3))
    assert filesystem.exists("data/.kafka_cleanshutdown")
    directory = _open(filesystem)
    assert [recovery.scanned_bytes for recovery in directory.recoveries] == [0]
    assert not filesystem.exists("data/.kafka_cleanshutdown")
    directory.abandon()
    seen = []
    directory = _open(filesystem, progress=lambda *told: seen.append(told))
    (recovery,) = directory.recoveries
    assert recovery.scanned_bytes > 0
    assert seen == [(1, 1, recovery)]
    directory.close()


def test_checkpoints_are_kafkas():
    filesystem = MemoryFileSystem()
    with _open(filesystem) as directory:
        log = directory.create(PARTITION, LogConfig())
        append(log, some_records(5))
        log.flush()
        append(log, some_records(2))
        directory.delete_records(PARTITION, 1)
        directory.checkpoint()
        read = {
            name: filesystem.read(f"data/{name}-offset-checkpoint")
            for name in ("recovery-point", "log-start", "replication")
        }
        assert read == {
            "recovery-point": b"0\n1\norders 0 5\n",
            "log-start": b"0\n1\norders 0 1\n",
            "replication": b"0\n1\norders 0 7\n",
        }
    assert filesystem.read("data/recovery-point-offset-checkpoint") == b"0\n1\norders 0 7\n"


def test_every_log_gets_its_own_settings():
    filesystem = MemoryFileSystem()
    with _open(filesystem) as directory:
        for partition in (PARTITION, CUSTOMERS):
            directory.create(partition, LogConfig())
    configs = {"orders": LogConfig(segment_bytes=100), "customers": LogConfig(retention_ms=5)}
    with _open(filesystem, config_for=lambda partition: configs[partition.topic]) as directory:
        assert {p.topic: log.config for p, log in directory.logs.items()} == configs


def test_folders_that_are_no_partitions_are_left_alone():
    filesystem = MemoryFileSystem()
    filesystem.make_directory("data/lost+found")
    filesystem.make_directory("data/notes")
    with _open(filesystem) as directory:
        assert directory.logs == {}
    assert {"lost+found", "notes"} <= set(filesystem.list("data"))


def test_the_metadata_log_of_a_kafka_that_was_here_is_left_alone():
    """It is the controller's, not a topic: retention would take the way back to Kafka away. Kafka skips it as well."""
    filesystem = MemoryFileSystem()
    filesystem.make_directory("data/__cluster_metadata-0")
    path = "data/__cluster_metadata-0/00000000000000000000.log"
    filesystem.open(path, create=True).write_at([build_batch(some_records(3))], 0)
    with _open(filesystem) as directory:
        assert directory.logs == {}
    assert filesystem.list("data/__cluster_metadata-0") == ["00000000000000000000.log"]


# --- looking after them


def test_retention_removes_what_is_old_and_says_how_much():
    clock = FakeClock(EPOCH_MS)
    with _open(MemoryFileSystem(), clock=clock) as directory:
        log = directory.create(PARTITION, LogConfig(segment_bytes=200, retention_ms=1000))
        directory.create(CUSTOMERS, LogConfig())
        for n in range(6):
            append(log, [Record(0, EPOCH_MS + n * 300, b"k", b"v" * 100)])
        assert directory.enforce_retention() == {}
        clock.advance(1700)
        assert directory.enforce_retention() == {PARTITION: 3}
        assert [r.offset for r in records_from(log)] == [3, 4, 5]


def test_compaction_remembers_how_far_it_came():
    filesystem = MemoryFileSystem()
    config = LogConfig(cleanup_policy=frozenset({"compact"}))
    with _open(filesystem) as directory:
        log = directory.create(CUSTOMERS, config)
        for _ in range(5):
            append(log, some_records(4))
        log.roll(EPOCH_MS)
        append(log, some_records(1))
        done = directory.compact()[CUSTOMERS]
        assert (done.end_offset, done.bytes_after < done.bytes_before) == (20, True)
        assert [r.offset for r in records_from(log)] == [16, 17, 18, 19, 20]
        assert filesystem.read("data/cleaner-offset-checkpoint") == b"0\n1\ncustomers 0 20\n"
        assert directory.compact() == {}
    with _open(filesystem, config_for=lambda _: config) as directory:
        assert directory.compact() == {}


def test_a_log_that_cannot_be_cleaned_does_not_keep_the_others_from_it():
    filesystem = MemoryFileSystem()
    config = LogConfig(cleanup_policy=frozenset({"compact"}))
    with _open(filesystem) as directory:
        for partition in (PARTITION, CUSTOMERS):
            log = directory.create(partition, config)
            for _ in range(3):
                append(log, some_records(4))
            log.roll(EPOCH_MS)
        filesystem.corrupt("data/orders-0/00000000000000000000.log", 100, b"\xff\xff")
        outcome = directory.compact()
        assert outcome[CUSTOMERS].end_offset == 12
        assert "data/orders-0/00000000000000000000.log" in str(outcome[PARTITION])
        assert directory.compact() == {}, "it is left alone until it is dirtier"


# --- producers


def _send(log, sequence):
    return append(log, some_records(2, first=2 * sequence), producer_id=9, producer_epoch=0, base_sequence=2 * sequence)


@pytest.mark.parametrize("end", ["clean", "killed", "power cut", "rolled and killed", "rolled, then a power cut"])
def test_every_batch_that_a_producer_may_send_again_is_known_after_a_restart(end):
    filesystem = MemoryFileSystem()
    directory = _open(filesystem)
    log = directory.create(PARTITION, LogConfig())
    sent = [_send(log, sequence) for sequence in range(7)]
    if "rolled" in end:
        log.roll(EPOCH_MS)
    log.flush()
    if "rolled" in end:
        directory.flush_rolled()
        directory.checkpoint()
    if end == "clean":
        directory.close()
    else:
        filesystem = filesystem.crash(mode="lose_everything" if "power" in end else "keep_everything")
    for _ in range(2):  # what was read from a file is written to the next one
        directory = _open(filesystem)
        log = directory.log(PARTITION)
        for sequence in range(2, 7):
            again = _send(log, sequence)
            assert (again.is_duplicate, again.base_offset) == (True, sent[sequence].base_offset)
        with pytest.raises(OutOfOrderSequence):
            _send(log, 1)
        assert len(records_from(log)) == 14
        directory.close()
