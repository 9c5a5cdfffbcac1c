"""Records by their time."""

import pytest

from headrace.records import Codec, Record, build_batch, header_at
from headrace.records.batch import assemble
from headrace.records.record import encode
from headrace.storage.compaction.cleaner import clean
from headrace.storage.reading import first_at_or_after, youngest
from headrace.testing import MemoryFileSystem
from tests.small_logs import EPOCH_MS, append, new_log, records_from

TIMES = [5, 3, 9, 9, 1, 20, 12, 20, 15, 30, 2, 30, 28, 40, 33, 7, 50, 41, 42, 60]


@pytest.fixture(params=[10**9, 200])
def log(request):
    log = new_log(MemoryFileSystem(), segment_bytes=request.param, index_interval_bytes=0)
    for at in range(0, len(TIMES), 4):
        records = [Record(n, EPOCH_MS + t, b"k", b"v") for n, t in enumerate(TIMES[at : at + 4])]
        append(log, records, codec=Codec.GZIP, epoch=at // 8)
    return log


def _brute(log, timestamp):
    return next(
        (r.offset for r in records_from(log) if r.timestamp >= timestamp and r.offset >= log.start_offset), None
    )


def test_it_agrees_with_looking_at_every_record(log):
    for start in (0, 6, 13):
        log.advance_start(start)
        for t in range(-1, 63):
            found = first_at_or_after(log, EPOCH_MS + t)
            assert (found and found.offset) == _brute(log, EPOCH_MS + t), (start, t)


def test_what_is_found_has_its_time_and_epoch(log):
    assert first_at_or_after(log, EPOCH_MS + 31) == (13, EPOCH_MS + 40, 1)
    assert first_at_or_after(log, EPOCH_MS + 61) is None


def test_the_youngest_is_the_first_of_the_youngest():
    log = new_log(MemoryFileSystem())
    assert youngest(log) is None
    append(log, [Record(n, EPOCH_MS + t, b"k", b"v") for n, t in enumerate([1, 7, 3])])
    append(log, [Record(n, EPOCH_MS + t, b"k", b"v") for n, t in enumerate([7, 2])])
    assert youngest(log)[:2] == (1, EPOCH_MS + 7)


def test_the_youngest_of_a_compacted_log_is_a_record_that_is_there():
    """Cleaning may leave a batch without records, with its old timestamp, to keep its offsets or its producer."""
    filesystem = MemoryFileSystem()
    log = new_log(filesystem, cleanup_policy=frozenset({"compact"}))
    append(log, [Record(0, EPOCH_MS + 1, b"a", b"v")])
    append(log, [Record(0, EPOCH_MS + 900, b"b", b"v")], producer_id=1, producer_epoch=0, base_sequence=0)
    append(log, [Record(0, EPOCH_MS + 2, b"b", b"v")])
    log.roll(EPOCH_MS)
    assert clean(log, checkpoint=0, now_ms=EPOCH_MS)
    assert [r.offset for r in records_from(log)] == [0, 2]
    assert youngest(log)[:2] == (2, EPOCH_MS + 2)
    assert first_at_or_after(log, EPOCH_MS + 2)[:2] == (2, EPOCH_MS + 2)


def test_a_batch_without_records_has_no_say_in_the_time_index():
    """Or the index names a time that no record has; Kafka's own tool calls that a mismatch."""
    filesystem = MemoryFileSystem()
    log = new_log(filesystem, cleanup_policy=frozenset({"compact"}), index_interval_bytes=0)
    append(log, [Record(0, EPOCH_MS + 1, b"a", b"v")])
    append(log, [Record(0, EPOCH_MS + 900, b"b", b"v")], producer_id=1, producer_epoch=0, base_sequence=0)
    append(log, [Record(0, EPOCH_MS + 2, b"b", b"v")])
    log.roll(EPOCH_MS)
    assert clean(log, checkpoint=0, now_ms=EPOCH_MS)
    assert log.segments[0].largest_timestamp == EPOCH_MS + 2
    assert log.segments[0].indexes.times.last == (EPOCH_MS + 2, 2)


_LONGEST = 2**63 - 1


@pytest.mark.parametrize(("timestamp", "offset"), [(_LONGEST, 0), (-_LONGEST, 0), (0, _LONGEST), (0, -5)])
def test_numbers_that_no_record_can_have_hide_no_other(timestamp, offset):
    log = new_log(MemoryFileSystem())
    good = header_at(build_batch([Record(0, EPOCH_MS + 9, b"k", b"v")]))
    log.append(assemble(good, encode(Record(offset, timestamp, b"k", b"v"), 0, 0)), now_ms=EPOCH_MS)
    append(log, [Record(0, EPOCH_MS + 5, b"k", b"v")])
    assert first_at_or_after(log, EPOCH_MS) == (1, EPOCH_MS + 5, 0)
    assert youngest(log) == (1, EPOCH_MS + 5, 0)
