"""Compaction beyond what the machine does: in many small passes, on a disk that refuses, and on a log that is cut."""

import errno
from contextlib import suppress

from hypothesis import given
from hypothesis import strategies as st

from headrace.model import TopicPartition
from headrace.records import ControlType, Record, build_batch, build_marker
from headrace.storage.compaction import job
from headrace.storage.compaction.cleaner import clean
from headrace.storage.compaction.columnar import OffsetTable
from headrace.storage.compaction.retained import OffsetMap
from headrace.storage.config import LogConfig
from headrace.storage.directory import LogDirectory
from headrace.storage.errors import StorageError
from headrace.testing import FakeClock, MemoryFileSystem
from tests.property.storage_model import examples, producer_facts, read_batches, read_committed, read_records

PARTITION = TopicPartition("orders", 0)
FOLDER = "data/orders-0"
CONFIG = LogConfig(
    cleanup_policy=frozenset({"compact"}), segment_bytes=300, index_interval_bytes=0, delete_retention_ms=1000
)
writes = st.lists(
    st.tuples(st.sampled_from("abcd"), st.booleans(), st.integers(0, 2), st.sampled_from(["go on", "commit", "abort"])),
    min_size=4,
    max_size=25,
)


class _Subject:
    """A log with some writes in it, everything decided and the last segment rolled."""

    def __init__(self, payload):
        self.clock = FakeClock()
        self.filesystem = MemoryFileSystem(clock=self.clock)
        self.directory = self.open()
        self.log = self.directory.create(PARTITION, CONFIG)
        self._sequences = dict.fromkeys(range(3), 0)
        for number, (key, is_tombstone, producer, outcome) in enumerate(payload):
            self._write(number, key, is_tombstone, producer)
            if outcome != "go on":
                self._end(producer, ControlType.COMMIT if outcome == "commit" else ControlType.ABORT)
        for producer in range(1, 3):
            self._end(producer, ControlType.COMMIT)
        self.log.roll(self.clock.now_ms())
        self.log.flush()

    def open(self):
        return LogDirectory.open("data", config_for=lambda _: CONFIG, filesystem=self.filesystem, clock=self.clock)

    def _write(self, number, key, is_tombstone, producer):
        now = self.clock.now_ms()
        record = Record(0, now, key.encode(), None if is_tombstone else b"%d" % number * 20)
        options = {}
        if producer:
            options = {"producer_id": producer, "producer_epoch": 0, "base_sequence": self._sequences[producer]}
            self._sequences[producer] += 1
        self.log.append(build_batch([record], transactional=bool(producer), **options), now_ms=now)

    def _end(self, producer, kind):
        if producer and self._sequences[producer]:
            now = self.clock.now_ms()
            marker = build_marker(kind, producer_id=producer, producer_epoch=0, coordinator_epoch=0, timestamp=now)
            self.log.append(marker, now_ms=now, from_client=False)

    def clean(self, checkpoint=0, **options):
        return clean(
            self.log,
            checkpoint=checkpoint,
            now_ms=self.clock.now_ms(),
            before_swap=self.directory.checkpoint,
            **{"runner": job.run, **options},
        )

    def crash(self):
        self.filesystem = self.filesystem.crash(mode="lose_everything")
        self.directory = self.open()
        self.log = self.directory.log(PARTITION)


def _latest(records):
    return {record.key: (record.offset, record.timestamp, record.value) for record in records}


def _without_tombstones(latest):
    return {key: entry for key, entry in latest.items() if entry[2] is not None}


