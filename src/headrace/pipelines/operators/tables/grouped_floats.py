"""Sums of doubles that can be subtracted from: each number in pieces of 32 bits, each piece summed by itself.

A running double keeps what rounding did to it after the number is gone, and one NaN or infinity for ever. So a double
is written as a whole number of the smallest unit that doubles have, in pieces; a piece has its place (`limb`), and its
sum is a whole number of 64 bits. Adding and taking away are exact, in any order, for two thousand million rows of a
group. What comes out is the double nearest to the exact sum. A group keeps only the pieces that it has: few, because
numbers of like size share them.

NaN and the infinities have places of their own (below 0), where it is counted how many there are.
"""

from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from headrace.pipelines.operators.grouping import Longs, grouped

Doubles = NDArray[np.float64]

PIECES: Final = pa.schema([("limb", pa.int16()), ("part", pa.int64())])
"""What is kept of a sum, several rows a key."""

_LOWEST: Final = -1126  # where bit 0 of limb 0 stands: frexp gives 5e-324 the exponent -1073, less the 53 bits kept
_LOW: Final = np.int64(0xFFFFFFFF)
_NAN, _UP, _DOWN = -1, -2, -3


def split(key: Longs, values: Doubles, weight: Longs) -> tuple[Longs, Longs, Longs]:
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


def added(key: Longs, limb: Longs, part: Longs) -> tuple[Longs, Longs, Longs]:
    """Pieces of the same key and place together, in the order of both; those that come to nothing are left out."""
    groups = grouped(key, limb)
    if not len(groups.starts):
        return key[:0], limb[:0], part[:0]
    sums = np.add.reduceat(part[groups.order], groups.starts)
    some = np.flatnonzero(sums)
    firsts = groups.firsts[some]
    return key[firsts], limb[firsts], sums[some]


def rounded(count: int, key: Longs, limb: Longs, part: Longs) -> Doubles:
    """The doubles nearest to the sums of `count` keys, ties to even; 0 for a key without pieces."""
    counts = np.zeros((count, 4), np.int64)
    special = limb < 0
    np.add.at(counts, (key[special], limb[special]), part[special])
    found = _finite(count, key[~special], limb[~special], part[~special])
    up, down = counts[:, _UP] > 0, counts[:, _DOWN] > 0
    found[up], found[down] = np.inf, -np.inf
    found[(counts[:, _NAN] > 0) | (up & down)] = np.nan
    return found


def _finite(count: int, key: Longs, limb: Longs, part: Longs) -> Doubles:
    found = np.zeros(count)
    if not len(key):
        return found
    base = int(limb.min()) - 3  # three empty pieces below, so that a look at the next ones always finds some
    pieces = np.zeros((int(limb.max()) - base + 3, count), np.int64)  # and two above for what is carried
    np.add.at(pieces, (limb - base, key), part)
    negative = _carried(pieces) < 0
    if negative.any():
        turned = _LOW - pieces[:, negative]
        turned[0] += 1
        _carried(turned)
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
    found[rows] = np.where(negative[rows], -sizes, sizes)
    return found


def _carried(pieces: NDArray[np.int64]) -> Longs:
    """Bring each piece to 32 bits, in place; what is carried out of the last is -1 if the number is below 0."""
    carry = np.zeros(pieces.shape[1], np.int64)
    for at in range(len(pieces)):
        total = pieces[at] + carry
        pieces[at] = total & _LOW
        carry = total >> 32
    return carry
