"""A crash at every step of everything that changes a log on disk, and what must be there after it.

Each test runs one deed again and again, stops it at each of its steps, and lets the power fail in several ways.
"""

from random import Random

import pytest

from headrace.model import TopicPartition
from headrace.records import ControlType, Record, build_batch, build_marker
from headrace.storage.config import LogConfig
from headrace.storage.directory import LogDirectory
from headrace.testing import FakeClock, MemoryFileSystem, crash_points
from tests.property.storage_model import EXAMPLES, producer_facts, read_committed, read_records

PARTITION = TopicPartition("orders", 0)
OTHER = TopicPartition("other", 0)
NOW = FakeClock().now_ms()
SEEDS = range(max(1, int(2 * EXAMPLES)))
DELETE = LogConfig(segment_bytes=400, index_interval_bytes=100, retention_ms=10_000)
COMPACT = LogConfig(
    cleanup_policy=frozenset({"compact"}),
    segment_bytes=400,
    index_interval_bytes=100,
    min_cleanable_dirty_ratio=0,
    delete_retention_ms=1000,
)


def _disk():
    return MemoryFileSystem(page_bytes=256, sector_bytes=64)


def _open(filesystem, config=DELETE, now_ms=NOW):
    return LogDirectory.open("data", config_for=lambda _: config, filesystem=filesystem, clock=FakeClock(now_ms))


def _append(log, number, *, key=b"k", value=b"v" * 80, **options):
    return log.append(build_batch([Record(0, NOW + number, key, value)], **options), now_ms=NOW)


def _fill(directory, count=6, config=DELETE):
    log = directory.create(PARTITION, config)
    for number in range(count):
        _append(log, number, key=b"%d" % number)
    return log


def _aftermaths(filesystem):
    """What the crash of this file system may leave."""
    yield "keep", filesystem.crash(mode="keep_everything")
    yield "lose", filesystem.crash(mode="lose_everything")
    for seed in SEEDS:
        yield f"random {seed}", filesystem.crash(Random(seed))


def _check_reopened(after, config=DELETE, **expected):
    """Open twice, a second crash between; the same is there, and nothing is called damaged."""
    first = _open(after, config)
    seen = {p: (log.start_offset, log.end_offset, read_records(log)) for p, log in first.logs.items()}
    again = _open(after.crash(mode="lose_everything"), config)
    assert {p: (log.start_offset, log.end_offset, read_records(log)) for p, log in again.logs.items()} == seen
    assert not any(recovery.damage for recovery in [*first.recoveries, *again.recoveries])
    return again


def _every_crash(run, prepare, config=DELETE):
    stops = 0
    for stopped in crash_points(run, prepare=prepare, make=_disk):
        stops += stopped.stopped_at is not None
        for name, after in _aftermaths(stopped):
            try:
                yield stopped.stopped_at, _check_reopened(after, config)
            except BaseException as error:
                error.add_note(f"stopped at {stopped.stopped_at}, crash: {name}")
                raise
    assert stops > 3


class _Deed:
    """A deed on an open directory, and what was true before and after it."""

    def __init__(self, prepare, deed, config=DELETE):
        self.config = config
        self._prepare, self._deed = prepare, deed
        self.done = False

    def prepare(self, filesystem):
        self.done = False
        self.directory = _open(filesystem, self.config)
        self._prepare(self.directory)

    def run(self, _filesystem):
        self._deed(self.directory)
        self.done = True

    def crashes(self):
        for stopped_at, directory in _every_crash(self.run, self.prepare, self.config):
            yield stopped_at, self.done, directory


def _values(log):
    return [record.key for record in read_records(log)]


NUMBERS = [b"%d" % number for number in range(20)]


def test_what_a_flush_confirmed_is_there_and_the_rest_is_a_prefix():
    def prepare(directory):
        log = _fill(directory, 6)
        log.flush()
        for number in range(6, 12):
            _append(log, number, key=b"%d" % number)

    deed = _Deed(prepare, lambda directory: directory.log(PARTITION).flush())
    for _, done, directory in deed.crashes():
        there = _values(directory.log(PARTITION))
        assert there == NUMBERS[: len(there)]
        assert len(there) >= (12 if done else 6)


def test_appends_with_rolls():
    def append(directory):
        for number in range(6, 14):
            _append(directory.log(PARTITION), number, key=b"%d" % number)

    deed = _Deed(lambda directory: _fill(directory, 6).flush(), append)
    for _, _, directory in deed.crashes():
        there = _values(directory.log(PARTITION))
        assert there == NUMBERS[: len(there)]
        assert len(there) >= 6


