"""Variable-length integers and tagged fields, by themselves."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.protocol.errors import NotRepresentable
from headrace.protocol.primitives import Flaw, read_unknown_tags, read_varint, string_length, varint, write_tags
from headrace.protocol.schema import RawTag

# From the protocol's description: seven bits a byte, the lowest first, the high bit for "more follows".
VARINTS = {
    0: b"\x00",
    1: b"\x01",
    127: b"\x7f",
    128: b"\x80\x01",
    300: b"\xac\x02",
    16383: b"\xff\x7f",
    16384: b"\x80\x80\x01",
    2**31 - 1: b"\xff\xff\xff\xff\x07",
    2**32 - 1: b"\xff\xff\xff\xff\x0f",
}


@pytest.mark.parametrize("value", VARINTS)
def test_the_bytes_of_a_varint(value):
    assert varint(value) == VARINTS[value]


@given(st.integers(128, 2**32 - 1), st.binary(max_size=3))
def test_a_varint_is_read_as_it_was_written_and_no_further(value, after):
    data = varint(value)
    assert read_varint(data + after, 1, data[0]) == (value, len(data))


def test_what_no_varint_can_carry():
    with pytest.raises(NotRepresentable, match="4294967296"):
        varint(2**32)
    with pytest.raises(NotRepresentable, match="32768 bytes is over the limit of 32767"):
        string_length(32769)
    assert string_length(32768) == b"\x80\x80\x02"


def test_a_varint_that_is_no_number():
    with pytest.raises(Flaw, match="does not end"):
        read_varint(b"\xff\xff\xff\xff\xff\x01", 1, 0xFF)
    with pytest.raises(Flaw, match="more than 32 bits"):
        read_varint(b"\xff\xff\xff\xff\x10", 1, 0xFF)
    with pytest.raises(IndexError):  # the decoder says where
        read_varint(b"\xff", 1, 0xFF)


def test_tags_are_written_in_order_and_read_back():
    written = []
    write_tags(written.append, [RawTag(0, b"zero"), RawTag(300, b"")], (RawTag(1, b"one"),))
    data = b"".join(written)
    assert data == b"\x03" + b"\x00\x04zero" + b"\x01\x03one" + b"\xac\x02\x00"
    tags, end = read_unknown_tags(data, 1, len(data), data[0])
    assert tags == (RawTag(0, b"zero"), RawTag(1, b"one"), RawTag(300, b""))
    assert end == len(data)
