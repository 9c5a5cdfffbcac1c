"""Numbers summed exactly, on columns: each in pieces of 32 bits, each piece summed by itself in 64 bits.

Two thousand million rows fit before anything could overflow. Adding and taking away are exact, in any order; whether a
sum as a whole fits its type is seen when it is put together again.

Whole numbers and decimals have a fixed number of pieces (limbs), lowest first. A double is written as a whole number of
the smallest unit that doubles have: a running double would keep what rounding did to it after the number is gone, and
one NaN or infinity for ever. Its pieces have their place (`limb`), and a sum keeps only those that it has: few, because
numbers of like size share them. What comes out is the double nearest to the exact sum. NaN and the infinities have
places of their own (below 0), where it is counted how many there are.
"""

from collections.abc import MutableSequence
from decimal import ROUND_HALF_UP, Context, Decimal
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from headrace.pipelines.operators.errors import BadAggregate
from headrace.pipelines.operators.grouping import Longs, group_rows

Limbs = list[Longs]
Doubles = NDArray[np.float64]
PIECES: Final = pa.schema([("limb", pa.int16()), ("part", pa.int64())])
"""What is kept of a sum of doubles, several rows a key."""
_LOW: Final = np.int64(0xFFFFFFFF)
_EXACT: Final = Context(prec=80)
_LOWEST: Final = -1126  # where bit 0 of limb 0 stands: frexp gives 5e-324 the exponent -1073, less the 53 bits kept
_NAN, _UP, _DOWN = -1, -2, -3


def _carry(pieces: "MutableSequence[Longs] | NDArray[np.int64]") -> Longs:
    """Bring each piece to 32 bits, in place; what is carried out of the last is -1 if the number is below 0."""
    carry = np.zeros(len(pieces[0]), np.int64)
    for at in range(len(pieces)):
        total = pieces[at] + carry
        pieces[at] = total & _LOW
        carry = total >> 32
    return carry


def _carry_into_last(limbs: Limbs) -> Limbs:
    lower = list(limbs[:-1])
    carry = _carry(lower)
    return [*lower, limbs[-1] + carry]


# --- whole numbers and decimals


def count_limbs(kind: pa.DataType) -> int:
    """In how many pieces a number of that type is kept."""
    if pa.types.is_decimal(kind):
        return 4
    return 2 if kind.bit_width > 32 or pa.types.is_uint32(kind) else 1


def split(values: pa.Array) -> Limbs:
    """The pieces of each number, lowest first; of a null they are 0."""
    kind = values.type
    if pa.types.is_decimal(kind):
        values = values.cast(pa.decimal128(38, kind.scale)).fill_null(Decimal(0))
        raw = np.frombuffer(values.buffers()[1], np.int64).reshape(-1, 2)[values.offset : values.offset + len(values)]
        low, high = raw[:, 0], raw[:, 1]
        return [low & _LOW, (low >> 32) & _LOW, high & _LOW, high >> 32]
    numbers = np.asarray(values.fill_null(0)).astype(np.int64)
    return [numbers] if count_limbs(kind) == 1 else [numbers & _LOW, numbers >> 32]


def join(limbs: Limbs, what: str) -> Longs:
    """One or two pieces as whole numbers again; `BadAggregate` if one does not fit."""
    if len(limbs) == 1:
        return limbs[0]
    low, high = _carry_into_last(limbs)
    if len(high) and (high.max() >= 2**31 or high.min() < -(2**31)):
        raise BadAggregate(f"{what} is more than a bigint holds: cast the field to decimal(38,0) before it is summed")
    return (high << 32) | low


def join_decimals(limbs: Limbs, valid: NDArray[Any], kind: pa.Decimal128Type, what: str) -> pa.Array:
    """Four pieces as decimals."""
    too_long = f"{what} is more than {kind} holds: cast the field to a decimal with fewer digits behind the point"
    one, two, three, four = _carry_into_last(limbs)
    if len(four) and (four.max() >= 2**31 or four.min() < -(2**31)):
        raise BadAggregate(too_long)
    raw = np.empty((len(one), 2), np.int64)
    raw[:, 0] = (two << 32) | one
    raw[:, 1] = (four << 32) | three
    buffers = [pa.array(valid).buffers()[1], pa.py_buffer(raw.tobytes())]
    try:
        return pa.Array.from_buffers(pa.decimal128(38, kind.scale), len(one), buffers).cast(kind)
    except pa.ArrowInvalid:
        raise BadAggregate(too_long) from None