@examples(60)
@given(payload=writes, max_keys=st.integers(1, 3))
def test_many_small_passes_come_to_what_one_large_pass_does(payload, max_keys):
    whole, bit_by_bit = _Subject(payload), _Subject(payload)
    latest = _latest(read_committed(whole.log))
    producers = producer_facts(whole.log)
    assert whole.clean()
    checkpoint, passes = 0, 0
    while checkpoint < bit_by_bit.log.end_offset:
        cleaned = bit_by_bit.clean(checkpoint, max_keys=max_keys)
        assert cleaned
        assert cleaned.end_offset > checkpoint
        assert _latest(read_committed(bit_by_bit.log)) == latest
        checkpoint, passes = cleaned.end_offset, passes + 1
    assert [r.offset for r in read_records(bit_by_bit.log)] == [r.offset for r in read_records(whole.log)]
    # One record a key is left, the latest, where it was; and after their time no tombstones.
    assert len(read_records(whole.log)) == len(latest)
    for subject in (whole, bit_by_bit):
        subject.clock.advance(999)
        subject.clean()
        assert _latest(read_committed(subject.log)) == latest
        subject.clock.advance(2)
        subject.clean()
        assert _latest(read_records(subject.log)) == _without_tombstones(latest)
        for _ in range(3):  # markers without a transaction go as well, in their time
            subject.clock.advance(5000)
            count = len(list(read_batches(subject.log)))
            subject.clean()
            assert len(list(read_batches(subject.log))) <= count
        assert _latest(read_committed(subject.log)) == _without_tombstones(latest)
        assert producer_facts(subject.log) == producers
        assert subject.log.last_stable_offset == subject.log.end_offset
        subject.crash()
        assert _latest(read_committed(subject.log)) == _without_tombstones(latest)
        assert producer_facts(subject.log) == producers


def _with_both_maps(work, filesystem):
    """Do a job with the compiled map of offsets and with the dictionary: same result, same files."""
    outcomes = []
    for offsets in (OffsetTable(work.max_keys, bytes(16)), OffsetMap(work.max_keys)):
        result = job.run(work, filesystem, offsets)
        paths = [f"{FOLDER}/{name}" for name in filesystem.list(FOLDER) if name.endswith(".cleaned")]
        outcomes.append((result, [(path, filesystem.read(path)) for path in paths]))
    assert outcomes[0] == outcomes[1]
    return result


@examples(60)
@given(payload=writes, max_keys=st.integers(1, 4))
def test_passes_with_the_compiled_map_write_the_same_files(payload, max_keys):
    subject = _Subject(payload)
    latest = _latest(read_committed(subject.log))
    checkpoint = 0
    while checkpoint < subject.log.end_offset:
        checkpoint = subject.clean(checkpoint, max_keys=max_keys, runner=_with_both_maps).end_offset
    for _ in range(3):
        subject.clock.advance(1001)
        subject.clean(runner=_with_both_maps)
    assert _latest(read_committed(subject.log)) == _without_tombstones(latest)


@examples(60)
@given(
    payload=writes,
    kind=st.sampled_from(["write", "sync", "open", "replace", "remove", "truncate", "sync_directory", "read"]),
    skip=st.integers(0, 12),
    error=st.sampled_from([errno.EIO, errno.ENOSPC]),
    then_crash=st.booleans(),
)
def test_a_pass_that_fails_half_way_harms_nothing_and_the_next_one_finishes(payload, kind, skip, error, then_crash):
    subject = _Subject(payload)
    latest = _latest(read_committed(subject.log))
    subject.filesystem.fail(kind, f"{FOLDER}*", skip=skip, error=error)
    with suppress(StorageError):
        subject.clean()
    subject.filesystem.heal()
    assert _latest(read_committed(subject.log)) == latest
    if then_crash:
        subject.crash()
        assert _latest(read_committed(subject.log)) == latest
    assert subject.clean()
    assert _latest(read_committed(subject.log)) == latest
    assert len(read_records(subject.log)) == len(latest)
    assert not [n for n in subject.filesystem.list(FOLDER) if n.endswith((".cleaned", ".swap", ".tmp"))]
    subject.directory.close()
    subject.directory = subject.open()
    assert _latest(read_committed(subject.directory.log(PARTITION))) == latest


@examples(40)
@given(payload=writes, fraction=st.floats(0, 0.99))
def test_what_was_cut_off_while_it_was_cleaned_does_not_come_back(payload, fraction):
    subject = _Subject(payload)
    offset = int(subject.log.end_offset * fraction)
    expected = [record for record in read_records(subject.log) if record.offset < offset]

    def run(task, filesystem):
        result = job.run(task, filesystem)
        subject.log.truncate_to(offset)
        subject.directory.checkpoint()
        return result

    assert subject.clean(runner=run) is None
    assert read_records(subject.log) == expected
    assert not [n for n in subject.filesystem.list(FOLDER) if n.endswith((".cleaned", ".swap"))]
    subject.crash()
    assert read_records(subject.log) == expected
