"""What the compiled encoders and decoders call: variable-length integers, tagged fields, and the ways to fail.

A decoder has read the first byte of a varint together with the fields before it, so `read_varint` goes on from there;
nearly always that first byte was the whole number and nothing here is called at all.
"""

from collections.abc import Callable, Iterable
from struct import Struct as Layout
from typing import Any

from headrace.protocol.errors import MalformedMessage, NotRepresentable
from headrace.protocol.schema import (
    BOOLEAN,
    FLOAT64,
    INT8,
    INT16,
    INT32,
    INT64,
    UINT16,
    UUID,
    Buffer,
    Primitive,
    RawTag,
)

MAX_STRING_BYTES = 0x7FFF
MAX_TAGS = 1000  # of one struct; Kafka's own have a handful
_MAX_UINT32 = 0xFFFF_FFFF
_LAST_SHIFT = 28  # of the fifth byte: a varint of the protocol has at most 32 bits

# One-byte varints, by value: most lengths and counts are in here.
SHORT_VARINTS = tuple(bytes((value,)) for value in range(0x80))


class Flaw(Exception):
    """What is wrong with the bytes. The decoder knows the place and makes a `MalformedMessage` of it: none gets out."""


def read_varint(data: Buffer, position: int, first: int) -> tuple[int, int]:
    """Finish an unsigned varint whose `first` byte has been read: the value, and the position after it."""
    value = first & 0x7F
    shift = 7
    while True:
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            break
        if shift == _LAST_SHIFT:
            raise Flaw("a varint does not end")
        shift += 7
    if value > _MAX_UINT32:
        raise Flaw("a varint has more than 32 bits")
    return value, position


def read_string_length(data: Buffer, position: int, first: int) -> tuple[int, int]:
    """As `read_varint`, for the length of a compact string, which stores one more than the length."""
    value, position = read_varint(data, position, first)
    if value > MAX_STRING_BYTES + 1:
        raise Flaw(f"a string of {value - 1} bytes is over the limit of {MAX_STRING_BYTES}")
    return value, position


def varint(value: int) -> bytes:
    if value < 0x80:
        return SHORT_VARINTS[value]
    if value > _MAX_UINT32:
        raise NotRepresentable(f"{value} does not fit a varint of 32 bits")
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def string_length(length: int) -> bytes:
    """The varint of a compact string's length, given as it is stored: one more than the bytes it has."""
    if length > MAX_STRING_BYTES + 1:
        raise NotRepresentable(f"a string of {length - 1} bytes is over the limit of {MAX_STRING_BYTES}")
    return varint(length)


def read_tag(data: Buffer, position: int, size: int) -> tuple[int, int, int]:
    """The head of a tagged field: its tag, the position of its value, and where that value must end."""
    tag = data[position]
    position += 1
    if tag > 0x7F:
        tag, position = read_varint(data, position, tag)
    length = data[position]
    position += 1
    if length > 0x7F:
        length, position = read_varint(data, position, length)
    if length > size - position:
        raise overrun(length, size - position)
    return tag, position, position + length


def read_tag_count(data: Buffer, position: int, size: int, first: int) -> tuple[int, int]:
    """The number of tagged fields, whose `first` byte has been read; each has two bytes at least."""
    count = first
    if count > 0x7F:
        count, position = read_varint(data, position, first)
    if count * 2 > size - position:
        raise crowd(count, size - position)
    if count > MAX_TAGS:
        raise too_many(MAX_TAGS)
    return count, position


def read_unknown_tags(data: Buffer, position: int, size: int, first: int) -> tuple[tuple[RawTag, ...], int]:
    """All tagged fields of a struct that declares none."""
    count, position = read_tag_count(data, position, size, first)
    tags = []
    for _ in range(count):
        tag, position, end = read_tag(data, position, size)
        tags.append(RawTag(tag, bytes(data[position:end])))
        position = end
    return tuple(tags), position


def write_tags(write: Callable[[bytes], object], known: list[RawTag], unknown: tuple[RawTag, ...]) -> None:
    """All tagged fields of a struct, in the order of their tags as KIP-482 asks."""
    tags: Iterable[RawTag] = known
    if unknown:
        taken = {tag for tag, _ in known}
        for tag, _ in unknown:
            if tag in taken:
                raise NotRepresentable(f"unknown_tags holds tag {tag}, which is a field of this version")
        tags = sorted((*known, *unknown), key=_tag_of)
    write(varint(len(known) + len(unknown)))
    for tag, data in tags:
        write(varint(tag))
        write(varint(len(data)))
        write(data)


def _tag_of(tag: RawTag) -> int:
    return tag.tag


def overrun(length: int, left: int) -> Flaw:
    """A length that is negative, or more than there are bytes left; null is -1 once a compact length is decoded."""
    if length == -1:
        return Flaw("it is null, which it may not be")
    if length < 0:
        return Flaw(f"its length is {length}")
    return Flaw(f"its length is {length}, and {left} bytes are left")


def crowd(count: int, left: int) -> Flaw:
    """An array's count that is negative, or more than the bytes left can hold."""
    if count == -1:
        return Flaw("it is null, which it may not be")
    if count < 0:
        return Flaw(f"its count is {count}")
    return Flaw(f"its count is {count}, and {left} bytes are left")


def too_many(limit: int) -> Flaw:
    return Flaw(f"there are more than {limit} entries, the limit")


class _Rows(dict[int, Callable[..., Any]]):
    """Packs or unpacks so many equal fixed-size items in a row; made when first needed, long rows are not kept."""

    _KEPT = 64

    def __init__(self, kind: Primitive[Any], method: str) -> None:
        super().__init__()
        self._letters = kind.format
        self._method = method

    def __missing__(self, count: int) -> Callable[..., Any]:
        letters = self._letters
        layout = Layout(f">{count}{letters}" if len(letters) == 1 else f">{letters * count}")
        made: Callable[..., Any] = getattr(layout, self._method)
        if count <= self._KEPT:
            self[count] = made
        return made


_FIXED: tuple[Primitive[Any], ...] = (BOOLEAN, INT8, INT16, UINT16, INT32, INT64, FLOAT64, UUID)
PACK_ROW = {kind: _Rows(kind, "pack") for kind in _FIXED}
UNPACK_ROW = {kind: _Rows(kind, "unpack_from") for kind in _FIXED}


def bad_uuid(value: Any) -> NotRepresentable:
    """A uuid that is not sixteen bytes: `struct` would pad or cut it in silence."""
    return NotRepresentable(f"a uuid is 16 bytes, not {value!r}")


def malformed(error: Exception, place: str, position: int) -> MalformedMessage:
    """Say where a decoder found a flaw, or fell off the end of the bytes."""
    if isinstance(error, Flaw):
        return MalformedMessage(f"{place}: {error}", position)
    if isinstance(error, UnicodeDecodeError):
        return MalformedMessage(f"{place}: it is not UTF-8", position)
    return MalformedMessage(f"{place}: the bytes end here", position)


def not_representable(error: Exception, place: str) -> NotRepresentable:
    """Say where an encoder met a value that it cannot write."""
    return NotRepresentable(f"{place}: {error}")
