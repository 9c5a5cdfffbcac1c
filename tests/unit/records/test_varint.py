"""Zig-zag varints: the smallest, the largest, and what is none."""

import pytest

from headrace.records import InvalidRecord
from headrace.records.record import read_varint, write_varint


@pytest.mark.parametrize(
    ("value", "encoded"),
    [
        (0, "00"),
        (-1, "01"),
        (1, "02"),
        (63, "7e"),
        (-64, "7f"),
        (64, "8001"),
        (-65, "8101"),
        (300, "d804"),
        (2**31 - 1, "feffffff0f"),
        (-(2**31), "ffffffff0f"),
        (2**63 - 1, "feffffffffffffffff01"),
        (-(2**63), "ffffffffffffffffff01"),
    ],
)
def test_a_value_is_these_bytes_and_the_bytes_are_the_value(value, encoded):
    out = bytearray(b"before")
    write_varint(out, value)
    assert out[6:].hex() == encoded
    assert read_varint(bytes(out) + b"behind", 6) == (value, len(out))


@pytest.mark.parametrize("value", [2**63, -(2**63) - 1, 2**80])
def test_what_does_not_fit_into_64_bits_is_not_written(value):
    out = bytearray()
    with pytest.raises(InvalidRecord, match=r"does not fit into 64 bits: check the record's offset and timestamp"):
        write_varint(out, value)
    assert out == b""


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        ("80" * 10 + "00", "more than ten bytes"),
        ("ff" * 10, "more than ten bytes"),
        ("ff" * 9 + "02", "more than 64 bits"),
        ("80" * 9 + "7f", "more than 64 bits"),
    ],
)
def test_more_than_64_bits_are_no_varint(data, reason):
    with pytest.raises(ValueError, match=reason):
        read_varint(bytes.fromhex(data), 0)


@pytest.mark.parametrize("data", [b"", b"\x80", b"\xff" * 9])
def test_an_end_in_the_middle_is_an_index_error(data):
    with pytest.raises(IndexError):
        read_varint(data, 0)
