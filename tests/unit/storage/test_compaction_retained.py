"""What remains of one batch."""

import pytest

from headrace.records import (
    Codec,
    ControlType,
    Header,
    Record,
    build_batch,
    build_marker,
    crc_of,
    header_at,
    records_of,
)
from headrace.records.batch import assemble
from headrace.records.record import encode
from headrace.storage.compaction.retained import BatchFilter, LastRecord, OffsetMap, TransactionWalk
from headrace.storage.indexes import AbortedTransaction

NOW, KEEP_MS = 10_000, 500


def _filter(latest=None, *, aborted=(), producers=None, end_offset=1000, now_ms=NOW, mapped_to=999):
    offsets = OffsetMap(100)
    for key, offset in (latest or {}).items():
        offsets.put(key, offset)
    offsets.latest_offset = mapped_to
    return BatchFilter(
        offsets,
        TransactionWalk(aborted),
        producers or {},
        end_offset=end_offset,
        delete_retention_ms=KEEP_MS,
        now_ms=now_ms,
    )


RECORDS = [
    Record(50, 100, b"a", b"1", (Header("h", b"x"),)),
    Record(51, 300, b"b", b"2"),
    Record(52, 200, b"a", b"3"),
    Record(53, 150, b"c", b"4"),
]


def _retained(batch, batch_filter):
    kept = batch_filter.retain(header_at(batch), batch)
    if kept is not None:
        assert header_at(kept).crc == crc_of(kept)
        assert header_at(kept).size == len(kept)
    return kept


def test_a_batch_with_all_its_records_passes_byte_for_byte():
    batch = build_batch(RECORDS[1:], codec=Codec.ZSTD)
    assert _retained(batch, _filter({b"a": 52, b"b": 51, b"c": 53})) is batch


@pytest.mark.parametrize("codec", Codec)
def test_the_latest_of_each_key_remain_and_offsets_and_sequences_do_not_change(codec):
    batch = build_batch(RECORDS, codec=codec, leader_epoch=3, producer_id=7, producer_epoch=1, base_sequence=9)
    kept = _retained(batch, _filter({b"a": 52, b"b": 99, b"c": 53}))
    assert records_of(kept) == RECORDS[2:]
    before, after = header_at(batch), header_at(kept)
    assert (after.base_offset, after.last_offset, after.codec) == (50, 53, codec)
    assert (after.base_sequence, after.last_sequence, after.producer_id, after.leader_epoch) == (9, 12, 7, 3)
    assert (after.record_count, after.max_timestamp, after.base_timestamp) == (2, 200, before.base_timestamp)


def test_a_batch_of_which_nothing_remains_goes():
    assert _retained(build_batch(RECORDS), _filter({b"a": 99, b"b": 99, b"c": 99})) is None


def test_what_the_map_does_not_reach_stays():
    batch = build_batch(RECORDS)
    kept = _retained(batch, _filter({b"a": 52, b"b": 51}, mapped_to=52))
    assert [record.offset for record in records_of(kept)] == [51, 52, 53]


def test_records_without_a_key_go():
    batch = build_batch([Record(0, 1, None, b"old"), Record(1, 1, b"k", b"v")])
    assert [record.key for record in records_of(_retained(batch, _filter({b"k": 1})))] == [b"k"]


def test_a_tombstone_gets_its_horizon_and_goes_after_it():
    batch = build_batch([Record(0, 100, b"a", None, (Header("h", b"x"),)), Record(1, 90, b"b", b"v")], codec=Codec.LZ4)
    latest = {b"a": 0, b"b": 1}
    marked = _retained(batch, _filter(latest))
    header = header_at(marked)
    assert header.delete_horizon_ms == NOW + KEEP_MS
    assert records_of(marked) == records_of(batch), "the records' own timestamps are what they were"
    assert (header.codec, header.max_timestamp) == (Codec.LZ4, 100)

    assert _retained(marked, _filter(latest, now_ms=NOW + KEEP_MS - 1)) is marked, "the horizon is set once"
    later = _retained(marked, _filter(latest, now_ms=NOW + KEEP_MS))
    assert records_of(later) == records_of(batch)[1:]
    assert header_at(later).max_timestamp == 90


def test_with_log_append_time_the_batchs_time_stays():
    batch = build_batch(RECORDS, log_append_time=True)
    kept = _retained(batch, _filter({b"a": 52, b"b": 99, b"c": 53}))
    assert header_at(kept).max_timestamp == 300
    assert {record.timestamp for record in records_of(kept)} == {300}


