"""JSON's grammar: where a string, a number, a value ends. Compiled steps of the walk in `json_walk`.

Strict: what these accept, every JSON reader accepts. Each answers -1 where the bytes are no JSON, and none reads at or
behind its `end`.
"""

import numpy as np

from headrace.jit import compiled
from headrace.pipelines.columns.walk import Bytes

QUOTE, BACKSLASH, COMMA, COLON = 0x22, 0x5C, 0x2C, 0x3A
OPEN_OBJECT, CLOSE_OBJECT, OPEN_LIST, CLOSE_LIST = 0x7B, 0x7D, 0x5B, 0x5D
MINUS, PLUS, DOT, ZERO, NINE = 0x2D, 0x2B, 0x2E, 0x30, 0x39
BROKEN = -1
_DEEPEST = 64
_MOST_DIGITS = 4300  # Python, and so the exact reader, takes no longer whole number


@compiled
def skip_space(arena: Bytes, at: int, end: int) -> int:
    """The first place that is no white space."""
    while at < end and (arena[at] == 0x20 or arena[at] == 0x0A or arena[at] == 0x0D or arena[at] == 0x09):
        at += 1
    return at


@compiled
def is_hex(byte: int) -> bool:
    """Whether the byte is a hexadecimal digit."""
    return ZERO <= byte <= NINE or 0x41 <= byte <= 0x46 or 0x61 <= byte <= 0x66


@compiled
def utf8_ok(arena: Bytes, at: int, end: int) -> bool:
    """Whether the bytes are UTF-8 as Unicode defines it: no overlong form, no surrogate, nothing above U+10FFFF."""
    while at < end:
        lead = arena[at]
        if lead < 0x80:
            at += 1
            continue
        if 0xC2 <= lead <= 0xDF:
            more, low, high = 1, 0x80, 0xBF
        elif lead == 0xE0:
            more, low, high = 2, 0xA0, 0xBF
        elif lead == 0xED:
            more, low, high = 2, 0x80, 0x9F
        elif 0xE1 <= lead <= 0xEF:
            more, low, high = 2, 0x80, 0xBF
        elif lead == 0xF0:
            more, low, high = 3, 0x90, 0xBF
        elif 0xF1 <= lead <= 0xF3:
            more, low, high = 3, 0x80, 0xBF
        elif lead == 0xF4:
            more, low, high = 3, 0x80, 0x8F
        else:
            return False
        if at + more >= end or arena[at + 1] < low or arena[at + 1] > high:
            return False
        for step in range(2, more + 1):
            if arena[at + step] < 0x80 or arena[at + step] > 0xBF:
                return False
        at += more + 1
    return True


@compiled
def string_end(arena: Bytes, at: int, end: int) -> tuple[int, bool]:
    """The closing quote of a string whose inside begins at `at`, and whether it has escapes; -1 where it is broken."""
    start = at
    escaped = False
    wide = False
    while at < end:
        byte = arena[at]
        if byte == QUOTE:
            if wide and not utf8_ok(arena, start, at):
                return BROKEN, escaped
            return at, escaped
        if byte < 0x20:
            return BROKEN, escaped
        if byte == BACKSLASH:
            escaped = True
            at += 1
            if at >= end:
                return BROKEN, escaped
            kind = arena[at]
            if kind == 0x75:  # \u and four digits
                if at + 4 >= end:
                    return BROKEN, escaped
                for step in range(1, 5):
                    if not is_hex(arena[at + step]):
                        return BROKEN, escaped
                at += 4
            elif kind not in (QUOTE, BACKSLASH, 0x2F, 0x62, 0x66, 0x6E, 0x72, 0x74):
                return BROKEN, escaped
        elif byte >= 0x80:
            wide = True
        at += 1
    return BROKEN, escaped


