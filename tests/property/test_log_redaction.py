"""Values replaced in a log: what is read then, what is left in files, and a crash at every step of it."""

from random import Random

import pytest

from headrace.model import TopicPartition
from headrace.records import Codec, Record, build_batch
from headrace.storage.config import LogConfig
from headrace.storage.directory import LogDirectory
from headrace.storage.redaction import replace_values
from headrace.testing import FakeClock, MemoryFileSystem, crash_points
from tests.property.storage_model import producer_facts, read_records

PARTITION = TopicPartition("events", 0)
NOW = FakeClock().now_ms()
CONFIG = LogConfig(segment_bytes=400, index_interval_bytes=100)
SECRET = b"<secret %d>"


def _open(filesystem):
    return LogDirectory.open("data", config_for=lambda _: CONFIG, filesystem=filesystem, clock=FakeClock(NOW))


def _disk():
    return MemoryFileSystem(page_bytes=256, sector_bytes=64)


def _fill(directory, *, codec=Codec.NONE):
    """Six batches of two records, in several segments."""
    log = directory.create(PARTITION, CONFIG)
    for number in range(6):
        records = [Record(each, NOW + number, b"k", SECRET % (2 * number + each) * 6) for each in range(2)]
        log.append(
            build_batch(records, codec=codec, producer_id=7, producer_epoch=0, base_sequence=2 * number), now_ms=NOW
        )
    log.flush()
    return log


def _left(filesystem):
    """The secrets that are in some file."""
    names = [f"data/events-0/{name}" for name in filesystem.list("data/events-0")]
    held = []
    for name in names:
        file = filesystem.open(name, create=False)
        held.append(file.read_at(file.size(), 0))
        file.close()
    return {number for number in range(12) if SECRET % number in b"".join(held)}


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
def test_other_values_are_read_and_nothing_else_has_changed(codec):
    filesystem = _disk()
    directory = _open(filesystem)
    log = _fill(directory, codec=codec)
    before, producers = read_records(log), producer_facts(log)
    assert len(log.segments) > 1
    values = {1: b"other", 2: b"", 11: b"x" * 500}
    assert replace_values(log, values, NOW) == 3
    expected = [each._replace(value=values.get(each.offset, each.value)) for each in before]
    assert read_records(log) == expected
    assert producer_facts(log) == producers
    log.append(build_batch([Record(0, NOW, b"k", b"more")]), now_ms=NOW)
    directory.close()
    if codec is Codec.NONE:
        assert _left(filesystem) == set(range(12)) - values.keys()
    again = _open(filesystem).logs[PARTITION]
    assert read_records(again)[:12] == expected
    assert again.end_offset == 13
    assert not any(segment.damage for segment in again.segments)


def test_what_is_not_there_is_passed_by():
    log = _fill(_open(_disk()))
    assert replace_values(log, {99: b""}, NOW) == 0
    log.advance_start(4)
    before = read_records(log)
    assert replace_values(log, {1: b"", 99: b""}, NOW) == 0
    assert read_records(log) == before


@pytest.mark.parametrize("values", [{3: b"short"}, {2: b"x" * 400, 9: b""}, {11: b"the last"}])
def test_a_crash_leaves_old_or_new_values(values):
    stops = 0

    def run(filesystem):
        replace_values(_open(filesystem).logs[PARTITION], values, NOW)

    def prepare(filesystem):
        directory = _open(filesystem)
        _fill(directory)
        directory.close()

    filesystem = _disk()
    prepare(filesystem)
    old = read_records(_open(filesystem).logs[PARTITION])
    for stopped in crash_points(run, prepare=prepare, make=_disk):
        stops += stopped.stopped_at is not None
        for after in (
            stopped.crash(mode="keep_everything"), stopped.crash(mode="lose_everything"), stopped.crash(Random(0))
        ):  # fmt: skip
            directory = _open(after)
            log = directory.logs[PARTITION]
            found = read_records(log)
            assert len(found) == 12
            for was, now in zip(old, found, strict=True):
                assert now in (was, was._replace(value=values.get(was.offset, was.value))), stopped.stopped_at
            assert not any(recovery.damage for recovery in directory.recoveries)
            replace_values(log, values, NOW)  # as the broker does at its start
            assert read_records(log) == [each._replace(value=values.get(each.offset, each.value)) for each in old]
            assert not _left(after) & values.keys()
    assert stops > 3
