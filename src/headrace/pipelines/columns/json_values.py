"""What numbers and times in JSON are worth. Compiled steps of the walk in `json_walk`.

Each answers a value and whether it is exactly that; where it is not, somebody slower reads the text again.
"""

import numpy as np
from numpy.typing import NDArray

from headrace.jit import compiled
from headrace.pipelines.columns.json_grammar import BROKEN, COLON, DOT, MINUS, NINE, PLUS, ZERO
from headrace.pipelines.columns.walk import Bytes, Longs

_POWERS = 10.0 ** np.arange(23)
_EXACT_MANTISSA = 1 << 53
_MICROS = 1_000_000


@compiled
def digits_at(arena: Bytes, at: int, count: int, end: int) -> int:
    """A number of exactly so many digits; -1 if they are not there."""
    if at + count > end:
        return BROKEN
    value = 0
    for step in range(count):
        byte = arena[at + step]
        if byte < ZERO or byte > NINE:
            return BROKEN
        value = value * 10 + (byte - ZERO)
    return value


@compiled
def days_of(year: int, month: int, day: int) -> tuple[int, bool]:
    """The days since 1970 of a day of a year from 1 on and a month from 1 to 12, and whether there is such a day."""
    is_leap = (year % 4 == 0 and year % 100 != 0) or year % 400 == 0
    longest = 31 - (month == 4 or month == 6 or month == 9 or month == 11)
    if month == 2:
        longest = 29 if is_leap else 28
    if day < 1 or day > longest:
        return 0, False
    # Years that begin in March put the leap day last, so that a month's first day is a formula.
    shifted = year - (month <= 2)
    era = shifted // 400
    of_era = shifted - era * 400
    of_year = (153 * (month + (-3 if month > 2 else 9)) + 2) // 5 + day - 1
    return era * 146097 + of_era * 365 + of_era // 4 - of_era // 100 + of_year - 719468, True


@compiled
def days_at(arena: Bytes, at: int, end: int) -> tuple[int, bool]:
    """The days since 1970 of a date YYYY-MM-DD, and whether it is one."""
    year, month, day = digits_at(arena, at, 4, end), digits_at(arena, at + 5, 2, end), digits_at(arena, at + 8, 2, end)
    if year < 1 or month < 1 or month > 12 or arena[at + 4] != MINUS or arena[at + 7] != MINUS:
        return 0, False
    return days_of(year, month, day)


@compiled
def micros_at(arena: Bytes, at: int, end: int) -> tuple[int, bool]:
    """Microseconds since 1970 of `YYYY-MM-DDThh:mm:ss[.f…][Z|±hh:mm]`, and whether it is that; without a zone, UTC."""
    if end - at < 19:
        return 0, False
    days, is_date = days_at(arena, at, end)
    if not is_date or not (arena[at + 10] == 0x54 or arena[at + 10] == 0x20):
        return 0, False
    if arena[at + 13] != COLON or arena[at + 16] != COLON:
        return 0, False
    hour, minute = digits_at(arena, at + 11, 2, end), digits_at(arena, at + 14, 2, end)
    second = digits_at(arena, at + 17, 2, end)
    if hour < 0 or hour > 23 or minute < 0 or minute > 59 or second < 0 or second > 59:
        return 0, False
    micros = ((days * 24 + hour) * 60 + minute) * 60 * _MICROS + second * _MICROS
    at += 19
    if at < end and arena[at] == DOT:
        at += 1
        scale = 100_000
        start = at
        while at < end and ZERO <= arena[at] <= NINE:
            micros += (arena[at] - ZERO) * scale  # what is finer than a microsecond is cut off
            scale //= 10
            at += 1
        if at == start or at - start > 9:
            return 0, False
    if at == end:
        return micros, True
    if arena[at] == 0x5A:
        return micros, at + 1 == end
    if (arena[at] == PLUS or arena[at] == MINUS) and at + 6 == end and arena[at + 3] == COLON:
        hours, minutes = digits_at(arena, at + 1, 2, end), digits_at(arena, at + 4, 2, end)
        if hours < 0 or hours > 18 or minutes < 0 or minutes > 59:
            return 0, False
        shift = (hours * 60 + minutes) * 60 * _MICROS
        return (micros - shift if arena[at] == PLUS else micros + shift), True
    return 0, False


@compiled
def double_at(arena: Bytes, at: int, end: int) -> tuple[float, bool]:
    """A number as a double, and whether it is exactly the nearest: up to 2⁵³ times a power of ten up to 10²² is."""
    negative = arena[at] == MINUS
    if negative:
        at += 1
    mantissa = 0
    digits = 0
    point = 0
    while at < end:
        byte = arena[at]
        if byte == DOT:
            point = 1
        elif byte == 0x65 or byte == 0x45:
            break
        else:
            if digits >= 18:
                return 0.0, False
            mantissa = mantissa * 10 + (byte - ZERO)
            digits += mantissa > 0
            if point > 0:
                point += 1
        at += 1
    exponent = -(point - 1) if point > 0 else 0
    if at < end:
        at += 1
        minus = arena[at] == MINUS
        if minus or arena[at] == PLUS:
            at += 1
        written = 0
        while at < end:
            written = min(written * 10 + (arena[at] - ZERO), 100_000)
            at += 1
        exponent += -written if minus else written
    if mantissa > _EXACT_MANTISSA or exponent < -22 or exponent > 22:
        return 0.0, False
    value = float(mantissa)
    value = value * _POWERS[exponent] if exponent >= 0 else value / _POWERS[-exponent]
    return (-value if negative else value), True


@compiled
def long_at(arena: Bytes, at: int, end: int, low: int, high: int) -> tuple[int, bool]:
    """A whole number within bounds, and whether it is one."""
    negative = arena[at] == MINUS
    if negative:
        at += 1
    if end - at > 19:
        return 0, False
    value = np.uint64(0)
    while at < end:
        byte = arena[at]
        if byte < ZERO or byte > NINE:
            return 0, False
        value = value * np.uint64(10) + np.uint64(byte - ZERO)
        at += 1
    if negative:
        if value > np.uint64(1 << 63):
            return 0, False
        signed = -np.int64(value)
    else:
        if value > np.uint64((1 << 63) - 1):
            return 0, False
        signed = np.int64(value)
    return int(signed), bool(low <= signed <= high)


@compiled
def times_at(arena: Bytes, ends: NDArray[np.int32], values: Longs, good: NDArray[np.bool_]) -> None:
    """A column of texts as microseconds since 1970, and which of them are times."""
    for row in range(values.shape[0]):
        values[row], good[row] = micros_at(arena, ends[row], ends[row + 1])