def test_aborted_records_go():
    batch = build_batch(RECORDS, producer_id=7, producer_epoch=0, base_sequence=0, transactional=True)
    aborted = [AbortedTransaction(7, 50, 60, 61)]
    assert _retained(batch, _filter({}, aborted=aborted)) is None


def test_the_last_batch_of_a_producer_stays_without_its_records():
    """Or the producer's sequence would be forgotten when the log is replayed."""
    batch = build_batch(RECORDS, codec=Codec.GZIP, producer_id=7, producer_epoch=2, base_sequence=4, transactional=True)
    gone = {b"a": 99, b"b": 99, b"c": 99}
    kept = _retained(batch, _filter(gone, producers={7: LastRecord(53, 2)}))
    header = header_at(kept)
    assert (header.record_count, header.codec, header.size) == (0, 0, 61)
    assert (header.base_offset, header.last_offset, header.last_sequence) == (50, 53, 7)
    assert header.is_transactional
    assert records_of(kept) == []
    assert _retained(batch, _filter(gone, producers={7: LastRecord(99, 2)})) is None
    again = _filter(gone, producers={7: LastRecord(53, 2)})
    assert _retained(kept, again) == kept, "cleaning it again changes nothing"


def test_the_last_batch_before_what_is_not_cleaned_stays_without_its_records():
    batch = build_batch(RECORDS)
    kept = _retained(batch, _filter({b"a": 99, b"b": 99, b"c": 99}, end_offset=54))
    assert (header_at(kept).record_count, header_at(kept).next_offset) == (0, 54)


def _marker(kind=ControlType.COMMIT):
    return build_marker(kind, producer_id=7, producer_epoch=0, coordinator_epoch=3, timestamp=100)


def test_a_marker_with_records_before_it_stays_as_it_is():
    batch_filter = _filter({b"a": 0})
    data = build_batch([Record(0, 1, b"a", b"v")], producer_id=7, producer_epoch=0, base_sequence=0, transactional=True)
    assert _retained(data, batch_filter) is data
    marker = _marker()
    assert _retained(marker, batch_filter) is marker


def test_an_idle_marker_gets_a_horizon_and_goes_after_it():
    marked = _retained(_marker(), _filter())
    header = header_at(marked)
    assert header.delete_horizon_ms == NOW + KEEP_MS
    assert header.is_control
    assert records_of(marked)[0].timestamp == 100
    assert _retained(marked, _filter(now_ms=NOW + KEEP_MS - 1)) is marked
    assert _retained(marked, _filter(now_ms=NOW + KEEP_MS)) is None


def test_an_idle_marker_that_is_all_there_is_of_a_producer_stays_empty():
    marked = _retained(_marker(), _filter())
    kept = _retained(marked, _filter(now_ms=NOW + KEEP_MS, producers={7: LastRecord(-1, 0)}))
    assert header_at(kept).record_count == 0
    assert header_at(kept).is_control
    assert _retained(kept, _filter(producers={7: LastRecord(-1, 0)})) == kept
    assert _retained(kept, _filter(producers={7: LastRecord(-1, 5)})) is None


def _encoded(offset_delta, timestamp_delta, key, value, headers=b"\0"):
    """A record with any headers."""
    body = encode(Record(offset_delta, timestamp_delta, key, value), 0, 0)
    inner = body[1:-1] + headers
    return bytes([len(inner) * 2]) + inner


@pytest.mark.parametrize("value", [b"2", None])
@pytest.mark.parametrize("timestamp_delta", [2**63 - 1, -(2**63)])
def test_a_batch_with_a_time_that_no_header_could_hold_stays_whole(value, timestamp_delta):
    records = [_encoded(0, 0, b"a", b"1"), _encoded(1, timestamp_delta, b"b", value)]
    batch = assemble(header_at(build_batch(RECORDS[:2])), b"".join(records))
    kept = _retained(batch, _filter({b"a": 60, b"b": 51}))
    assert kept is batch or timestamp_delta < 0


@pytest.mark.parametrize("headers", [b"\xff\xff\xff\xff\x0f", b"\2", b"\1", b"\0\0"])
def test_a_batch_with_headers_that_are_none_stays_whole_for_a_tombstone(headers):
    records = [_encoded(0, 0, b"a", b"1"), _encoded(1, 0, b"b", None, headers)]
    batch = assemble(header_at(build_batch(RECORDS[:2])), b"".join(records))
    assert _retained(batch, _filter({b"a": 60, b"b": 51})) is batch