def divide_decimals(limbs: Limbs, counts: Longs, scale: int, kind: pa.Decimal128Type, what: str) -> pa.Array:
    """Sums of decimals divided by counts, rounded half up to the type's digits; null where the count is 0.

    In machine words where the sum allows it, else digit by digit.
    """
    more = 10 ** (kind.scale - scale)
    one, two, three, four = _carry_into_last(limbs)
    low = one | (two << 32)
    sign, most = low >> 63, 2**61 // more
    small = (four == sign) & (three == sign & _LOW) & (-most < low) & (low < most) & (counts > 0)
    total = np.where(small, low, 0)
    by = np.where(small, counts, 1)
    size = (2 * np.abs(total) * more + by) // (2 * by)
    mean = np.where(total < 0, -size, size)
    words = [mean & _LOW, (mean >> 32) & _LOW, (mean >> 63) & _LOW, mean >> 63]
    means = join_decimals(words, small, kind, what)
    rest = ~small & (counts != 0)
    if not rest.any():
        return means
    unit = Decimal(1).scaleb(-kind.scale, _EXACT)
    exact = [
        _EXACT.divide(Decimal(sum(int(piece) << (32 * at) for at, piece in enumerate(row))).scaleb(-scale, _EXACT), n)
        .quantize(unit, ROUND_HALF_UP, _EXACT)
        for *row, n in zip(*(piece[rest] for piece in limbs), counts[rest].tolist(), strict=True)
    ]  # fmt: skip
    return pc.replace_with_mask(means, pa.array(rest), pa.array(exact, kind))


# --- doubles


def split_doubles(key: Longs, values: Doubles, weight: Longs) -> tuple[Longs, Longs, Longs]:
    """Weighted numbers in pieces: whose each is, its place and its size; pieces of nothing are left out."""
    finite = np.isfinite(values)
    mantissa, exponent = np.frexp(np.where(finite, values, 0.0))
    whole = np.ldexp(np.abs(mantissa), 53).astype(np.int64)
    at = np.where(whole > 0, exponent.astype(np.int64) - 53 - _LOWEST, 0)
    limb, shift = at >> 5, at & 31
    low = (whole & _LOW) << shift
    high = ((whole >> 32) << shift) + (low >> 32)
    signed = np.where(mantissa < 0, -weight, weight)
    special = np.where(np.isnan(values), _NAN, np.where(values > 0, _UP, _DOWN))
    keys = np.concatenate([key, key, key, key])
    places = np.concatenate([limb, limb + 1, limb + 2, special])
    parts = np.concatenate([(low & _LOW) * signed, (high & _LOW) * signed, (high >> 32) * signed, weight * ~finite])
    some = np.flatnonzero(parts)
    return keys[some], places[some], parts[some]


def add_pieces(key: Longs, limb: Longs, part: Longs) -> tuple[Longs, Longs, Longs]:
    """Pieces of the same key and place together, in the order of both; those that come to nothing are left out."""
    groups = group_rows(key, limb)
    if not len(groups.starts):
        return key[:0], limb[:0], part[:0]
    sums = np.add.reduceat(part[groups.order], groups.starts)
    some = np.flatnonzero(sums)
    firsts = groups.firsts[some]
    return key[firsts], limb[firsts], sums[some]


def join_doubles(count: int, key: Longs, limb: Longs, part: Longs) -> Doubles:
    """The doubles nearest to the sums of `count` keys, ties to even; 0 for a key without pieces."""
    counts = np.zeros((count, 4), np.int64)
    special = limb < 0
    np.add.at(counts, (key[special], limb[special]), part[special])
    sums = _join_finite(count, key[~special], limb[~special], part[~special])
    up, down = counts[:, _UP] > 0, counts[:, _DOWN] > 0
    sums[up], sums[down] = np.inf, -np.inf
    sums[(counts[:, _NAN] > 0) | (up & down)] = np.nan
    return sums


def _join_finite(count: int, key: Longs, limb: Longs, part: Longs) -> Doubles:
    sums = np.zeros(count)
    if not len(key):
        return sums
    base = int(limb.min()) - 3  # three empty pieces below, so that a look at the next ones always finds some
    pieces = np.zeros((int(limb.max()) - base + 3, count), np.int64)  # and two above for what is carried
    np.add.at(pieces, (limb - base, key), part)
    negative = _carry(pieces) < 0
    if negative.any():
        turned = _LOW - pieces[:, negative]
        turned[0] += 1
        _carry(turned)
        pieces[:, negative] = turned
    some = pieces != 0
    rows = np.flatnonzero(some.any(axis=0))
    top = len(pieces) - 1 - np.argmax(some[::-1, rows], axis=0)
    below = np.cumsum(some, axis=0)
    first, second, third = (pieces[top - back, rows].astype(np.uint64) for back in range(3))
    # 64 bits from the highest one on. If anything lies below them, the last bit is set: then rounding to the 53 bits
    # of a double cannot mistake it for a tie.
    free = 32 - np.frexp(first.astype(np.float64))[1].astype(np.int64)
    up = free.astype(np.uint64)
    rest = np.uint64(32) - up
    bits = (first << (np.uint64(32) + up)) | (second << up) | (third >> rest)
    more = (third & ((np.uint64(1) << rest) - np.uint64(1))) > 0
    bits |= (more | (below[top - 3, rows] > 0)).astype(np.uint64)
    with np.errstate(over="ignore"):
        sizes = np.ldexp(bits.astype(np.float64), 32 * (top + base) + _LOWEST - 32 - free)
    sums[rows] = np.where(negative[rows], -sizes, sizes)
    return sums
