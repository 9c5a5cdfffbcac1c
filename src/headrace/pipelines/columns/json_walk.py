"""The walk over JSON objects, one per record, straight into columns. Compiled; arrays in, arrays out.

It reads the whole of JSON's grammar strictly, but builds only what the schema wants: for each wanted field of each
record a kind and either a number or a place in the arena. What it cannot turn into the wanted type itself (a number
with many digits, an odd form of a time) keeps its place and is read by others afterwards; a record that breaks the
grammar or does not fit its type is marked, and an exact reader says why.
"""

import numpy as np

from headrace.jit import compiled
from headrace.pipelines.columns.json_grammar import (
    CLOSE_OBJECT,
    COLON,
    COMMA,
    MINUS,
    NINE,
    OPEN_LIST,
    OPEN_OBJECT,
    QUOTE,
    ZERO,
    number_end,
    skip_space,
    string_end,
    value_end,
    word_end,
)
from headrace.pipelines.columns.json_text import ABSENT, DIGITS, ESCAPED, NUMBER, SPAN
from headrace.pipelines.columns.json_values import days_at, double_at, long_at, micros_at
from headrace.pipelines.columns.walk import Bytes, Longs

# What a field wants to be.
TEXT, LONG, DOUBLE, BOOLEAN, TIMESTAMP, DATE, NESTED = range(7)


@compiled
def field_named(arena: Bytes, at: int, size: int, names: Bytes, name_ends: Longs) -> int:
    """Which field has this name; -1 for none."""
    for field in range(name_ends.shape[0] - 1):
        start = name_ends[field]
        if name_ends[field + 1] - start == size:
            same = True
            for step in range(size):
                if names[start + step] != arena[at + step]:
                    same = False
                    break
            if same:
                return field
    return -1


@compiled
def walk_json(
    arena: Bytes,
    value_at: Longs,
    value_size: Longs,
    names: Bytes,
    name_ends: Longs,
    wants: Longs,
    bounds: Longs,
    epoch_micros: int,
    found: Bytes,
    numbers: Longs,
    at_of: Longs,
    size_of: Longs,
    doubles: Longs,
    broken: Bytes,
) -> int:
    """Read every record's object; the number of broken records, which are marked in `broken`.

    The wanted fields are described by `names` with `name_ends`, `wants` and `bounds` (lowest and highest of a LONG).
    `found`, `numbers`, `at_of` and `size_of` have a row per field and a column per record; `doubles` is `numbers` seen
    as doubles. `epoch_micros` is how many microseconds a number in the place of a time counts, 0 where none may stand.
    """
    failures = 0
    likely = np.full(64, -1, np.int64)  # the field seen at this place in the record before: mostly it is the same again
    fields = wants.shape[0]
    for row in range(value_at.shape[0]):
        if value_size[row] < 0:
            continue  # null: every field stays absent
        start = value_at[row]
        end = start + value_size[row]
        at = skip_space(arena, start, end)
        good = at < end and arena[at] == OPEN_OBJECT
        at += 1
        turn = 0
        while good:
            at = skip_space(arena, at, end)
            if at >= end:
                good = False
                break
            if turn == 0 and arena[at] == CLOSE_OBJECT:
                at += 1
                break
            if arena[at] != QUOTE:
                good = False
                break
            key_at = at + 1
            field = -1
            at = -1
            if turn < 64 and likely[turn] >= 0:
                guess = likely[turn]
                first = name_ends[guess]
                size = name_ends[guess + 1] - first
                if key_at + size < end and arena[key_at + size] == QUOTE:
                    same = True
                    for step in range(size):
                        if names[first + step] != arena[key_at + step]:
                            same = False
                            break
                    if same:
                        field = guess
                        at = key_at + size
            if at < 0:
                at, escaped = string_end(arena, key_at, end)
                if at < 0 or escaped:
                    good = False  # a name with escapes is legal, and rare: the exact reader takes the record
                    break
                field = field_named(arena, key_at, at - key_at, names, name_ends)
                if turn < 64:
                    likely[turn] = field
            turn += 1
            at = skip_space(arena, at + 1, end)
            if at >= end or arena[at] != COLON:
                good = False
                break
            at = skip_space(arena, at + 1, end)
            if at >= end:
                good = False
                break
            byte = arena[at]
            value = at
            if field < 0:
                at = value_end(arena, at, end)
                good = at >= 0
            elif byte == QUOTE:
                at, escaped = string_end(arena, value + 1, end)
                good = at >= 0
                if good:
                    want = wants[field]
                    at_of[field, row] = value + 1
                    size_of[field, row] = at - value - 1
                    if want == TEXT:
                        found[field, row] = ESCAPED if escaped else SPAN
                    elif want == TIMESTAMP:
                        number, good = micros_at(arena, value + 1, at)
                        numbers[field, row] = number
                        found[field, row] = NUMBER
                    elif want == DATE:
                        number, good = days_at(arena, value + 1, at)
                        good = good and at - value == 11
                        numbers[field, row] = number
                        found[field, row] = NUMBER
                    elif want == NESTED:
                        at_of[field, row] = value
                        size_of[field, row] = at + 1 - value
                        found[field, row] = SPAN
                    else:
                        good = False
                    at += 1
            elif byte == MINUS or ZERO <= byte <= NINE:
                at = number_end(arena, value, end)
                good = at >= 0
                if good:
                    want = wants[field]
                    at_of[field, row] = value
                    size_of[field, row] = at - value
                    if want == LONG:
                        number, good = long_at(arena, value, at, bounds[field, 0], bounds[field, 1])
                        numbers[field, row] = number
                        found[field, row] = NUMBER
                    elif want == DOUBLE:
                        real, exact = double_at(arena, value, at)
                        if exact:
                            doubles[field, row] = real
                            found[field, row] = NUMBER
                        else:
                            found[field, row] = DIGITS
                    elif want in (TEXT, NESTED):
                        found[field, row] = SPAN
                    elif want == TIMESTAMP and epoch_micros > 0:
                        highest = ((1 << 63) - 1) // epoch_micros
                        number, good = long_at(arena, value, at, -highest, highest)
                        numbers[field, row] = number * epoch_micros
                        found[field, row] = NUMBER
                    else:
                        good = False
            elif byte in (OPEN_OBJECT, OPEN_LIST):
                at = value_end(arena, value, end)
                good = at >= 0 and (wants[field] == TEXT or wants[field] == NESTED)
                if good:
                    at_of[field, row] = value
                    size_of[field, row] = at - value
                    found[field, row] = SPAN
            else:
                at = word_end(arena, value, end)
                good = at >= 0
                if good:
                    if byte == 0x6E:
                        found[field, row] = ABSENT
                    elif wants[field] == BOOLEAN:
                        numbers[field, row] = byte == 0x74
                        found[field, row] = NUMBER
                    elif wants[field] == TEXT or wants[field] == NESTED:
                        at_of[field, row] = value
                        size_of[field, row] = at - value
                        found[field, row] = SPAN
                    else:
                        good = False
            if not good:
                break
            at = skip_space(arena, at, end)
            if at >= end:
                good = False
                break
            if arena[at] == CLOSE_OBJECT:
                at += 1
                break
            if arena[at] != COMMA:
                good = False
                break
            at += 1
        if not good or skip_space(arena, at, end) != end:
            broken[row] = 1
            failures += 1
            for field in range(fields):
                found[field, row] = ABSENT
    return failures