def test_a_crash_in_recovery_itself():
    """The disk that a first crash left, and a second crash at every step of opening it."""

    def first_life(filesystem):
        directory = _open(filesystem)
        log = _fill(directory, 5)
        log.flush()
        directory.checkpoint()
        for number in range(5, 12):
            _append(log, number, key=b"%d" % number)

    for seed in range(max(3, int(3 * EXAMPLES))):

        def torn(seed=seed):
            filesystem = _disk()
            first_life(filesystem)
            return filesystem.crash(Random(seed))

        for stopped in crash_points(lambda filesystem: _open(filesystem), make=torn):
            for _, after in _aftermaths(stopped):
                there = _values(_check_reopened(after).log(PARTITION))
                assert there == NUMBERS[: len(there)]
                assert len(there) >= 5


@pytest.mark.parametrize("flushed", [True, False])
def test_deleted_records_never_come_back(flushed):
    def prepare(directory):
        log = _fill(directory, 9)
        if flushed:
            log.flush()

    deed = _Deed(prepare, lambda directory: directory.delete_records(PARTITION, 7))
    starts = set()
    for _, done, directory in deed.crashes():
        log = directory.log(PARTITION)
        starts.add(log.start_offset)
        assert log.start_offset in ((7,) if done else (0, 7))
        assert _values(log) == NUMBERS[log.start_offset : log.end_offset]
        assert log.end_offset == 9 or not (done or flushed)
    assert starts == {0, 7}


