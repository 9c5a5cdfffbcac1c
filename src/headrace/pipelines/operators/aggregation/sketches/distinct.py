"""`approx_count_distinct` and `distinct_sketch`: how many different values, by HyperLogLog.

Spark hashes the values (`xxhash64`), in the JVM. Of a hash the low bits name a register, and the register keeps the
greatest number of leading zeros of the others, plus one. The estimate is the improved one of O. Ertl (New cardinality
estimation algorithms for HyperLogLog sketches, 2017), which needs no tables and is without bias for few and many.

As bytes a sketch has the form of Apache DataSketches' HLL_8, marked as merged, so that Spark's `hll_sketch_estimate`
and `hll_union_agg`, and whatever else has that library, read it. Sketches that were made elsewhere hash in another way:
they can be merged with each other here, and not with ours.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import ceil, log2
from typing import Final, Self

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyspark.sql import Column
from pyspark.sql import functions as fn

from headrace.jit import compiled
from headrace.pipelines.operators.aggregation.algebra import PREPARED, Aggregate, Arrays, Loaded, valid_in
from headrace.pipelines.operators.aggregation.sketches.tally import (
    GREATEST,
    Tally,
    as_lists,
    binary_of,
    bytes_of,
    singles,
    tally_of,
)
from headrace.pipelines.operators.errors import BadAggregate
from headrace.pipelines.operators.grouping import Longs

_RANK_BITS: Final = 6
_HASH_BITS: Final = 43
"""Of a hash so many bits are looked at for zeros; the others, 21, are enough for the most registers."""
_MOST_BITS: Final = 62
_HEAD, _FIRST_COUPON = 40, 8
_MOST_COUPONS: Final = 7
_LIST, _HLL = 0b1000, 0b1010  # the mode in the low two bits, HLL_8 in the next


def precision(error: float) -> int:
    """The binary logarithm of how many registers make the standard error so small."""
    return min(max(ceil(2 * log2(1.04 / error)), 4), 21)


@dataclass(frozen=True)
class Registers(Aggregate):
    """How many different values; with `merged` of a column of sketches, with `given` as a sketch."""

    is_native = False

    error: float
    merged: bool = False
    given: bool = False

    @property
    def named(self) -> str:
        return f"{'distinct_sketch' if self.given else 'approx_count_distinct'}({self.field})"

    @property
    def bits(self) -> int:
        return precision(self.error)

    def prepare(self, *, of_table: bool = False) -> tuple[Self, dict[str, Column]]:
        if of_table or self.merged:
            return super().prepare(of_table=of_table)
        value = fn.when(self.column.isNotNull(), fn.xxhash64(self.column))
        name, column = self.make_column(value, f"hash of {self.field}")
        return replace(self, field=name, where=None), {name: column}

    def state(self, kind: pa.DataType) -> list[tuple[str, pa.DataType]]:
        if self.merged and not (pa.types.is_binary(kind) or pa.types.is_large_binary(kind)):
            raise self._refuse(kind, "sketches are bytes, as distinct_sketch makes them")
        if not self.merged and not (self.field or "").startswith(PREPARED) and kind != pa.int64():
            raise self._refuse(kind, "it is computed of hashes")
        return [("registers", pa.list_(pa.int32()))]

    def result(self, kind: pa.DataType) -> pa.DataType:
        return pa.binary() if self.given else pa.int64()

    def lift(self, values: pa.Array, time: Longs) -> Arrays:
        valid = valid_in(values)
        if self.merged and not pa.types.is_null(values.type):
            data, begins = bytes_of(values)
            starts, found = _read(data, begins, self.bits)
            rows = np.arange(len(values))
            # Of registers that are folded into one the greatest counts.
            once = self.load([as_lists(starts, found, pa.int32())]).map(lambda cell: cell.over(rows, rows + 1))
            return self.store(once, values.type)
        hashes = np.asarray(values.fill_null(0), np.int64)[valid].view(np.uint64)
        place = (hashes & np.uint64((1 << self.bits) - 1)).astype(np.int64)
        rank = _ranks(hashes >> np.uint64(64 - _HASH_BITS))
        return [as_lists(singles(valid), place << _RANK_BITS | rank, pa.int32())]

    def load(self, columns: Sequence[pa.Array]) -> Loaded:
        packed = tally_of(columns[0], None, GREATEST)
        rank = packed.numbers & (1 << _RANK_BITS) - 1
        return Loaded((replace(packed, places=packed.places >> _RANK_BITS, numbers=rank),))

    def store(self, loaded: Loaded, kind: pa.DataType) -> Arrays:
        cell = _tally(loaded)
        return [as_lists(cell.starts, cell.places << _RANK_BITS | cell.numbers, pa.int32())]

    def finish(self, loaded: Loaded, kind: pa.DataType) -> pa.Array:
        cell = _tally(loaded)
        if self.given:
            return write(cell, self.bits)
        return pa.array(np.rint(estimate(cell, self.bits)).astype(np.int64))


def _tally(loaded: Loaded) -> Tally:
    (cell,) = loaded.cells
    assert isinstance(cell, Tally)
    return cell


def _ranks(bits: NDArray[np.uint64]) -> Longs:
    """The number of leading zeros of so many bits, plus one; doubles count them, because 43 bits fit in exactly."""
    return _HASH_BITS + 1 - np.frexp(bits.astype(np.float64))[1].astype(np.int64)


def estimate(cell: Tally, bits: int) -> NDArray[np.float64]:
    """How many different values went into each row."""
    m, rows = 1 << bits, len(cell.starts) - 1
    counts = np.bincount(cell.owners * (_HASH_BITS + 2) + cell.numbers, minlength=rows * (_HASH_BITS + 2))
    counts = counts.reshape(rows, _HASH_BITS + 2).astype(np.float64)
    empty = m - cell.sizes
    z = m * _tau(1 - counts[:, _HASH_BITS + 1] / m)
    for rank in range(_HASH_BITS, 0, -1):
        z = 0.5 * (z + counts[:, rank])
    z = z + m * _sigma(empty / m)
    with np.errstate(divide="ignore"):
        found: NDArray[np.float64] = np.where(cell.sizes > 0, m / (2 * np.log(2)) * m / z, 0.0)
    return np.minimum(found, 2.0**_MOST_BITS)  # registers that no values fill say more, or without end


def _sigma(x: NDArray[np.float64]) -> NDArray[np.float64]:
    x = np.where(x == 1, 0.0, x)  # nothing is there: it is not asked
    y, z = np.ones_like(x), x.copy()
    while True:
        x = x * x
        before, z = z, z + x * y
        y = y + y
        if (before == z).all():
            return z


def _tau(x: NDArray[np.float64]) -> NDArray[np.float64]:
    x = np.where((x == 0) | (x == 1), 1.0, x)
    y, z = np.ones_like(x), 1 - x
    while True:
        x = np.sqrt(x)
        y = 0.5 * y
        before, z = z, z - (1 - x) ** 2 * y
        if (before == z).all():
            return z / 3


def write(cell: Tally, bits: int) -> pa.Array:
    """Sketches as bytes: a list while there are few registers, then all of them."""
    few = cell.sizes <= _MOST_COUPONS
    lengths = np.where(few, _FIRST_COUPON + 4 * cell.sizes, _HEAD + (1 << bits))
    starts = np.append(0, np.cumsum(lengths))
    data = np.zeros(starts[-1], np.uint8)
    _write(data, starts, cell.starts, cell.places, cell.numbers, bits)
    dense = np.flatnonzero(~few)
    if len(dense):
        sums = np.zeros((len(few), 2))
        power = np.ldexp(1.0, -cell.numbers.astype(np.int32))
        high = (cell.numbers >= 32).astype(np.int64)
        np.add.at(sums, (cell.owners, high), power)
        sums[:, 0] += (1 << bits) - cell.sizes
        head = starts[:-1][dense, None] + np.arange(16, 32)
        data[head] = np.ascontiguousarray(sums[dense], "<f8").view(np.uint8).reshape(-1, 16)
        empty = ((1 << bits) - cell.sizes[dense]).astype("<i4")
        data[starts[:-1][dense, None] + np.arange(32, 36)] = empty.view(np.uint8).reshape(-1, 4)
    return binary_of(data, starts)


@compiled
def _write(data: NDArray[np.uint8], starts: Longs, rows: Longs, places: Longs, numbers: Longs, bits: int) -> None:
    for row in range(len(starts) - 1):
        at = starts[row]
        count = rows[row + 1] - rows[row]
        data[at + 1] = 1  # version
        data[at + 2] = 7  # the family of HLL
        data[at + 3] = bits
        if count <= 7:
            data[at] = 2
            data[at + 4] = 3  # room for eight
            data[at + 5] = 8 | 16 | (4 if count == 0 else 0)  # compact, merged, empty
            data[at + 6] = count
            data[at + 7] = 8
            for cell in range(rows[row], rows[row + 1]):
                coupon = numbers[cell] << 26 | places[cell]
                to = at + 8 + 4 * (cell - rows[row])
                for byte in range(4):
                    data[to + byte] = coupon >> 8 * byte & 255
        else:
            data[at] = 10
            data[at + 5] = 8 | 16
            data[at + 7] = 10
            for cell in range(rows[row], rows[row + 1]):
                data[at + 40 + places[cell]] = numbers[cell]


def _read(data: NDArray[np.uint8], begins: Longs, bits: int) -> tuple[Longs, Longs]:
    """Sketches as registers, packed; those with more of them are folded."""
    sizes = np.zeros(len(begins) - 1, np.int64)
    bad = _measure(data, begins, bits, sizes)
    if bad >= 0:
        head = bytes(data[begins[bad] : min(begins[bad] + 8, begins[bad + 1])])
        made = f"has {1 << head[3]}" if len(head) > 3 and head[2] == 7 and head[3] < bits else "is none of HLL_8"
        raise BadAggregate(
            f"sketches of distinct values are merged into {1 << bits} registers, and one {made}: write error=… as it "
            "was where they were made, or a greater one"
        )
    starts = np.append(0, np.cumsum(sizes))
    found = np.empty(starts[-1], np.int64)
    _unpack(data, begins, bits, starts, found)
    return starts, found


@compiled
def _measure(data: NDArray[np.uint8], begins: Longs, bits: int, sizes: Longs) -> int:
    for row in range(len(sizes)):
        at = begins[row]
        length = begins[row + 1] - at
        if length == 0:
            continue
        if length < 8 or data[at + 1] != 1 or data[at + 2] != 7 or data[at + 3] < bits or data[at + 3] > 26:
            return row
        mode = data[at + 7] & 3
        if mode < 2:
            if mode == 0 and length < 8 + 4 * data[at + 6]:
                return row
            first = at + 8 if mode == 0 else at + 12
            count = data[at + 6] if mode == 0 else (length - 12) // 4
            for cell in range(count):
                to = first + 4 * cell
                if data[to + 3] != 0 or data[to + 2] != 0 or data[to + 1] != 0 or data[to] != 0:
                    sizes[row] += 1
        else:
            if mode != 2 or data[at + 7] >> 2 & 3 != 2 or length < 40 + (1 << int(data[at + 3])):
                return row
            for place in range(1 << int(data[at + 3])):
                if data[at + 40 + place] > 0:
                    sizes[row] += 1
    return -1


@compiled
def _unpack(data: NDArray[np.uint8], begins: Longs, bits: int, starts: Longs, found: Longs) -> None:
    mask = (1 << bits) - 1
    for row in range(len(begins) - 1):
        at = begins[row]
        to = starts[row]
        if begins[row + 1] == at:
            continue
        mode = data[at + 7] & 3
        if mode == 2:
            for place in range(1 << int(data[at + 3])):
                if data[at + 40 + place] > 0:
                    found[to] = (place & mask) << 6 | min(int(data[at + 40 + place]), 44)
                    to += 1
        else:
            first = at + 8 if mode == 0 else at + 12
            count = data[at + 6] if mode == 0 else (begins[row + 1] - first) // 4  # as `_measure` counts them
            for cell in range(count):
                coupon = 0
                for byte in range(4):
                    coupon |= int(data[first + 4 * cell + byte]) << 8 * byte
                if coupon != 0:
                    found[to] = (coupon & mask) << 6 | min(coupon >> 26, 44)
                    to += 1
