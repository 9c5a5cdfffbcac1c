"""Many threads at one log: group commit, readers beside an appender and the cleaner, and the housekeeper."""

import threading
from contextlib import contextmanager
from random import Random

import pytest

from headrace.model import TopicPartition
from headrace.records import Record, build_batch, crc_of, headers_in
from headrace.storage.compaction import job
from headrace.storage.compaction.cleaner import clean
from headrace.storage.config import LogConfig
from headrace.storage.directory import LogDirectory
from headrace.storage.errors import NotDurable, OffsetOutOfRange, StorageError, SyncFailed
from headrace.storage.group_commit import GroupCommit
from headrace.storage.housekeeping import Housekeeper, Schedule
from headrace.storage.reading import first_at_or_after
from headrace.testing import FakeClock, MemoryFileSystem
from tests.property.storage_model import EXAMPLES, read_records

PARTITION = TopicPartition("orders", 0)
NOW = FakeClock().now_ms()
THREADS = 6
EACH = int(25 * max(1, EXAMPLES))


def _append(log, key, value=b"v", now_ms=NOW):
    return log.append(build_batch([Record(0, now_ms, key, value)]), now_ms=now_ms)


@contextmanager
def _threads(*targets):
    """Run these side by side; whatever one of them raises is raised here."""
    raised = []

    def guarded(target):
        try:
            target()
        except BaseException as error:  # seen by the test, below
            raised.append(error)

    threads = [threading.Thread(target=guarded, args=(target,)) for target in targets]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        for thread in threads:
            thread.join()
    if raised:
        raise raised[0]


def _begin(filesystem, **config):
    directory = LogDirectory.open("data", filesystem=filesystem, clock=FakeClock())
    return directory, directory.create(PARTITION, LogConfig(**config))


# --- group commit


class _SlowSync:
    """Holds the first syncs of a log until enough others wait, so that they have to share the next."""

    def __init__(self, log, waiters):
        self._flush, self._log = log.flush, log
        self.waiting = threading.Semaphore(0)
        self._waiters, self._held = waiters, False
        log.flush = self.flush

    def flush(self, **options):
        if not self._held:
            self._held = True
            for _ in range(self._waiters):
                assert self.waiting.acquire(timeout=30)
        return self._flush(**options)


def test_one_sync_serves_all_that_wait_for_it():
    filesystem = MemoryFileSystem()
    _, log = _begin(filesystem)
    commit = GroupCommit(threads=1)
    slow = _SlowSync(log, waiters=THREADS)
    answered = []
    all_answered = threading.Semaphore(0)

    def done(error):
        answered.append((error, log.durable_offset))
        all_answered.release()

    before = filesystem.counts("*.log").syncs
    for number in range(THREADS):
        commit.submit(log, _append(log, b"%d" % number).last_offset + 1, done)
        slow.waiting.release()
    for _ in range(THREADS):
        assert all_answered.acquire(timeout=30)
    commit.close()
    assert answered == [(None, THREADS)] * THREADS
    assert filesystem.counts("*.log").syncs - before <= 2
    after = LogDirectory.open("data", filesystem=filesystem.crash(mode="lose_everything"), clock=FakeClock())
    assert after.log(PARTITION).end_offset == THREADS


def test_a_log_that_is_appended_to_all_the_time_keeps_no_other_waiting():
    directory, busy = _begin(MemoryFileSystem())
    other = directory.create(TopicPartition("orders", 1), LogConfig())
    commit = GroupCommit(threads=1)
    _append(other, b"k")
    answers = []
    is_over = threading.Event()

    def done(error):
        """While a thread serves the busy log there is always somebody who waits for it."""
        answers.append(("busy", error))
        if len(answers) == 2:
            commit.submit(other, 1, lambda error: answers.append(("other", error)))
        if len(answers) < 10:
            commit.submit(busy, _append(busy, b"k").last_offset + 1, done)
        else:
            is_over.set()

    commit.submit(busy, _append(busy, b"k").last_offset + 1, done)
    assert is_over.wait(30)
    commit.close()
    assert answers[2] == ("other", None)
    assert answers.count(("busy", None)) == len(answers) - 1


def test_whoever_waits_when_it_is_closed_is_served():
    directory, first = _begin(MemoryFileSystem())
    logs = [first, *(directory.create(TopicPartition("orders", number), LogConfig()) for number in range(1, THREADS))]
    commit = GroupCommit(threads=1)
    slow = _SlowSync(first, waiters=1)
    answers = []
    for log in logs * 2:
        commit.submit(log, _append(log, b"k").last_offset + 1, answers.append)
    closing = threading.Thread(target=commit.close)
    closing.start()
    slow.waiting.release()
    closing.join()
    assert answers == [None] * 2 * THREADS


