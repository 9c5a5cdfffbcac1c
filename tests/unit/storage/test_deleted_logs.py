"""A log that was deleted while somebody still held it: its successor of the same name is never touched by it."""

import threading
from contextlib import suppress

import pytest

from headrace.errors import HeadraceError
from headrace.storage.compaction import job
from headrace.storage.compaction.cleaner import OWN_PROCESS_BYTES, clean
from headrace.storage.config import LogConfig
from headrace.storage.directory import LogDirectory
from headrace.storage.errors import LogDeleted, UnknownLog
from headrace.storage.housekeeping import Housekeeper, Schedule
from headrace.testing import FakeClock, MemoryFileSystem
from tests.small_logs import EPOCH_MS, PARTITION, append, records_from, some_records

SMALL = LogConfig(
    cleanup_policy=frozenset({"compact", "delete"}), segment_bytes=300, min_cleanable_dirty_ratio=0.01, retention_ms=-1
)


def _fill(log, count=30, *, first=0):
    for number in range(count):
        append(log, some_records(1, first=first + number))
    log.flush()
    return [record.key for record in records_from(log)]


class _Successor:
    """Deletes the log `orders-0` and makes another of its name, whose records are acknowledged as durable."""

    def __init__(self, directory):
        self._directory = directory
        self.keys = []

    def take_over(self):
        self._directory.delete(PARTITION)
        self.keys = _fill(self._directory.create(PARTITION, SMALL), first=1000)
        assert len(self.keys) == 30

    def check(self, filesystem):
        """Everything is there, now and after each kind of end."""
        log = self._directory.log(PARTITION)
        assert [record.key for record in records_from(log)] == self.keys
        lost = LogDirectory.open("data", filesystem=filesystem.crash(mode="lose_everything"), clock=FakeClock(EPOCH_MS))
        assert [record.key for record in records_from(lost.log(PARTITION))] == self.keys
        killed = filesystem.crash(mode="keep_everything")
        for _ in range(2):
            with LogDirectory.open("data", filesystem=killed, clock=FakeClock(EPOCH_MS)) as again:
                assert [record.key for record in records_from(again.log(PARTITION))] == self.keys
                assert again.recoveries[0].is_clean


@pytest.fixture
def disk():
    filesystem = MemoryFileSystem(clock=FakeClock(EPOCH_MS))
    directory = LogDirectory.open("data", filesystem=filesystem, clock=FakeClock(EPOCH_MS), config_for=lambda _: SMALL)
    log = directory.create(PARTITION, SMALL)
    _fill(log)
    return filesystem, directory, log, _Successor(directory)


def test_compaction_that_finishes_after_the_log_was_deleted_and_made_again(disk):
    filesystem, directory, log, successor = disk

    def run(work, files):
        done = job.run(work, files)
        successor.take_over()
        return done

    with pytest.raises(LogDeleted):
        clean(log, checkpoint=0, now_ms=EPOCH_MS, runner=run, before_swap=directory.checkpoint)
    successor.check(filesystem)


def test_compaction_that_is_at_work_while_the_log_is_deleted_and_made_again(disk):
    filesystem, _, log, successor = disk

    def run(work, files):
        successor.take_over()
        return job.run(work, files)

    with pytest.raises(LogDeleted):
        clean(log, checkpoint=0, now_ms=EPOCH_MS, runner=run)
    successor.check(filesystem)


