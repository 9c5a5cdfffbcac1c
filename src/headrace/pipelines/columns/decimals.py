"""Decimals read and scaled exactly, as Arrow's 128 bits. Compiled.

Arrow's own casts, from text and from one scale to another, look powers of ten up in a table without checking its end
and multiply without checking for overflow: `1E-100000000` ends the process, and 39 digits become another number. So a
decimal is made here, and one that these loops cannot make goes to the exact reader, which decides.
"""

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from headrace.jit import compiled
from headrace.pipelines.columns.arrow import fixed
from headrace.pipelines.columns.json_grammar import DOT, MINUS, NINE, PLUS, ZERO
from headrace.pipelines.columns.walk import Bytes, Longs

Mask = NDArray[np.bool_]
Word = np.uint64

_LOW = np.uint64(0xFFFFFFFF)
_HALF = np.uint64(32)
_TEN = np.uint64(10)
_MOST_DIGITS = 38
_FAR = 1000  # an exponent beyond it makes no decimal of 38 digits, however the digits before it stand
_POWERS_HIGH = np.array([10**power >> 64 for power in range(_MOST_DIGITS + 1)], np.uint64)
_POWERS_LOW = np.array([10**power & (2**64 - 1) for power in range(_MOST_DIGITS + 1)], np.uint64)


def decimals_from_text(texts: pa.StringArray, kind: pa.Decimal128Type) -> tuple[pa.Array, NDArray[np.intp]]:
    """Texts as decimals, and the rows that another has to read; those are null."""
    rows = len(texts)
    there: Mask = ~texts.is_null().to_numpy(zero_copy_only=False)
    out, good = np.zeros((rows, 2), np.int64), np.zeros(rows, np.bool_)
    if rows:
        data = texts.buffers()[2]
        arena = np.frombuffer(data if data is not None and data.size else b"\0", np.uint8)
        ends = np.frombuffer(texts.buffers()[1], np.int32)[texts.offset : texts.offset + rows + 1]
        decimals_at_ends(arena, ends, kind.precision, kind.scale, out, good)
    return fixed(kind, out, there & good), np.flatnonzero(there & ~good)


def rescaled(numbers: Longs, there: Mask, scale: int, kind: pa.Decimal128Type) -> tuple[pa.Array, NDArray[np.intp]]:
    """Whole numbers of 128 bits that count units of 10^-scale as decimals, and the rows that do not fit exactly."""
    out, good = np.zeros_like(numbers), np.zeros(len(there), np.bool_)
    rescale_rows(numbers, there, min(max(kind.scale - scale, -_FAR), _FAR), kind.precision, out, good)
    return fixed(kind, out, there & good), np.flatnonzero(there & ~good)


@compiled
def times_ten(high: Word, low: Word, digit: Word) -> tuple[Word, Word]:
    """Ten times a number of 128 bits, and a digit."""
    first = (low & _LOW) * _TEN + digit
    second = (low >> _HALF) * _TEN + (first >> _HALF)
    return high * _TEN + (second >> _HALF), (second << _HALF) | (first & _LOW)


@compiled
def over_ten(high: Word, low: Word) -> tuple[Word, Word, Word]:
    """A tenth of a number of 128 bits, and what is left."""
    left = high % _TEN
    first = (left << _HALF) | (low >> _HALF)
    second = ((first % _TEN) << _HALF) | (low & _LOW)
    return high // _TEN, ((first // _TEN) << _HALF) | (second // _TEN), second % _TEN


@compiled
def is_below(high: Word, low: Word, digits: int) -> bool:
    """Whether a number has at most so many digits."""
    return bool(high < _POWERS_HIGH[digits] or (high == _POWERS_HIGH[digits] and low < _POWERS_LOW[digits]))


@compiled
def shifted(high: Word, low: Word, shift: int, precision: int) -> tuple[Word, Word, bool]:
    """A number times 10^shift, and whether that is whole and has at most so many digits."""
    if high == np.uint64(0) and low == np.uint64(0):
        return high, low, True
    if shift > _MOST_DIGITS or shift < -_MOST_DIGITS:
        return high, low, False
    for _ in range(shift):
        if not is_below(high, low, _MOST_DIGITS - 1):
            return high, low, False
        high, low = times_ten(high, low, np.uint64(0))
    for _ in range(-shift):
        high, low, left = over_ten(high, low)
        if left != np.uint64(0):
            return high, low, False
    return high, low, is_below(high, low, precision)


@compiled
def put(out: Longs, row: int, high: Word, low: Word, negative: bool) -> None:
    """Store a number as Arrow does, in two's complement, the low half first."""
    if negative:
        low = ~low + np.uint64(1)
        high = ~high + np.uint64(low == np.uint64(0))
    out[row, 0] = np.int64(low)
    out[row, 1] = np.int64(high)


@compiled
def decimals_at_ends(arena: Bytes, ends: NDArray[np.int32], precision: int, scale: int, out: Longs, good: Mask) -> None:
    """Each text as a decimal: a sign, digits with or without a point, an exponent; `good` where it is exactly that."""
    for row in range(out.shape[0]):
        at, end = ends[row], ends[row + 1]
        negative = at < end and arena[at] == MINUS
        if at < end and (negative or arena[at] == PLUS):
            at += 1
        high, low = np.uint64(0), np.uint64(0)
        digits = 0
        significant = 0
        fraction = -1
        while at < end and significant <= _MOST_DIGITS:
            byte = arena[at]
            if ZERO <= byte <= NINE:
                high, low = times_ten(high, low, np.uint64(byte - ZERO))
                digits += 1
                significant += significant > 0 or byte > ZERO
                fraction += fraction >= 0
            elif byte == DOT and fraction < 0:
                fraction = 0
            else:
                break
            at += 1
        exponent = 0
        if at < end and digits > 0 and (arena[at] == 0x65 or arena[at] == 0x45):
            at += 1
            minus = at < end and arena[at] == MINUS
            if at < end and (minus or arena[at] == PLUS):
                at += 1
            start = at
            while at < end and ZERO <= arena[at] <= NINE:
                exponent = min(exponent * 10 + (arena[at] - ZERO), _FAR)
                at += 1
            if at == start or exponent == _FAR:
                continue
            if minus:
                exponent = -exponent
        if at != end or digits == 0 or significant > _MOST_DIGITS:
            continue
        high, low, good[row] = shifted(high, low, scale - max(fraction, 0) + exponent, precision)
        put(out, row, high, low, negative)


@compiled
def rescale_rows(numbers: Longs, there: Mask, shift: int, precision: int, out: Longs, good: Mask) -> None:
    """Each number times 10^shift, where it is there and exactly that."""
    for row in range(there.shape[0]):
        if not there[row]:
            continue
        low, high = np.uint64(numbers[row, 0]), np.uint64(numbers[row, 1])
        negative = numbers[row, 1] < 0
        if negative:
            low = ~low + np.uint64(1)
            high = ~high + np.uint64(low == np.uint64(0))
        high, low, good[row] = shifted(high, low, shift, precision)
        put(out, row, high, low, negative)