@compiled
def number_end(arena: Bytes, at: int, end: int) -> int:
    """The place behind a number by JSON's grammar; -1 where it is none."""
    if at < end and arena[at] == MINUS:
        at += 1
    start = at
    while at < end and ZERO <= arena[at] <= NINE:
        at += 1
    if at == start or (arena[start] == ZERO and at > start + 1) or at - start > _MOST_DIGITS:
        return BROKEN
    if at < end and arena[at] == DOT:
        at += 1
        start = at
        while at < end and ZERO <= arena[at] <= NINE:
            at += 1
        if at == start:
            return BROKEN
    if at < end and (arena[at] == 0x65 or arena[at] == 0x45):
        at += 1
        if at < end and (arena[at] == PLUS or arena[at] == MINUS):
            at += 1
        start = at
        while at < end and ZERO <= arena[at] <= NINE:
            at += 1
        if at == start:
            return BROKEN
    return at


@compiled
def word_end(arena: Bytes, at: int, end: int) -> int:
    """The place behind true, false or null; -1 where it is none of them."""
    if at + 4 <= end:
        a, b, c, d = arena[at], arena[at + 1], arena[at + 2], arena[at + 3]
        if a == 0x74 and b == 0x72 and c == 0x75 and d == 0x65:
            return at + 4
        if a == 0x6E and b == 0x75 and c == 0x6C and d == 0x6C:
            return at + 4
        if at + 5 <= end and a == 0x66 and b == 0x61 and c == 0x6C and d == 0x73 and arena[at + 4] == 0x65:
            return at + 5
    return BROKEN


@compiled
def scalar_end(arena: Bytes, at: int, end: int) -> int:
    """The place behind a value that is no object and no list."""
    byte = arena[at]
    if byte == QUOTE:
        closing, _ = string_end(arena, at + 1, end)
        return closing + 1 if closing >= 0 else BROKEN
    if byte == MINUS or ZERO <= byte <= NINE:
        return number_end(arena, at, end)
    return word_end(arena, at, end)


@compiled
def value_end(arena: Bytes, at: int, end: int) -> int:
    """The place behind any value, its inside checked; -1 where it is broken or nested deeper than 64."""
    if at >= end:
        return BROKEN
    if arena[at] != OPEN_OBJECT and arena[at] != OPEN_LIST:
        return scalar_end(arena, at, end)
    is_object = np.zeros(_DEEPEST, np.bool_)
    depth = 0
    before_first = True
    while True:
        # Here a value, a key, or a closing bracket is due.
        at = skip_space(arena, at, end)
        if at >= end:
            return BROKEN
        byte = arena[at]
        if depth > 0 and before_first and byte == (CLOSE_OBJECT if is_object[depth - 1] else CLOSE_LIST):
            at += 1
            depth -= 1
        else:
            if depth > 0 and is_object[depth - 1]:
                if byte != QUOTE:
                    return BROKEN
                closing, _ = string_end(arena, at + 1, end)
                if closing < 0:
                    return BROKEN
                at = skip_space(arena, closing + 1, end)
                if at >= end or arena[at] != COLON:
                    return BROKEN
                at = skip_space(arena, at + 1, end)
                if at >= end:
                    return BROKEN
                byte = arena[at]
            if byte in (OPEN_OBJECT, OPEN_LIST):
                if depth == _DEEPEST:
                    return BROKEN
                is_object[depth] = byte == OPEN_OBJECT
                depth += 1
                at += 1
                before_first = True
                continue
            at = scalar_end(arena, at, end)
            if at < 0:
                return BROKEN
        # A value has ended: a comma, or the end of what holds it.
        while True:
            if depth == 0:
                return at
            at = skip_space(arena, at, end)
            if at >= end:
                return BROKEN
            if arena[at] == COMMA:
                at += 1
                before_first = False
                break
            if arena[at] != (CLOSE_OBJECT if is_object[depth - 1] else CLOSE_LIST):
                return BROKEN
            at += 1
            depth -= 1