@pytest.mark.parametrize("flushed", [True, False])
@pytest.mark.parametrize("all_of_it", [True, False])
def test_expired_records_never_come_back_and_producers_are_still_known(flushed, all_of_it):
    def prepare(directory):
        log = directory.create(PARTITION, DELETE)
        for number in range(6):
            options = {"producer_id": number % 2, "producer_epoch": 0, "base_sequence": number // 2}
            _append(log, number, key=b"%d" % number, **options)
        if not all_of_it:
            late = build_batch([Record(0, NOW + 1_000_000, b"6", b"v" * 300)])
            log.append(late, now_ms=NOW + 1_000_000)
        if flushed:
            log.flush()
        directory._clock.advance(1_000_000)

    deed = _Deed(prepare, lambda directory: directory.enforce_retention())
    starts = set()
    for _, done, directory in deed.crashes():
        log = directory.log(PARTITION)
        starts.add(log.start_offset)
        assert _values(log) == NUMBERS[log.start_offset : log.end_offset]
        if done or flushed:
            assert log.end_offset == (6 if all_of_it else 7)
            facts = producer_facts(log)
            assert {producer: each.last_sequence for producer, each in facts.items()} == {0: 2, 1: 2}
        if done:
            assert log.start_offset == 6
    assert starts == {0, 6}


def _transactions(directory):
    """Values, tombstones, transactions of both kinds and a producer that is only known by what goes."""
    log = directory.create(PARTITION, COMPACT)
    data = {"producer_epoch": 0, "transactional": True}
    _append(log, 0, key=b"a", value=b"old" * 30)
    _append(log, 1, key=b"a", value=b"older" * 20, producer_id=1, base_sequence=0, **data)
    _marker(log, 1, ControlType.COMMIT)
    _append(log, 3, key=b"b", value=b"keep" * 20)
    _append(log, 4, key=b"b", value=b"aborted" * 12, producer_id=2, base_sequence=0, **data)
    _marker(log, 2, ControlType.ABORT)
    _append(log, 6, key=b"gone", value=b"x" * 90)
    _append(log, 7, key=b"gone", value=None)
    _append(log, 8, key=b"a", value=b"new" * 30, producer_id=3, base_sequence=0, producer_epoch=0)
    _append(log, 9, key=b"c", value=b"only" * 30)
    _append(log, 10, key=b"d", value=b"open" * 30, producer_id=4, base_sequence=0, **data)
    return log


def _marker(log, producer_id, kind):
    marker = build_marker(kind, producer_id=producer_id, producer_epoch=0, coordinator_epoch=0, timestamp=NOW)
    log.append(marker, now_ms=NOW, from_client=False)


def _latest(records):
    return {record.key: (record.offset, record.value) for record in records}


@pytest.mark.parametrize("passes", [1, 2, 3])
def test_compaction_loses_nothing_that_counts(passes):
    """At each step: the latest committed value of each key, transactions right, producers known, tombstones right."""

    def prepare(directory):
        _transactions(directory).flush()
        log = directory.log(PARTITION)
        for number in range(passes - 1):
            assert directory.compact()
            directory._clock.advance(2000)
            if not number:
                _marker(log, 4, ControlType.COMMIT)
            _append(log, 12 + number, key=b"e", value=b"y" * 400)
            log.flush()

    reference = _open(_disk(), COMPACT)
    prepare(reference)
    log = reference.log(PARTITION)
    before = read_records(log)
    latest, facts, stable, end = (
        _latest(read_committed(log)),
        producer_facts(log),
        log.last_stable_offset,
        log.end_offset,
    )
    assert {key: value for key, (_, value) in latest.items() if value is not None}.keys() >= {b"a", b"b", b"c"}
    assert reference.compact()
    after = read_records(log)
    assert len(after) < len(before) or passes == 3
    assert (b"gone" in [record.key for record in after]) == (passes == 1), "the tombstone has had its time"
    for _, done, directory in _Deed(prepare, lambda directory: directory.compact(), COMPACT).crashes():
        log = directory.log(PARTITION)
        there, committed = read_records(log), read_committed(log)
        assert {record.offset for record in after if record.offset < log.end_offset} <= {r.offset for r in there}
        assert all(record in before for record in there)
        if log.end_offset == end:
            visible = _latest(committed)
            assert {k: v for k, v in visible.items() if v[1] is not None} == {
                k: v for k, v in latest.items() if v[1] is not None
            }
            assert (producer_facts(log), log.last_stable_offset) == (facts, stable)
        assert b"aborted" * 12 not in [record.value for record in committed]
        if done:
            assert there == after


def test_a_close_that_is_interrupted_is_no_clean_one():
    deed = _Deed(lambda directory: _fill(directory, 6).flush(), lambda directory: directory.close())
    for _, _, directory in deed.crashes():
        assert _values(directory.log(PARTITION)) == NUMBERS[:6]


def test_checkpoints_are_the_old_or_the_new():
    def prepare(directory):
        log = _fill(directory, 6)
        log.flush()
        directory.delete_records(PARTITION, 2)
        for number in range(6, 9):
            _append(log, number, key=b"%d" % number)
        log.flush()

    for _, _, directory in _Deed(prepare, lambda directory: directory.checkpoint()).crashes():
        log = directory.log(PARTITION)
        assert (log.start_offset, log.end_offset) == (2, 9)
        assert _values(log) == NUMBERS[2:9]


def test_a_log_is_made_or_not():
    def create(directory):
        directory.create(OTHER, DELETE)

    outcomes = set()
    for _, done, directory in _Deed(lambda directory: _fill(directory, 3).flush(), create).crashes():
        outcomes.add(OTHER in directory.logs)
        assert OTHER in directory.logs or not done
        assert _values(directory.log(PARTITION)) == NUMBERS[:3]
        if OTHER in directory.logs:
            assert directory.topic_id(OTHER).int
        else:
            directory.create(OTHER, DELETE)
        _append(directory.log(OTHER), 0)
        assert directory.log(OTHER).flush() == 1
    assert outcomes == {True, False}


def test_the_logs_of_a_topic_are_made_and_what_a_crash_left_out_can_be_made_then():
    wanted = [TopicPartition("wide", index) for index in range(3)]
    for _, done, directory in _Deed(
        lambda directory: _fill(directory, 3).flush(), lambda directory: directory.create_all(wanted, DELETE)
    ).crashes():
        missing = [partition for partition in wanted if partition not in directory.logs]
        assert not (done and missing)
        if missing:
            directory.create_all(missing, DELETE)
        for partition in wanted:
            _append(directory.log(partition), 0)
            assert directory.log(partition).flush() == 1


def test_a_log_is_deleted_or_not_and_can_be_made_again():
    def prepare(directory):
        _fill(directory, 9).flush()
        directory.delete_records(PARTITION, 5)
        directory.checkpoint()

    outcomes = set()
    for _, done, directory in _Deed(prepare, lambda directory: directory.delete(PARTITION)).crashes():
        outcomes.add(PARTITION in directory.logs)
        assert not [name for name in directory._filesystem.list("data") if name.endswith("-delete")]
        if PARTITION in directory.logs:
            assert not done
            assert _values(directory.log(PARTITION)) == NUMBERS[5:9]
        else:
            log = directory.create(PARTITION, DELETE)
            _append(log, 0, key=b"again")
            log.flush()
            later = _open(directory._filesystem.crash(mode="lose_everything"))
            assert _values(later.log(PARTITION)) == [b"again"]
    assert outcomes == {True, False}


def test_a_first_append_after_a_clean_start():
    """The index files of the last life must not come back to tell of a log that has grown since."""

    def prepare(directory):
        log = directory.create(PARTITION, DELETE)
        _append(log, 0, key=b"0", value=b"v")

    def second_life(filesystem):
        directory = _open(filesystem)
        log = directory.log(PARTITION)
        log.flush()
        _append(log, 1, key=b"1", value=b"v", producer_id=1, producer_epoch=0, base_sequence=0, transactional=True)
        _marker(log, 1, ControlType.ABORT)
        log.flush()
        directory.checkpoint()
        log.roll(NOW)
        _append(log, 3, key=b"3")

    def prepared(filesystem):
        directory = _open(filesystem)
        prepare(directory)
        directory.close()

    for _, directory in _every_crash(second_life, prepared):
        log = directory.log(PARTITION)
        assert b"1" not in [record.key for record in read_committed(log)]
        assert max(segment.largest_timestamp for segment in log.segments if segment.size) >= NOW