def test_compaction_in_its_own_process_works_on_the_folder_it_was_given(tmp_path):
    """The child opens files by name: a folder that takes the old one's place must not be the one it means."""
    config = LogConfig(cleanup_policy=frozenset({"compact"}), segment_bytes=1024 * 1024, min_cleanable_dirty_ratio=0.01)
    directory = LogDirectory.open(str(tmp_path / "data"), config_for=lambda _: config)
    log = directory.create(PARTITION, config)
    while log.size_bytes < OWN_PROCESS_BYTES + 2 * config.segment_bytes:
        append(log, [record._replace(value=b"x" * 60_000) for record in some_records(10)])
    log.flush()
    folder = tmp_path / "data" / str(PARTITION)
    outcome = []
    is_deleted = threading.Event()

    def wait_for_the_deletion():  # or, by chance, all would be in place before it
        assert is_deleted.wait(60)

    def compact():
        try:
            clean(log, checkpoint=0, now_ms=EPOCH_MS, before_swap=wait_for_the_deletion)
        except HeadraceError as error:
            outcome.append(error)

    thread = threading.Thread(target=compact)
    thread.start()
    while thread.is_alive() and not list(folder.glob("*.cleaned")):
        thread.join(0.001)
    directory.delete(PARTITION)
    keys = _fill(directory.create(PARTITION, config), first=1000)
    is_deleted.set()
    thread.join()
    assert [type(error) for error in outcome] == [LogDeleted]
    assert not list(folder.glob("*.cleaned"))
    assert not list(folder.glob("*.swap"))
    directory.close()
    with LogDirectory.open(str(tmp_path / "data")) as again:
        assert [record.key for record in records_from(again.log(PARTITION))] == keys


def _append(log):
    append(log, some_records(20))


def _expire(log):
    log.advance_start(log.end_offset)
    log.remove_dead_segments(EPOCH_MS)


def _read_everything(log):
    log.release_indexes()
    records_from(log)


@pytest.mark.parametrize(
    "deed",
    [
        _append,
        _expire,
        _read_everything,
        lambda log: log.roll(EPOCH_MS),
        lambda log: log.flush(),
        lambda log: log.flush(rolled_only=True),
        lambda log: log.truncate_to(2),
        lambda log: log.finish_swaps(),
        lambda log: log.close(),
        lambda log: log.expire(EPOCH_MS),
    ],
)
def test_whatever_a_deleted_log_is_asked_to_do(disk, deed):
    filesystem, _, log, successor = disk
    successor.take_over()
    before = filesystem.operations
    with suppress(LogDeleted):
        deed(log)
    assert filesystem.operations == before or deed is _append  # an open file without a name may be written to
    successor.check(filesystem)


@pytest.mark.parametrize("kind", ["remove", "replace", "sync_directory", "open"])
def test_whatever_was_begun_before_the_deletion_ends_with_it(disk, kind):
    """A swap whose files could not be put in place is tried again later: not in the successor's folder."""
    filesystem, _, log, successor = disk
    fault = filesystem.fail(kind, f"*{PARTITION}*", times=None)
    with suppress(HeadraceError):
        clean(log, checkpoint=0, now_ms=EPOCH_MS)
    filesystem.heal(fault)
    successor.take_over()
    for deed in (log.finish_swaps, log.close, lambda: log.remove_dead_segments(EPOCH_MS)):
        with suppress(LogDeleted):
            deed()
    successor.check(filesystem)


def test_an_append_to_a_deleted_log_is_refused(disk):
    _, directory, log, _ = disk
    directory.delete(PARTITION)
    with pytest.raises(LogDeleted, match="orders-0 was deleted"):
        append(log, some_records(1))
    with pytest.raises(UnknownLog):
        directory.log(PARTITION)


def test_the_housekeeper_goes_on_when_a_log_is_deleted_under_it(disk):
    filesystem, directory, _, successor = disk
    for _ in range(30):
        with Housekeeper(directory, Schedule(retention_s=0.0001, compaction_s=0.0001, checkpoint_s=0.0001)):
            successor.take_over()
    directory.compact()
    assert directory._failed_cleaning == {}
    assert len(records_from(directory.log(PARTITION))) == 30
    successor.check(filesystem)


def test_records_are_deleted_from_the_log_that_was_meant(disk):
    filesystem, directory, log, successor = disk
    successor.take_over()
    with pytest.raises(LogDeleted):
        directory.delete_records(PARTITION, 20, log=log)
    successor.check(filesystem)
