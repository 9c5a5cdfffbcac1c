"""The walk over lines of access logs, one per record, in the common and in the combined log format. Compiled."""

import numpy as np

from headrace.jit import compiled
from headrace.pipelines.columns.json_grammar import BROKEN, COLON, MINUS, NINE, PLUS, QUOTE, ZERO, utf8_ok
from headrace.pipelines.columns.json_values import days_of, digits_at
from headrace.pipelines.columns.walk import Bytes, Longs

# The fields in the order of `AccessLine`, which is that of the columns.
(
    CLIENT, IDENTITY, USER, TIME, REQUEST, METHOD, PATH, QUERY, PROTOCOL, STATUS, BODY_BYTES, REFERER, USER_AGENT, REST,
) = range(14)  # fmt: skip
NOT_THERE, THERE = 0, 1

_LF, _CR, _SPACE, _BACKSLASH, _SLASH, _MARK = 0x0A, 0x0D, 0x20, 0x5C, 0x2F, 0x3F
_OPEN, _CLOSE = 0x5B, 0x5D
_TIME_SIZE = 26
_MICROS = 1_000_000
# The three letters of each month as one number, and what a method may consist of.
_MONTHS = np.array(
    [sum(byte << 8 * place for place, byte in enumerate(reversed(name)))
     for name in (b"Jan", b"Feb", b"Mar", b"Apr", b"May", b"Jun", b"Jul", b"Aug", b"Sep", b"Oct", b"Nov", b"Dec")],
    np.int64,
)  # fmt: skip
_TOKEN = np.array(
    [chr(byte).isascii() and (chr(byte).isalnum() or chr(byte) in "!#$%&'*+.^_`|~-") for byte in range(256)], np.bool_
)


@compiled
def month_at(arena: Bytes, at: int) -> int:
    """The month whose three letters stand there, from 1 on; -1 for none."""
    word = (np.int64(arena[at]) << 16) | (np.int64(arena[at + 1]) << 8) | np.int64(arena[at + 2])
    for month in range(12):
        if _MONTHS[month] == word:
            return month + 1
    return BROKEN


@compiled
def access_time_at(arena: Bytes, at: int) -> tuple[int, bool]:
    """Microseconds since 1970 of the 26 bytes `dd/Mon/yyyy:hh:mm:ss ±hhmm`, and whether they are a time."""
    end = at + _TIME_SIZE
    day, year = digits_at(arena, at, 2, end), digits_at(arena, at + 7, 4, end)
    hour, minute, second = (
        digits_at(arena, at + 12, 2, end),
        digits_at(arena, at + 15, 2, end),
        digits_at(arena, at + 18, 2, end),
    )
    hours, minutes = digits_at(arena, at + 22, 2, end), digits_at(arena, at + 24, 2, end)
    month = month_at(arena, at + 3)
    if arena[at + 2] != _SLASH or arena[at + 6] != _SLASH or arena[at + 11] != COLON or arena[at + 14] != COLON:
        return 0, False
    if arena[at + 17] != COLON or arena[at + 20] != _SPACE or (arena[at + 21] != PLUS and arena[at + 21] != MINUS):
        return 0, False
    # A year before 1000 may leave the calendar once its zone is taken off: the exact reader looks.
    if month < 0 or day < 0 or year < 1000 or year > 9000:
        return 0, False
    if hour < 0 or hour > 23 or minute < 0 or minute > 59 or second < 0 or second > 59:
        return 0, False
    if hours < 0 or hours > 23 or minutes < 0 or minutes > 59:
        return 0, False
    days, is_day = days_of(year, month, day)
    ahead = hours * 60 + minutes
    if arena[at + 21] == MINUS:
        ahead = -ahead
    return (((days * 24 + hour) * 60 + minute - ahead) * 60 + second) * _MICROS, is_day


@compiled
def word_behind(arena: Bytes, at: int, end: int, stop: int) -> int:
    """The place of the next such byte; the end where there is none."""
    while at < end and arena[at] != stop:
        at += 1
    return at


@compiled
def walk_access(
    arena: Bytes, value_at: Longs, value_size: Longs, is_combined: bool,
    found: Bytes, numbers: Longs, at_of: Longs, size_of: Longs, fault: Bytes,
) -> None:  # fmt: skip
    """Fill the cells of each line; a line that is left to the exact reader has a fault, and nothing found."""
    for row in range(value_at.shape[0]):
        if value_size[row] < 0:
            continue
        at = value_at[row]
        end = at + value_size[row]
        if end > at and arena[end - 1] == _LF:
            end -= 1
        if end > at and arena[end - 1] == _CR:
            end -= 1
        if not _line(arena, at, end, row, is_combined, found, numbers, at_of, size_of):
            fault[row] = 1
            for field in range(found.shape[0]):
                found[field, row] = NOT_THERE


