"""The walk over protobuf's wire format for the scalar fields of a message. Compiled; arrays in, arrays out.

`fields` has a row per field of the message that matters, ascending by number: its number, the wire type it is written
with, how its value is read, its leaf (-1: nobody wants it), and its oneof (-1: none). What stands twice counts once,
the last time; a field of another wire type than told is nobody's, as protobuf has it.
"""

import numpy as np

from headrace.jit import compiled
from headrace.pipelines.columns.json_grammar import utf8_ok
from headrace.pipelines.columns.walk import Bytes, Longs

VARINT, FIXED64, DELIMITED, START_GROUP, END_GROUP, FIXED32 = range(6)
# How a value is read: all 64 bits; the low 32 with or without a sign; zig-zag; whether it is not 0; bytes; text.
BITS64, SIGNED32, UNSIGNED32, ZIGZAG64, ZIGZAG32, TRUTH, BLOB, TEXT, IGNORED = range(9)
FINE, CUT_SHORT, BAD_TAG, BAD_GROUP, NO_TEXT = range(5)
_DEEPEST = 100

REASONS = {
    CUT_SHORT: "the message is cut short",
    BAD_TAG: "the bytes are not protobuf: a field's number or wire type cannot be",
    BAD_GROUP: "the bytes are not protobuf: a group does not end where it should",
    NO_TEXT: "field {name!r} is a string that is not valid UTF-8",
}


@compiled
def unsigned_at(arena: Bytes, at: int, end: int) -> tuple[int, int]:
    """A varint's 64 bits, and the place behind it; -1 for the place where it does not end."""
    if at < end and arena[at] < 0x80:  # most are of one byte
        return int(arena[at]), at + 1
    value = np.uint64(0)
    shift = np.uint64(0)
    while at < end:
        byte = arena[at]
        at += 1
        value |= np.uint64(byte & 0x7F) << shift
        if byte < 0x80:
            if shift == np.uint64(63) and byte > 1:
                break
            return int(np.int64(value)), at
        shift += np.uint64(7)
        if shift > np.uint64(63):
            break
    return 0, -1


@compiled
def tag_at(arena: Bytes, at: int, end: int) -> tuple[int, int, int]:
    """A field's number, its wire type, and the place behind; a number of 0 where it is none."""
    tag, behind = unsigned_at(arena, at, end)
    if behind < 0 or behind - at > 5 or tag < 0 or tag > 0xFFFFFFFF:
        return 0, 0, -1
    return tag >> 3, tag & 7, behind


@compiled
def scalar_end(arena: Bytes, at: int, end: int, wire: int) -> int:
    """The place behind a value that is no group; -1 where it is cut short."""
    if wire == VARINT:
        _, behind = unsigned_at(arena, at, end)
        return behind
    if wire == DELIMITED:
        size, behind = unsigned_at(arena, at, end)
        if behind < 0 or size < 0 or size > end - behind:
            return -1
        return behind + size
    size = 8 if wire == FIXED64 else 4
    return at + size if size <= end - at else -1


@compiled
def group_end(arena: Bytes, at: int, end: int, number: int) -> tuple[int, int]:
    """The place behind a group whose start tag was read, and a fault."""
    open_groups = np.zeros(_DEEPEST, np.int64)
    open_groups[0] = number
    depth = 1
    while depth > 0:
        if at >= end:
            return at, BAD_GROUP
        number, wire, at = tag_at(arena, at, end)
        if number == 0 or wire > FIXED32:
            return at, BAD_TAG
        if wire == START_GROUP:
            if depth == _DEEPEST:
                return at, BAD_GROUP
            open_groups[depth] = number
            depth += 1
        elif wire == END_GROUP:
            depth -= 1
            if open_groups[depth] != number:
                return at, BAD_GROUP
        else:
            at = scalar_end(arena, at, end, wire)
            if at < 0:
                return at, CUT_SHORT
    return at, FINE


@compiled
def field_numbered(fields: Longs, number: int, likely: int) -> int:
    """Which field has this number, looked for first at `likely`; -1 for none."""
    count = fields.shape[0]
    if likely < count and fields[likely, 0] == number:
        return likely
    low, high = 0, count
    while low < high:
        middle = (low + high) // 2
        if fields[middle, 0] < number:
            low = middle + 1
        else:
            high = middle
    return low if low < count and fields[low, 0] == number else -1


@compiled
def number_of(bits: int, reading: int) -> int:
    """What a varint or fixed value is worth."""
    if reading == SIGNED32:
        return int(np.int32(bits & 0xFFFFFFFF))
    if reading == UNSIGNED32:
        return bits & 0xFFFFFFFF
    if reading == TRUTH:
        return int(bits != 0)
    if reading == ZIGZAG32:
        bits &= 0xFFFFFFFF
        return (bits >> 1) ^ -(bits & 1)
    if reading == ZIGZAG64:
        return int(np.int64(np.uint64(bits) >> np.uint64(1))) ^ -(bits & 1)
    return bits


@compiled
def walk_protobuf(
    arena: Bytes,
    value_at: Longs,
    value_size: Longs,
    fields: Longs,
    found: Bytes,
    numbers: Longs,
    at_of: Longs,
    size_of: Longs,
    fault: Bytes,
    where: Longs,
) -> int:
    """Read every message that is not null; the number of rows with a fault."""
    faults = 0
    for row in range(value_at.shape[0]):
        if value_size[row] < 0:
            continue
        at = value_at[row]
        end = at + value_size[row]
        likely = 0
        field = -1
        code = FINE
        while at < end:
            number, wire, at = tag_at(arena, at, end)
            if number == 0 or wire > FIXED32:
                code = BAD_TAG
                break
            if wire == END_GROUP:
                code = BAD_GROUP
                break
            if wire == START_GROUP:
                at, code = group_end(arena, at, end, number)
                if code != FINE:
                    break
                continue
            bits = 0
            start = at
            if wire == VARINT:
                bits, at = unsigned_at(arena, at, end)
            elif wire == DELIMITED:
                bits, start = unsigned_at(arena, at, end)
                at = start + bits if start >= 0 and 0 <= bits <= end - start else -1
            else:
                at = scalar_end(arena, at, end, wire)
            if at < 0:
                code = CUT_SHORT
                break
            field = field_numbered(fields, number, likely)
            if field < 0 or fields[field, 1] != wire:
                continue
            likely = field + 1
            reading, leaf, oneof = fields[field, 2], fields[field, 3], fields[field, 4]
            if oneof >= 0:  # the last member that stands is the one that is set
                for other in range(fields.shape[0]):
                    if fields[other, 4] == oneof and fields[other, 3] >= 0:
                        found[fields[other, 3], row] = 0
            if wire == DELIMITED:
                if reading == TEXT and not utf8_ok(arena, start, at):
                    code = NO_TEXT
                    break
                if leaf >= 0:
                    at_of[leaf, row] = start
                    size_of[leaf, row] = bits
                    found[leaf, row] = 1
            elif leaf >= 0:
                if wire != VARINT:
                    for place in range(at - start):
                        bits |= int(arena[start + place]) << (8 * place)
                numbers[leaf, row] = number_of(bits, reading)
                found[leaf, row] = 1
        if code != FINE:
            faults += 1
            fault[row] = code
            where[row] = max(field, 0)
            for leaf in range(found.shape[0]):
                found[leaf, row] = 0
    return faults
