"""The walk over messages of syslog, one per record, in all forms that `read_syslog` knows. Compiled."""

from headrace.jit import compiled
from headrace.log_formats.syslog import AHEAD, YEARS
from headrace.pipelines.columns.json_grammar import BROKEN, COLON, MINUS, NINE, ZERO, utf8_ok
from headrace.pipelines.columns.json_values import days_of, digits_at, micros_at
from headrace.pipelines.columns.logs.access_walk import month_at, word_behind
from headrace.pipelines.columns.walk import Bytes, Longs

# The fields in the order of the columns.
FACILITY, SEVERITY, LEVEL, TIME, HOST, APP, PROCESS_ID, MESSAGE_ID, DATA, MESSAGE = range(10)
NOT_THERE, THERE, LOCAL = range(3)  # LOCAL: a time that a zone's clocks showed

_LF, _CR, _SPACE, _OPEN, _CLOSE, _LESS, _GREATER = 0x0A, 0x0D, 0x20, 0x5B, 0x5D, 0x3C, 0x3E
_QUOTE, _BACKSLASH, _T, _ONE = 0x22, 0x5C, 0x54, 0x31
_MICROS = 1_000_000
_DAY = 24 * 60 * 60 * _MICROS
_AHEAD_MICROS = AHEAD.days * _DAY
_YEARS = YEARS
_LEAST_MS, _MOST_MS = 0, 200_000_000_000_000  # times of receipt that are taken here: the years 1970 to 8307


@compiled
def walk_syslog(
    arena: Bytes, value_at: Longs, value_size: Longs, received_ms: Longs,
    found: Bytes, numbers: Longs, at_of: Longs, size_of: Longs, fault: Bytes,
) -> None:  # fmt: skip
    """Fill the cells of each message; one that is left to the exact reader has a fault, and nothing found."""
    for row in range(value_at.shape[0]):
        if value_size[row] < 0:
            continue
        at = value_at[row]
        end = at + value_size[row]
        if end > at and arena[end - 1] == _LF:
            end -= 1
        if end > at and arena[end - 1] == _CR:
            end -= 1
        if not _message(arena, at, end, row, received_ms[row], found, numbers, at_of, size_of):
            fault[row] = 1
            for field in range(found.shape[0]):
                found[field, row] = NOT_THERE


@compiled
def _message(
    arena: Bytes, at: int, end: int, row: int, received_ms: int,
    found: Bytes, numbers: Longs, at_of: Longs, size_of: Longs,
) -> bool:  # fmt: skip
    for place in range(at, end):
        if arena[place] >= 0x80:
            if not utf8_ok(arena, place, end):
                return False
            break
    if at < end and arena[at] == _LESS:
        at += 1
        start = at
        priority = 0
        while at < end and ZERO <= arena[at] <= NINE and at - start < 3:
            priority = priority * 10 + (arena[at] - ZERO)
            at += 1
        if at == start or at >= end or arena[at] != _GREATER or priority > 191:
            return False
        at += 1
        numbers[FACILITY, row] = priority // 8
        numbers[SEVERITY, row] = priority % 8
        numbers[LEVEL, row] = priority % 8
        found[FACILITY, row] = found[SEVERITY, row] = found[LEVEL, row] = THERE
        if at + 1 < end and arena[at] == _ONE and arena[at + 1] == _SPACE:
            return _new(arena, at + 2, end, row, found, numbers, at_of, size_of)
    at = _time(arena, at, end, row, received_ms, found, numbers)
    if at < 0:
        return False
    return _old(arena, at, end, row, found, at_of, size_of)