@compiled
def _line(
    arena: Bytes, at: int, end: int, row: int, is_combined: bool,
    found: Bytes, numbers: Longs, at_of: Longs, size_of: Longs,
) -> bool:  # fmt: skip
    wide = False
    for place in range(at, end):
        byte = arena[place]
        if byte in (_BACKSLASH, _LF):
            return False
        if byte >= 0x80:
            wide = True
    if wide and not utf8_ok(arena, at, end):
        return False
    for field in range(3):  # client, identity, user
        start = at
        at = word_behind(arena, at, end, _SPACE)
        if at == start or at >= end:
            return False
        _put(arena, field, row, start, at, found, at_of, size_of)
        at += 1
    # `[time] "` and a quote: everything from here on is where it is or the line is not one.
    if at + _TIME_SIZE + 5 > end or arena[at] != _OPEN or arena[at + _TIME_SIZE + 1] != _CLOSE:
        return False
    numbers[TIME, row], good = access_time_at(arena, at + 1)
    found[TIME, row] = THERE
    at += _TIME_SIZE + 2
    if not good or arena[at] != _SPACE or arena[at + 1] != QUOTE:
        return False
    start = at + 2
    at = word_behind(arena, start, end, QUOTE)
    if at + 6 > end or arena[at + 1] != _SPACE:
        return False
    _put(arena, REQUEST, row, start, at, found, at_of, size_of)
    _request(arena, start, at, row, found, at_of, size_of)
    at += 2
    if arena[at] == MINUS:
        at += 1
    else:
        status = digits_at(arena, at, 3, end)
        if status < 0:
            return False
        numbers[STATUS, row] = status
        found[STATUS, row] = THERE
        at += 3
    if at + 1 >= end or arena[at] != _SPACE:
        return False
    at += 1
    start = at
    if arena[at] == MINUS:
        at += 1
    else:
        size = 0
        while at < end and ZERO <= arena[at] <= NINE and at - start <= 18:
            size = size * 10 + (arena[at] - ZERO)
            at += 1
        if at == start or at - start > 18:
            return False
        numbers[BODY_BYTES, row] = size
        found[BODY_BYTES, row] = THERE
    if is_combined:
        for field in range(REFERER, USER_AGENT + 1):
            if at + 2 >= end or arena[at] != _SPACE or arena[at + 1] != QUOTE:
                return False
            start = at + 2
            at = word_behind(arena, start, end, QUOTE)
            if at >= end:
                return False
            _put(arena, field, row, start, at, found, at_of, size_of)
            at += 1
    if at < end:
        if arena[at] != _SPACE:
            return False
        if at + 1 < end:
            found[REST, row] = THERE
            at_of[REST, row] = at + 1
            size_of[REST, row] = end - at - 1
    return True


@compiled
def _put(arena: Bytes, field: int, row: int, start: int, end: int, found: Bytes, at_of: Longs, size_of: Longs) -> None:
    """A field's text, unless it is `-`."""
    if end - start == 1 and arena[start] == MINUS:
        return
    found[field, row] = THERE
    at_of[field, row] = start
    size_of[field, row] = end - start


@compiled
def _request(arena: Bytes, start: int, end: int, row: int, found: Bytes, at_of: Longs, size_of: Longs) -> None:
    """Method, path, query and protocol of a request line, if it is one."""
    at = start
    while at < end and _TOKEN[arena[at]]:
        at += 1
    if at == start or at >= end or arena[at] != _SPACE:
        return
    method_end = at
    target = at + 1
    at = word_behind(arena, target, end, _SPACE)
    target_end = at
    if at == target:
        return
    if at == end:  # HTTP/0.9 has a path and no more
        if arena[target] != _SLASH:
            return
    else:
        at += 1
        if end - at < 6 or arena[at] != 0x48 or arena[at + 1] != 0x54 or arena[at + 2] != 0x54:
            return
        if arena[at + 3] != 0x50 or arena[at + 4] != _SLASH:
            return
        for place in range(at + 5, end):
            if not (ZERO <= arena[place] <= NINE or arena[place] == 0x2E):
                return
        found[PROTOCOL, row] = THERE
        at_of[PROTOCOL, row] = at
        size_of[PROTOCOL, row] = end - at
    found[METHOD, row] = THERE
    at_of[METHOD, row] = start
    size_of[METHOD, row] = method_end - start
    mark = word_behind(arena, target, target_end, _MARK)
    found[PATH, row] = THERE
    at_of[PATH, row] = target
    size_of[PATH, row] = mark - target
    if mark < target_end:
        found[QUERY, row] = THERE
        at_of[QUERY, row] = mark + 1
        size_of[QUERY, row] = target_end - mark - 1
