"""The walk over lines of logfmt, one per record, straight into columns. Compiled.

Cells are those of the walk over JSON, so that the same code makes columns of them.
"""

from headrace.jit import compiled
from headrace.pipelines.columns.json_grammar import MINUS, NINE, QUOTE, ZERO, number_end, string_end, utf8_ok
from headrace.pipelines.columns.json_text import ABSENT, DIGITS, ESCAPED, NUMBER, SPAN
from headrace.pipelines.columns.json_values import days_at, double_at, long_at, micros_at
from headrace.pipelines.columns.json_walk import BOOLEAN, DATE, DOUBLE, LONG, NESTED, TEXT, TIMESTAMP, field_named
from headrace.pipelines.columns.walk import Bytes, Longs

_LF, _CR, _SPACE, _EQUALS = 0x0A, 0x0D, 0x20, 0x3D


@compiled
def walk_logfmt(
    arena: Bytes, value_at: Longs, value_size: Longs,
    names: Bytes, name_ends: Longs, wants: Longs, bounds: Longs, epoch_micros: int,
    found: Bytes, numbers: Longs, at_of: Longs, size_of: Longs, doubles: Longs, broken: Bytes,
) -> int:  # fmt: skip
    """Fill the cells of each line; how many lines are left to the exact reader, marked in `broken`."""
    failures = 0
    for row in range(value_at.shape[0]):
        if value_size[row] < 0:
            continue
        at = value_at[row]
        end = at + value_size[row]
        if end > at and arena[end - 1] == _LF:
            end -= 1
        if end > at and arena[end - 1] == _CR:
            end -= 1
        if not _line(
            arena, at, end, row, names, name_ends, wants, bounds, epoch_micros,
            found, numbers, at_of, size_of, doubles,
        ):  # fmt: skip
            broken[row] = 1
            failures += 1
            for field in range(found.shape[0]):
                found[field, row] = ABSENT
    return failures


@compiled
def _line(
    arena: Bytes, at: int, end: int, row: int,
    names: Bytes, name_ends: Longs, wants: Longs, bounds: Longs, epoch_micros: int,
    found: Bytes, numbers: Longs, at_of: Longs, size_of: Longs, doubles: Longs,
) -> bool:  # fmt: skip
    is_empty = at == end
    pairs = 0
    for place in range(at, end):
        if arena[place] >= 0x80:
            if not utf8_ok(arena, place, end):
                return False
            break
    while at < end:
        if arena[at] <= _SPACE:
            if arena[at] == _LF:
                return False
            at += 1
            continue
        start = at
        while at < end and arena[at] > _SPACE and arena[at] != _EQUALS and arena[at] != QUOTE:
            at += 1
        if at == start:
            return False
        field = field_named(arena, start, at - start, names, name_ends)
        if at >= end or arena[at] != _EQUALS:
            if at < end and arena[at] == QUOTE:
                return False
            if field >= 0:
                if wants[field] != BOOLEAN:
                    return False
                numbers[field, row] = 1
                found[field, row] = NUMBER
            continue
        pairs += 1
        at += 1
        if at < end and arena[at] == QUOTE:
            value = at + 1
            at, escaped = string_end(arena, value, end)
            if at < 0:
                return False
            value_end = at
            at += 1
        else:
            value = at
            escaped = False
            while at < end and arena[at] > _SPACE and arena[at] != QUOTE:
                at += 1
            value_end = at
        if at < end and arena[at] > _SPACE:
            return False
        if field >= 0 and not _put(
            arena, value, value_end, escaped, field, row, wants[field], bounds, epoch_micros,
            found, numbers, at_of, size_of, doubles,
        ):  # fmt: skip
            return False
    return is_empty or pairs > 0


@compiled
def _put(
    arena: Bytes, at: int, end: int, escaped: bool, field: int, row: int, want: int, bounds: Longs, epoch_micros: int,
    found: Bytes, numbers: Longs, at_of: Longs, size_of: Longs, doubles: Longs,
) -> bool:  # fmt: skip
    at_of[field, row] = at
    size_of[field, row] = end - at
    if want == TEXT:
        found[field, row] = ESCAPED if escaped else SPAN
        return True
    if escaped or want == NESTED:
        return False
    if at == end:
        found[field, row] = ABSENT
        return True
    if want in (TIMESTAMP, DATE):
        is_number = True
        for place in range(at, end):
            if arena[place] < ZERO or arena[place] > NINE:
                is_number = False
                break
        if is_number and want == TIMESTAMP:
            highest = ((1 << 63) - 1) // max(epoch_micros, 1)
            number, good = long_at(arena, at, end, -highest, highest)
            numbers[field, row] = number * epoch_micros
            found[field, row] = NUMBER
            return good and epoch_micros > 0
        number, good = micros_at(arena, at, end) if want == TIMESTAMP else days_at(arena, at, end)
        numbers[field, row] = number
        found[field, row] = NUMBER
        return good and (want == TIMESTAMP or end - at == 10)
    if want == BOOLEAN:
        if (
            end - at == 4
            and arena[at] == 0x74
            and arena[at + 1] == 0x72
            and arena[at + 2] == 0x75
            and arena[at + 3] == 0x65
        ):
            numbers[field, row] = 1
            found[field, row] = NUMBER
            return True
        return False
    if want != LONG and want != DOUBLE:
        return False
    if not (arena[at] == MINUS or ZERO <= arena[at] <= NINE) or number_end(arena, at, end) != end:
        return False
    if want == LONG:
        number, good = long_at(arena, at, end, bounds[field, 0], bounds[field, 1])
        numbers[field, row] = number
        found[field, row] = NUMBER
        return good
    real, exact = double_at(arena, at, end)
    if exact:
        doubles[field, row] = real
    found[field, row] = NUMBER if exact else DIGITS
    return True
