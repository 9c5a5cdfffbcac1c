"""The header: where each field stands, what it says, and how batches follow each other."""

import pytest

from headrace.records import (
    HEADER_SIZE,
    BatchHeader,
    CorruptBatch,
    InvalidRecord,
    Record,
    UnsupportedFormat,
    build_batch,
    crc_of,
    header_at,
    headers_in,
    prefix,
)
from headrace.records.batch import MAGIC, assemble, place_at

HEADER = BatchHeader(
    base_offset=0x0102030405060708,
    length=49,
    leader_epoch=0x11121314,
    magic=2,
    crc=0,
    attributes=0,
    last_offset_delta=0x21222324,
    base_timestamp=0x3132333435363738,
    max_timestamp=0x4142434445464748,
    producer_id=0x5152535455565758,
    producer_epoch=0x6162,
    base_sequence=0x71727374,
    record_count=0x0A0B0C0D,
)


def test_every_field_stands_where_the_format_says():
    batch = assemble(HEADER, b"")
    assert len(batch) == HEADER_SIZE == 61
    assert batch[:17].hex() == "0102030405060708" + "00000031" + "11121314" + "02"
    assert batch[21:43].hex(" ", 2) == "0000 2122 2324 3132 3334 3536 3738 4142 4344 4546 4748"
    assert batch[43:].hex(" ", 2) == "5152 5354 5556 5758 6162 7172 7374 0a0b 0c0d"
    assert header_at(batch) == HEADER._replace(crc=crc_of(batch))
    assert int.from_bytes(batch[17:21], "big") == crc_of(batch)


def test_a_header_is_read_at_a_position_in_any_buffer():
    batch = assemble(HEADER, b"")
    for kind in (bytes, bytearray, memoryview):
        assert header_at(kind(b"xyz" + batch), 3) == header_at(batch)
    assert place_at(b"xyz" + batch, 3) == (HEADER.base_offset + HEADER.last_offset_delta, 61)


def test_the_prefix_can_be_rewritten_without_touching_the_checksum():
    batch = build_batch([Record(0, 5, b"k", b"v")])
    moved = prefix(1000, header_at(batch).length, 7) + batch[16:]
    header = header_at(moved)
    assert (header.base_offset, header.leader_epoch, header.last_offset, header.next_offset) == (1000, 7, 1000, 1001)
    assert header.crc == crc_of(moved) == crc_of(batch)


@pytest.mark.parametrize(
    ("attributes", "true"),
    [
        (0x00, set()),
        (0x04, set()),
        (0x08, {"is_log_append_time"}),
        (0x10, {"is_transactional"}),
        (0x20, {"is_control"}),
        (0x38, {"is_log_append_time", "is_transactional", "is_control"}),
    ],
)
def test_attributes(attributes, true):
    header = HEADER._replace(attributes=attributes)
    names = ("is_log_append_time", "is_transactional", "is_control")
    assert {name for name in names if getattr(header, name)} == true
    assert header.codec == attributes & 7
    assert header.delete_horizon_ms is None


def test_the_delete_horizon_stands_in_the_base_timestamp():
    assert HEADER._replace(attributes=0x40, base_timestamp=99).delete_horizon_ms == 99


@pytest.mark.parametrize(
    ("base", "delta", "last"), [(0, 4, 4), (-1, 4, -1), (2**31 - 3, 2, 2**31 - 1), (2**31 - 3, 3, 0), (2**31 - 1, 9, 8)]
)
def test_the_last_sequence_wraps_at_two_to_the_31(base, delta, last):
    assert HEADER._replace(base_sequence=base, last_offset_delta=delta).last_sequence == last


def test_batches_are_walked_and_an_unfinished_one_at_the_end_is_left_out():
    one, two = build_batch([Record(0, 1, None, b"a")]), build_batch([Record(0, 1, None, b"bcd")])
    whole = [(0, header_at(one)), (len(one), header_at(two))]
    assert list(headers_in(one + two)) == whole
    assert list(headers_in(b"__" + one, 2)) == [(2, header_at(one))]
    for cut in range(1, len(two)):
        assert list(headers_in((one + two)[:-cut])) == whole[:1], cut
    assert list(headers_in(b"")) == []


def test_a_length_that_cannot_be_is_an_error_with_its_position():
    good = build_batch([Record(0, 1, None, b"a")])
    bad = bytearray(good)
    bad[8:12] = (48).to_bytes(4, "big")
    with pytest.raises(CorruptBatch, match=rf"at byte {len(good)}: length 48 is shorter than a header") as caught:
        list(headers_in(good + bad))
    assert caught.value.position == len(good)


@pytest.mark.parametrize("magic", [0, 1])
def test_old_formats_are_refused_by_name(magic):
    batch = bytearray(build_batch([Record(0, 1, None, b"a")]))
    batch[16] = magic
    with pytest.raises(UnsupportedFormat, match=rf"has format {magic}, only format 2 .*: send with a client") as caught:
        list(headers_in(batch))
    assert caught.value.magic == magic


@pytest.mark.parametrize("magic", [3, 0x7F, 0xFF])
def test_formats_that_do_not_exist_are_corruption(magic):
    batch = bytearray(build_batch([Record(0, 1, None, b"a")]))
    batch[16] = magic
    with pytest.raises(CorruptBatch, match="does not exist"):
        list(headers_in(batch))


@pytest.mark.parametrize(
    "wrong",
    [{"max_timestamp": 2**63}, {"base_sequence": 2**31}, {"producer_epoch": 2**15}, {"base_timestamp": -(2**64)}],
)
def test_a_number_that_does_not_fit_its_field_is_refused_as_a_record_error(wrong):
    """Compaction adds timestamps that a client made up: the sum may be too large, and must not end a thread."""
    with pytest.raises(InvalidRecord, match="too large for a batch's header"):
        assemble(HEADER._replace(**wrong), b"")


def test_assembling_sets_length_checksum_and_format_whatever_the_header_said():
    batch = assemble(HEADER._replace(length=1, crc=2, magic=9), b"body")
    header = header_at(batch)
    assert (header.size, header.length, header.magic) == (len(batch), 53, MAGIC)
    assert header.crc == crc_of(batch)
