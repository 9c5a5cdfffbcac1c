"""Strings out of JSON, their escapes resolved. Compiled."""

import numpy as np
from numpy.typing import NDArray

from headrace.jit import compiled
from headrace.pipelines.columns.json_grammar import BACKSLASH, BROKEN, NINE, ZERO
from headrace.pipelines.columns.walk import Bytes, Longs

# What was found for a field. A value is a number (NUMBER), or at a place: as it stands (SPAN), with escapes to be
# resolved (ESCAPED), or as digits that want an exact reading (DIGITS).
ABSENT, NUMBER, SPAN, ESCAPED, DIGITS = range(5)


@compiled
def hex_at(arena: Bytes, at: int) -> int:
    """The four hexadecimal digits of an escape."""
    value = 0
    for step in range(4):
        byte = arena[at + step]
        digit = byte - ZERO if byte <= NINE else (byte | 0x20) - 0x61 + 10
        value = value * 16 + digit
    return value


@compiled
def resolve_escapes(arena: Bytes, at: int, size: int, out: Bytes, to: int) -> int:
    """Write a string's text without its escapes; the place behind it, or -1 for half a surrogate pair."""
    end = at + size
    while at < end:
        byte = arena[at]
        if byte != BACKSLASH:
            out[to] = byte
            to += 1
            at += 1
            continue
        kind = arena[at + 1]
        at += 2
        if kind != 0x75:
            if kind == 0x62:
                out[to] = 0x08
            elif kind == 0x66:
                out[to] = 0x0C
            elif kind == 0x6E:
                out[to] = 0x0A
            elif kind == 0x72:
                out[to] = 0x0D
            elif kind == 0x74:
                out[to] = 0x09
            else:
                out[to] = kind
            to += 1
            continue
        point = hex_at(arena, at)
        at += 4
        if 0xD800 <= point <= 0xDFFF:
            if point > 0xDBFF or at + 6 > end or arena[at] != BACKSLASH or arena[at + 1] != 0x75:
                return BROKEN
            low = hex_at(arena, at + 2)
            if low < 0xDC00 or low > 0xDFFF:
                return BROKEN
            point = 0x10000 + ((point - 0xD800) << 10) + (low - 0xDC00)
            at += 6
        if point < 0x80:
            out[to] = point
            to += 1
        elif point < 0x800:
            out[to] = 0xC0 | (point >> 6)
            out[to + 1] = 0x80 | (point & 0x3F)
            to += 2
        elif point < 0x10000:
            out[to] = 0xE0 | (point >> 12)
            out[to + 1] = 0x80 | ((point >> 6) & 0x3F)
            out[to + 2] = 0x80 | (point & 0x3F)
            to += 3
        else:
            out[to] = 0xF0 | (point >> 18)
            out[to + 1] = 0x80 | ((point >> 12) & 0x3F)
            out[to + 2] = 0x80 | ((point >> 6) & 0x3F)
            out[to + 3] = 0x80 | (point & 0x3F)
            to += 4
    return to


@compiled
def gather_text(
    arena: Bytes, at: Longs, sizes: Longs, found: Bytes, ends: NDArray[np.int32], out: Bytes,
    broken: Bytes,
) -> int:  # fmt: skip
    """Copy each record's text one behind the other, escapes resolved; the bytes written. Half a pair marks a record."""
    to = 0
    ends[0] = 0
    for row in range(at.shape[0]):
        if found[row] == SPAN:
            source = at[row]
            for step in range(sizes[row]):
                out[to + step] = arena[source + step]
            to += sizes[row]
        elif found[row] == ESCAPED:
            behind = resolve_escapes(arena, at[row], sizes[row], out, to)
            if behind < 0:
                broken[row] = 1
            else:
                to = behind
        ends[row + 1] = to
    return to