@pytest.mark.parametrize("seed", range(max(2, int(2 * EXAMPLES))))
def test_nobody_is_answered_before_the_data_is_on_the_disk(seed):
    filesystem = MemoryFileSystem()
    _, log = _begin(filesystem, segment_bytes=600)
    commit = GroupCommit()
    confirmed: dict[int, bytes] = {}
    failures = []

    def produce(name):
        for number in range(EACH):
            key = b"%d-%d" % (name, number)
            offset = _append(log, key).base_offset
            try:
                commit.wait(log, offset + 1)
            except SyncFailed as error:
                failures.append(error)
            else:
                assert log.durable_offset > offset
                confirmed[offset] = key

    random = Random(seed)
    for _ in range(4):
        filesystem.fail_sync("*.log", skip=random.randint(0, 20))
    with _threads(*(lambda name=name: produce(name) for name in range(THREADS))):
        pass
    commit.close()
    assert len(confirmed) + len(failures) == THREADS * EACH
    assert failures
    after = LogDirectory.open("data", filesystem=filesystem.crash(mode="lose_everything"), clock=FakeClock())
    there = {record.offset: record.key for record in read_records(after.log(PARTITION))}
    assert confirmed.items() <= there.items()
    assert confirmed


def test_an_error_reaches_every_waiter_and_the_next_round_works():
    filesystem = MemoryFileSystem()
    _, log = _begin(filesystem)
    commit = GroupCommit(threads=1)
    slow = _SlowSync(log, waiters=THREADS)
    filesystem.fail_sync("*.log", times=None)
    errors = []
    told = threading.Semaphore(0)

    def done(error):
        errors.append(error)
        told.release()
        if len(errors) == 1:
            raise RuntimeError("a waiter that fails must not keep the others waiting")

    for number in range(THREADS):
        commit.submit(log, _append(log, b"%d" % number).last_offset + 1, done)
        slow.waiting.release()
    for _ in range(THREADS):
        assert told.acquire(timeout=30)
    assert [type(error) for error in errors] == [SyncFailed] * THREADS
    assert log.durable_offset == 0
    filesystem.heal()
    commit.wait(log, log.end_offset)
    assert log.durable_offset == THREADS
    commit.close()


def test_whatever_goes_wrong_in_a_sync_nobody_waits_for_ever():
    _, log = _begin(MemoryFileSystem())
    commit = GroupCommit(threads=1)
    _append(log, b"k")
    right, log.flush = log.flush, lambda: 1 / 0
    with pytest.raises(StorageError, match="division"):
        commit.wait(log, 1)
    log.flush = lambda: 0  # says that it is done, but the end was cut off meanwhile
    with pytest.raises(StorageError, match="lost before they were on disk"):
        commit.wait(log, 1)
    log.flush = right
    commit.wait(log, 1)
    commit.close()


@pytest.mark.parametrize("cut_first", [True, False])
def test_a_record_that_was_cut_off_is_not_confirmed_by_the_one_in_its_place(cut_first):
    _, log = _begin(MemoryFileSystem())
    commit = GroupCommit(threads=1)
    replaced = threading.Event()
    flush = log.flush

    def flush_later(**options):
        assert replaced.wait(30)
        return flush(**options)

    log.flush = flush_later
    answers = {}
    all_answered = threading.Semaphore(0)

    def done(name, error):
        answers[name] = type(error)
        all_answered.release()

    offset = _append(log, b"lost").last_offset + 1
    if cut_first:
        log.truncate_to(0)
    commit.submit(log, offset, lambda error: done("lost", error))
    if not cut_first:
        log.truncate_to(0)
    offset = _append(log, b"in its place").last_offset + 1
    commit.submit(log, offset, lambda error: done("in its place", error))
    replaced.set()
    for _ in range(2):
        assert all_answered.acquire(timeout=30)
    commit.close()
    assert answers == {"lost": NotDurable, "in its place": type(None)}


# --- readers, an appender, the cleaner and retention on a real disk


