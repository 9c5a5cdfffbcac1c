"""Records into a batch and out again."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.records import Codec, Header, InvalidRecord, Record, build_batch, crc_of, header_at, records_of
from headrace.records.record import RawRecord, _encode_any, body_of, encode, walk

NULLABLE = (None, b"", b"x", b"\x00\xff" * 40)
HEADERS = (
    (),
    (Header("", None),),
    (Header("name", b""), Header("name", b"again"), Header("größe", None)),
    tuple(Header(f"h{n}", b"%d" % n) for n in range(200)),
)


def test_every_combination_of_parts_comes_back():
    records = [
        Record(n, stamp, key, value, headers)
        for n, (key, value, headers, stamp) in enumerate(
            itertools.product(NULLABLE, NULLABLE, HEADERS, (-1, 0, -5_000_000_000, 1_700_000_000_000, 2**62))
        )
    ]
    for codec in Codec:
        batch = build_batch(records, codec=codec)
        assert records_of(batch) == records
        header = header_at(batch)
        assert (header.codec, header.record_count, header.last_offset_delta) == (codec, len(records), len(records) - 1)
        assert header.crc == crc_of(batch)
        assert (header.base_timestamp, header.max_timestamp) == (-1, 2**62)


text = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
nullable = st.none() | st.binary(max_size=40)
timestamps = st.integers(-(2**61), 2**61)


@given(
    st.lists(
        st.tuples(timestamps, nullable, nullable, st.lists(st.builds(Header, text, nullable), max_size=3)),
        min_size=1,
        max_size=20,
    ),
    st.sampled_from(Codec),
    st.integers(0, 2**62),
    st.integers(1, 1000),
)
def test_any_records_come_back(parts, codec, base_offset, step):
    records = [Record(base_offset + n * step, t, k, v, tuple(h)) for n, (t, k, v, h) in enumerate(parts)]
    batch = build_batch(records, codec=codec)
    assert records_of(batch) == records
    header = header_at(batch)
    assert header.max_timestamp == max(record.timestamp for record in records)
    assert (header.base_offset, header.last_offset) == (records[0].offset, records[-1].offset)


def test_large_records_come_back():
    records = [Record(0, 1, b"k" * 70_000, bytes(range(256)) * 20_000), Record(1, 2, None, b"z" * 1_000_000)]
    for codec in Codec:
        batch = build_batch(records, codec=codec)
        assert records_of(batch) == records
        assert codec is Codec.NONE or len(batch) < 1_000_000


def test_a_batch_may_begin_before_its_first_record():
    """What compaction leaves: the first records are gone, the base offset stays."""
    batch = build_batch([Record(12, 1, b"k", b"v"), Record(15, 1, b"k", b"v")], base_offset=10)
    header = header_at(batch)
    assert (header.base_offset, header.last_offset, header.record_count) == (10, 15, 2)
    assert [record.offset for record in records_of(batch)] == [12, 15]


def test_flags_and_producer_are_in_the_header():
    batch = build_batch(
        [Record(0, 50, b"k", b"v")],
        codec=Codec.LZ4,
        leader_epoch=4,
        producer_id=7,
        producer_epoch=2,
        base_sequence=9,
        transactional=True,
        log_append_time=True,
    )
    header = header_at(batch)
    assert header.is_transactional
    assert header.is_log_append_time
    assert not header.is_control
    assert header[9:12] == (7, 2, 9)
    assert header.leader_epoch == 4


def test_with_log_append_time_every_record_has_the_batchs_time():
    batch = build_batch([Record(0, 5, b"a", b"v"), Record(1, 9, b"b", b"v")], log_append_time=True)
    assert [record.timestamp for record in records_of(batch)] == [9, 9]


def test_no_records_are_no_batch():
    with pytest.raises(InvalidRecord, match="at least one record"):
        build_batch([])


def test_a_timestamp_out_of_reach_of_the_first_is_refused():
    with pytest.raises(InvalidRecord, match="does not fit into 64 bits"):
        build_batch([Record(0, -(2**63), b"k", b"v"), Record(1, 2**63 - 1, b"k", b"v")])


def test_walking_shows_where_the_parts_stand():
    batch = build_batch(
        [Record(0, 10, b"key", None), Record(1, 8, None, b"value", (Header("h", b"x"),))], codec=Codec.GZIP
    )
    body = body_of(batch, header_at(batch))
    first, second = walk(body, 2)
    assert isinstance(first, RawRecord)
    assert (first.timestamp_delta, first.offset_delta, first.value_size) == (0, 0, -1)
    assert body[first.key_at : first.key_at + first.key_size] == b"key"
    assert (second.start, second.timestamp_delta, second.offset_delta, second.key_size) == (first.end, -2, 1, -1)
    assert body[second.value_at : second.value_at + second.value_size] == b"value"
    assert second.end == len(body)


def test_a_header_name_that_is_no_utf_8_survives_being_written_again():
    """Kafka does not look into it, so it may be in a log, and compaction must neither change nor refuse it."""
    wild = Header(b"\xff\xfename".decode(errors="surrogateescape"), b"v")
    batch = build_batch([Record(0, 1, b"k", b"v", (wild,))])
    assert b"\xff\xfename" in batch
    assert records_of(batch)[0].headers == (wild,)
    assert build_batch(records_of(batch)) == batch


AROUND_A_BYTE = (0, 1, 63, 64, 127, 128, 200, 254, 255, 256, 300)


@pytest.mark.parametrize("offset", [0, 255, 256])
@pytest.mark.parametrize("timestamp", [-1, 0, 255, 256])
def test_a_short_record_is_written_as_any_other(offset, timestamp):
    for key, value in itertools.product((None, *AROUND_A_BYTE), repeat=2):
        parts = (None if size is None else b"k" * size for size in (key, value))
        record = Record(1000 + offset, 5000 + timestamp, *parts)
        assert encode(record, 1000, 5000) == _encode_any(record, 1000, 5000)