@compiled
def _time(arena: Bytes, at: int, end: int, row: int, received_ms: int, found: Bytes, numbers: Longs) -> int:
    """Behind the time that stands there and the space after it; -1 for none of the common forms."""
    if end - at > 15 and arena[at + 3] == _SPACE and arena[at + 15] == _SPACE:
        month = month_at(arena, at)
        if month < 0 or received_ms < _LEAST_MS or received_ms > _MOST_MS:
            return BROKEN
        day = arena[at + 5] - ZERO if arena[at + 4] == _SPACE else digits_at(arena, at + 4, 2, end)
        if arena[at + 5] < ZERO or arena[at + 5] > NINE or day < 0 or arena[at + 6] != _SPACE:
            return BROKEN
        hour, minute = digits_at(arena, at + 7, 2, end), digits_at(arena, at + 10, 2, end)
        second = digits_at(arena, at + 13, 2, end)
        if arena[at + 9] != COLON or arena[at + 12] != COLON:
            return BROKEN
        if hour < 0 or hour > 23 or minute < 0 or minute > 59 or second < 0 or second > 59:
            return BROKEN
        of_day = ((hour * 60 + minute) * 60 + second) * _MICROS
        latest = received_ms * 1000 + _AHEAD_MICROS
        year = _year_of(latest // _DAY)
        for one in range(year, year - _YEARS, -1):
            days, is_day = days_of(one, month, day)
            if is_day and days * _DAY + of_day <= latest:
                numbers[TIME, row] = days * _DAY + of_day
                found[TIME, row] = LOCAL
                return at + 16
        return BROKEN
    stop = word_behind(arena, at, end, _SPACE)
    if stop >= end or not _is_iso(arena, at, stop):
        return BROKEN
    numbers[TIME, row], good = micros_at(arena, at, stop)
    found[TIME, row] = THERE
    return stop + 1 if good else BROKEN


@compiled
def _is_iso(arena: Bytes, at: int, end: int) -> bool:
    """Whether a time has a T and a zone, and a year that no zone brings out of the calendar."""
    if end - at < 20 or arena[at + 10] != _T:
        return False
    year = digits_at(arena, at, 4, end)
    if year < 1000 or year > 9000:
        return False
    return arena[end - 1] == 0x5A or (end - at >= 25 and arena[end - 3] == COLON)


@compiled
def _year_of(days: int) -> int:
    """The year of a day since 1970."""
    year = 1970 + days // 366
    while days_of(year + 1, 1, 1)[0] <= days:
        year += 1
    return year


@compiled
def _old(arena: Bytes, at: int, end: int, row: int, found: Bytes, at_of: Longs, size_of: Longs) -> bool:
    behind = _tag(arena, at, end, row, found, at_of, size_of)
    if behind < 0:
        start = at
        at = word_behind(arena, at, end, _SPACE)
        if at > start and not (at - start == 1 and arena[start] == MINUS):
            _put(HOST, row, start, at, found, at_of, size_of)
        at = min(at + 1, end)
        behind = _tag(arena, at, end, row, found, at_of, size_of)
        if behind < 0:
            behind = at
    _put(MESSAGE, row, behind, end, found, at_of, size_of)
    return True


@compiled
def _tag(arena: Bytes, at: int, end: int, row: int, found: Bytes, at_of: Longs, size_of: Longs) -> int:
    """Behind the program's name and its number; -1 where no name ends with a colon."""
    start = at
    while at < end and arena[at] != _SPACE and arena[at] != _OPEN and arena[at] != _CLOSE and arena[at] != COLON:
        at += 1
    name_end = at
    if at == start or at >= end:
        return BROKEN
    number, number_end = 0, 0
    if arena[at] == _OPEN:
        at += 1
        number = at
        while at < end and arena[at] != _SPACE and arena[at] != _OPEN and arena[at] != _CLOSE:
            at += 1
        number_end = at
        if at >= end or arena[at] != _CLOSE:
            return BROKEN
        at += 1
    if at >= end or arena[at] != COLON or (at + 1 < end and arena[at + 1] != _SPACE):
        return BROKEN
    _put(APP, row, start, name_end, found, at_of, size_of)
    if number_end > number:
        _put(PROCESS_ID, row, number, number_end, found, at_of, size_of)
    return min(at + 2, end)


@compiled
def _new(arena: Bytes, at: int, end: int, row: int, found: Bytes, numbers: Longs, at_of: Longs, size_of: Longs) -> bool:
    start = at
    at = word_behind(arena, at, end, _SPACE)
    if at >= end:
        return False
    if not (at - start == 1 and arena[start] == MINUS):
        if not _is_iso(arena, start, at):
            return False
        numbers[TIME, row], good = micros_at(arena, start, at)
        found[TIME, row] = THERE
        if not good:
            return False
    at += 1
    for field in range(HOST, MESSAGE_ID + 1):
        start = at
        while at < end and 0x21 <= arena[at] <= 0x7E:
            at += 1
        if at == start or at >= end or arena[at] != _SPACE:
            return False
        if not (at - start == 1 and arena[start] == MINUS):
            _put(field, row, start, at, found, at_of, size_of)
        at += 1
    start = at
    at = _elements_end(arena, at, end)
    if at < 0:
        return False
    if arena[start] == _OPEN:
        _put(DATA, row, start, at, found, at_of, size_of)
    if at == end:
        return True
    if arena[at] != _SPACE:
        return False
    at += 1
    if end - at >= 3 and arena[at] == 0xEF and arena[at + 1] == 0xBB and arena[at + 2] == 0xBF:
        at += 3
    _put(MESSAGE, row, at, end, found, at_of, size_of)
    return True


@compiled
def _elements_end(arena: Bytes, at: int, end: int) -> int:
    """Behind structured data; what stands inside is read by the exact reader, which may find it broken."""
    if at >= end:
        return BROKEN
    if arena[at] == MINUS:
        return at + 1
    if arena[at] != _OPEN:
        return BROKEN
    while at < end and arena[at] == _OPEN:
        quoted = False
        while at < end and (quoted or arena[at] != _CLOSE):
            if quoted and arena[at] == _BACKSLASH:
                at += 1
            elif arena[at] == _QUOTE:
                quoted = not quoted
            at += 1
        if at >= end:
            return BROKEN
        at += 1
    return at


@compiled
def _put(field: int, row: int, start: int, end: int, found: Bytes, at_of: Longs, size_of: Longs) -> None:
    found[field, row] = THERE
    at_of[field, row] = start
    size_of[field, row] = end - start