def test_readers_beside_an_appender_compaction_and_retention(tmp_path):
    config = LogConfig(
        cleanup_policy=frozenset({"compact", "delete"}),
        segment_bytes=4096,
        index_interval_bytes=256,
        retention_bytes=40_000,
        retention_ms=-1,
    )
    directory = LogDirectory.open(str(tmp_path / "data"), config_for=lambda _: config)
    log = directory.create(PARTITION, config)
    done = threading.Event()
    total = int(3000 * max(1, EXAMPLES))
    progress = {"cleaned": 0, "removed": 0, "read": 0}

    def produce():
        try:
            for number in range(total):
                assert _append(log, b"%d" % (number % 50), b"x" * 60).base_offset == number
                if number % 100 == 0:
                    log.flush()
        finally:
            done.set()

    def look_after():
        while not done.is_set():
            if clean(log, checkpoint=0, now_ms=NOW, runner=job.run):
                progress["cleaned"] += 1
            progress["removed"] += sum(directory.enforce_retention().values())
            directory.flush_rolled()
            directory.checkpoint()

    def read(seed):
        random = Random(seed)
        while not done.is_set():
            offset = random.randint(log.start_offset, log.end_offset)
            expected = offset
            for _ in range(20):
                try:
                    found = log.read(offset, random.choice([1, 500, 5000]), committed=random.random() < 0.5).slice
                except OffsetOutOfRange:
                    assert offset < log.start_offset
                    break
                if found is None:
                    break
                data = found.read()
                served = list(headers_in(data))
                assert served
                assert served[0][1].last_offset >= offset
                for position, header in served:
                    assert crc_of(data[position : position + header.size]) == header.crc
                    assert header.last_offset >= expected
                    expected = offset = header.next_offset
                progress["read"] += 1
            first_at_or_after(log, NOW)

    with _threads(produce, look_after, lambda: read(1), lambda: read(2), lambda: read(3)):
        pass
    assert log.end_offset == total
    assert min(progress.values()) > 0, progress
    directory.enforce_retention()
    kept = read_records(log)
    directory.close()
    again = LogDirectory.open(str(tmp_path / "data"), config_for=lambda _: config)
    assert again.recoveries[0].is_clean
    assert read_records(again.log(PARTITION)) == kept
    assert kept[-1].offset == total - 1
    again.close()


def test_checkpoints_are_written_by_many_threads(tmp_path):
    directory = LogDirectory.open(str(tmp_path / "data"))
    log = directory.create(PARTITION, LogConfig(segment_bytes=300, retention_ms=-1))
    for number in range(60):
        _append(log, b"%d" % number)
    with _threads(
        *(lambda: [directory.checkpoint() for _ in range(10)] for _ in range(2)),
        lambda: [directory.delete_records(PARTITION, before) for before in range(1, 30)],
        lambda: [directory.enforce_retention() for _ in range(10)],
    ):
        pass
    directory.abandon()
    again = LogDirectory.open(str(tmp_path / "data"))
    assert again.log(PARTITION).start_offset == 29
    again.close()


# --- the housekeeper


def test_the_housekeeper_does_its_tasks_and_stops():
    clock = FakeClock()
    filesystem = MemoryFileSystem(clock=clock)
    directory = LogDirectory.open("data", filesystem=filesystem, clock=clock)
    old = directory.create(PARTITION, LogConfig(segment_bytes=200, retention_ms=1000))
    keyed = directory.create(
        TopicPartition("keyed", 0),
        LogConfig(cleanup_policy=frozenset({"compact"}), segment_bytes=200, min_cleanable_dirty_ratio=0.01),
    )
    for _ in range(10):
        _append(old, b"k", b"v" * 90)
        _append(keyed, b"k", b"v" * 90)
    clock.advance(10_000)
    every = Schedule(retention_s=0.01, compaction_s=0.01, checkpoint_s=0.01)
    with Housekeeper(directory, every) as keeper:
        for _ in range(3000):
            if old.start_offset == 10 and len(read_records(keyed)) <= 2 and keyed.durable_offset >= 9:
                break
            threading.Event().wait(0.01)
    assert old.start_offset == 10
    assert [record.offset for record in read_records(keyed)] == [8, 9]
    assert not keeper._thread.is_alive()
    keeper.stop()
    after = LogDirectory.open("data", filesystem=filesystem.crash(mode="lose_everything"), clock=clock)
    assert after.log(PARTITION).start_offset == 10


def test_the_housekeeper_works_by_another_schedule_at_once():
    directory, _ = _begin(MemoryFileSystem())
    compacted = threading.Event()
    directory.compact = lambda: compacted.set() or {}
    with Housekeeper(directory, Schedule(compaction_s=3600)) as keeper:
        keeper.reschedule(Schedule(compaction_s=0.01))
        assert compacted.wait(30)


@pytest.mark.parametrize("error", [OSError("the disk is gone"), KeyError("a bug"), StorageError("refused")])
def test_a_task_that_fails_does_not_end_the_housekeeper(error):
    directory, _ = _begin(MemoryFileSystem())
    turns = {"failed": 0, "others": threading.Semaphore(0)}

    def fail():
        turns["failed"] += 1
        raise error

    directory.enforce_retention = fail
    directory.compact = lambda: turns["others"].release() or {}
    with Housekeeper(directory, Schedule(retention_s=0.001, compaction_s=0.001, checkpoint_s=0.001)):
        for _ in range(5):
            assert turns["others"].acquire(timeout=30)
    assert turns["failed"] >= 2
    directory.close()
