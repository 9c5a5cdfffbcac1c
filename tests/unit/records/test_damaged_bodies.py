"""Whatever stands in a batch's body, decoding it ends, and ends in records or in a `RecordsError`."""

from contextlib import suppress

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from headrace.records import (
    HEADER_SIZE,
    Codec,
    CorruptBatch,
    Header,
    Record,
    build_batch,
    header_at,
    records_of,
)
from headrace.records.batch import assemble
from headrace.records.record import walk, write_varint

BATCHES = {
    codec: build_batch(
        [
            Record(0, 1_700_000_000_000, b"key-1", b"value-1" * 20, (Header("a", b"1"), Header("b", None))),
            Record(1, 1_700_000_000_900, None, None),
            Record(2, 1_600_000_000_000, b"", b"", (Header("größe", b""),)),
            Record(3, 1_700_000_000_000, b"k" * 100, b"v" * 300),
        ],
        codec=codec,
    )
    for codec in Codec
}


def _survives(batch: bytes) -> None:
    with suppress(CorruptBatch):
        assert all(isinstance(record, Record) for record in records_of(batch))


@given(st.sampled_from(list(Codec)), st.data())
def test_flipped_bytes(codec, data):
    batch = bytearray(BATCHES[codec])
    for _ in range(data.draw(st.integers(1, 4))):
        batch[data.draw(st.integers(HEADER_SIZE, len(batch) - 1))] ^= data.draw(st.integers(1, 255))
    _survives(bytes(batch))


@pytest.mark.parametrize("codec", Codec)
def test_truncated_bodies_are_corrupt(codec):
    batch = BATCHES[codec]
    for cut in range(HEADER_SIZE, len(batch)):
        try:
            found = records_of(batch[:cut])
        except CorruptBatch:
            continue
        # Only a trailer that carries no data (an end mark, a checksum) may be missing unnoticed.
        assert codec is not Codec.NONE
        assert found == records_of(batch)
        assert len(batch) - cut <= 8


@given(st.binary(max_size=60), st.integers(-3, 5))
@example(b"\x0e\x00\x00\x00\x01\x01\x80", 1)  # headers begin a varint that does not end
def test_any_bytes_for_a_body(body, count):
    header = header_at(BATCHES[Codec.NONE])
    _survives(assemble(header._replace(record_count=count), body))


@given(st.data())
def test_one_byte_changed_everywhere_in_a_record(data):
    batch = bytearray(BATCHES[Codec.NONE])
    at = data.draw(st.integers(HEADER_SIZE, len(batch) - 1))
    batch[at] = data.draw(st.integers(0, 255))
    _survives(bytes(batch))


def _record(inner: bytes) -> bytes:
    out = bytearray()
    write_varint(out, len(inner))
    return bytes(out) + inner


def _decode(inner: bytes) -> list[Record]:
    header = header_at(BATCHES[Codec.NONE])
    return records_of(assemble(header._replace(record_count=1), _record(inner)))


PLAIN = b"\x00\x00\x00\x01\x01"  # attributes, timestamp delta, offset delta, null key, null value


@pytest.mark.parametrize(
    ("inner", "reason"),
    [
        (PLAIN + b"\x01", "announces -1 headers"),
        (PLAIN + b"\x02\x01\x01", "name has -1 bytes"),
        # A name of -2 bytes would step back to its own length, 2^62 times.
        (PLAIN + b"\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01" + b"\x03\x03\x03", "name has -2 bytes"),
        (PLAIN + b"\x02\x02a\x64", "headers end"),
        (PLAIN + b"\x02\x64a", "do not decode"),
        (PLAIN + b"\x04\x02a\x00", "do not decode"),
        (PLAIN + b"\x00\x00", "headers end -1 bytes"),
        (PLAIN + b"\x02\x02a\x00\x00", "headers end -1 bytes"),
        (b"\x00\x00\x00\x64k\x01\x00", "cut short|longer than its record"),
        (b"\x00\x00\x00\x01\x64v\x00", "longer than its record"),
        (b"\x00" + b"\xff" * 9 + b"\x02\x00\x01\x01\x00", "more than 64 bits"),
        (b"\x00" + b"\xff" * 11, "more than ten bytes"),
        (b"", "cut short|longer than its record"),
    ],
)
def test_each_way_to_lie_about_a_record(inner, reason):
    with pytest.raises(CorruptBatch, match=reason):
        _decode(inner)


def test_the_number_of_records_is_kept_to():
    body = BATCHES[Codec.NONE][HEADER_SIZE:]
    assert len(list(walk(body, 4))) == 4
    with pytest.raises(CorruptBatch, match="bytes follow the last record"):
        list(walk(body, 3))
    with pytest.raises(CorruptBatch, match="cut short"):
        list(walk(body, 5))
    with pytest.raises(CorruptBatch, match=r"a record of -1 bytes does not fit"):
        list(walk(b"\x01", 1))
    with pytest.raises(CorruptBatch, match=r"at byte 0: a record of 50 bytes does not fit"):
        list(walk(b"\x64\x00", 1))
    assert list(walk(b"", 0)) == []
