"""Batches to columns: codecs, nulls, time, and each kind of corruption that a batch can have."""

from struct import pack_into

import pyarrow as pa
import pytest
from crc32c import crc32c

from headrace.pipelines.columns import arrow
from headrace.pipelines.columns.records import columns_of
from headrace.records import HEADER_SIZE, Codec, CorruptBatch, Header, Record, build_batch, header_at

RECORDS = [
    Record(10, 1000, b"k", b"value", (Header("h", b"1"), Header("", None))),
    Record(11, 1001, None, b""),
    Record(14, 1002, b"", None, (Header("é", b""),)),
]


def read(*batches, **limits):
    return columns_of([(header_at(batch), memoryview(batch)) for batch in batches], **limits)


@pytest.mark.parametrize("codec", list(Codec))
def test_every_codec(codec):
    columns = read(build_batch(RECORDS, codec=codec), build_batch([Record(15, 5, b"x", b"y")], codec=codec))
    assert columns.offset.tolist() == [10, 11, 14, 15]
    assert columns.timestamp.tolist() == [1000, 1001, 1002, 5]
    keys = arrow.spans(pa.binary(), columns.arena, columns.key_at, columns.key_size)
    assert keys.to_pylist() == [b"k", None, b"", b"x"]
    values = arrow.spans(pa.binary(), columns.arena, columns.value_at, columns.value_size)
    assert values.to_pylist() == [b"value", b"", None, b"y"]
    assert arrow.headers(columns).to_pylist() == [
        [{"key": "h", "value": b"1"}, {"key": "", "value": None}],
        None,
        [{"key": "é", "value": b""}],
        None,
    ]


def test_no_batches_are_no_rows():
    columns = read()
    assert len(columns) == 0
    assert arrow.headers(columns).to_pylist() == []


def test_log_append_time_is_one_time_for_a_whole_batch_also_where_rows_are_left_out():
    batches = [
        build_batch(RECORDS, log_append_time=True),
        build_batch([Record(15, 5, None, None), Record(16, 9, None, None)]),
    ]
    columns = read(*batches)
    assert columns.timestamp.tolist() == [1002, 1002, 1002, 5, 9]
    assert columns.is_append_time.tolist() == [True, True, True, False, False]
    columns = read(*batches, first_offset=12, until_offset=16)
    assert columns.offset.tolist() == [14, 15]
    assert columns.is_append_time.tolist() == [True, False]


def test_a_header_whose_name_is_no_utf8_is_shown_as_java_shows_it():
    columns = read(build_batch([Record(0, 0, None, None, (Header("a\udcff", b"x"),))]))
    assert arrow.headers(columns).to_pylist() == [[{"key": "a�", "value": b"x"}]]


def altered(batch, place, value):
    changed = bytearray(batch)
    changed[place] = value
    pack_into(">I", changed, 17, crc32c(bytes(changed[21:])))
    return bytes(changed)


# One record: 0 length, 1 attributes, 2 time, 3 offset, 4 key size, 5 key, 6 value size, 7 value, 8 headers.
ONE = build_batch([Record(0, 0, b"k", b"v")])


@pytest.mark.parametrize(
    ("place", "value", "words"),
    [
        pytest.param(0, 0x00, "record", id="a length of 0"),
        pytest.param(0, 0x01, "record", id="a negative length"),
        pytest.param(0, 0x12, "record", id="longer than the batch"),
        pytest.param(0, 0x0E, "record", id="shorter than its parts"),
        pytest.param(0, 0x80, "record", id="a length that goes on"),
        pytest.param(4, 0x7E, "record", id="a key behind the end"),
        pytest.param(6, 0x7E, "record", id="a value behind the end"),
        pytest.param(6, 0x04, "record", id="a value that leaves no room for headers"),
        pytest.param(-4, 0xFF, "negative", id="a negative number of records"),
        pytest.param(-4, 0x01, "more records", id="more records than bytes"),
        pytest.param(-1, 0x02, "more records", id="one record more than there is"),
    ],
)
def test_corrupt_records_are_refused(place, value, words):
    with pytest.raises(CorruptBatch, match=words):
        read(altered(ONE, HEADER_SIZE + place, value))


@pytest.mark.parametrize("value", [0x01, 0x02, 0x7E, 0x80])
def test_corrupt_headers_are_refused(value):
    columns = read(altered(ONE, HEADER_SIZE + 8, value))
    with pytest.raises(CorruptBatch, match="headers"):
        arrow.headers(columns)


def test_a_wrong_checksum_is_refused():
    batch = bytearray(ONE)
    batch[-1] ^= 1
    with pytest.raises(CorruptBatch, match="checksum"):
        read(bytes(batch))
