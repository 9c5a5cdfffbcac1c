"""`approx_percentile` and `percentile_sketch`: values at chosen places in the order of all, each nearly exact.

Values are counted in buckets whose edges grow by a factor, so that every value of a bucket is within the error of the
bucket's middle (C. Masson, J. Rim, H. Lee: DDSketch, 2019). Counting depends on no order and no chance, so a result is
the same however rows came. There are as many buckets as magnitudes that occur: with an error of 1 % some 230 for each
factor of 100, and never more than 71,000.

As bytes: `HRQ1`, how many buckets (int32), the error (double), the buckets' numbers (int32) and counts (int64), all
little-endian.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from math import ceil, log, log1p

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from headrace.pipelines.operators.aggregation.algebra import Aggregate, Arrays, Loaded, valid_in
from headrace.pipelines.operators.aggregation.sketches.tally import (
    ADD,
    Tally,
    as_lists,
    binary_of,
    bytes_of,
    singles,
    tally_of,
)
from headrace.pipelines.operators.errors import BadAggregate
from headrace.pipelines.operators.grouping import Longs

_MAGIC = np.frombuffer(b"HRQ1", np.uint8)
_HEAD = 16
_MOST_ROWS = 2**53
"""No stream has more, and sums of so many sketches with such counts are still whole numbers of 64 bits."""


@dataclass(frozen=True)
class Buckets(Aggregate):
    """The values at `shares` of all, in order; with `merged` of a column of sketches, with `given` as a sketch."""

    is_native = False

    error: float
    shares: tuple[float, ...] = ()
    several: bool = False
    merged: bool = False
    given: bool = False

    @property
    def named(self) -> str:
        return f"{'percentile_sketch' if self.given else 'approx_percentile'}({self.field})"

    @cached_property
    def _step(self) -> float:
        """The logarithm of the factor by which edges grow."""
        return log((1 + self.error) / (1 - self.error))

    @cached_property
    def _far(self) -> int:
        """What is added to a bucket of a number above 0, so that it is above 0 for the smallest; infinity is beyond."""
        return ceil(746 / self._step) + 1

    def state(self, kind: pa.DataType) -> list[tuple[str, pa.DataType]]:
        if self.merged and not (pa.types.is_binary(kind) or pa.types.is_large_binary(kind)):
            raise self._refuse(kind, "sketches are bytes, as percentile_sketch makes them")
        is_number = pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)
        if not self.merged and not is_number:
            raise self._refuse(kind, "only numbers have percentiles: cast it to one first")
        return [("buckets", pa.list_(pa.int32())), ("counts", pa.list_(pa.int64()))]

    def result(self, kind: pa.DataType) -> pa.DataType:
        if self.given:
            return pa.binary()
        return pa.list_(pa.float64()) if self.several else pa.float64()

    def lift(self, values: pa.Array, time: Longs) -> Arrays:
        if self.merged and not pa.types.is_null(values.type):
            return self._read(*bytes_of(values))
        valid = valid_in(values)
        numbers = np.asarray(values.cast(pa.float64(), safe=False).fill_null(0.0))[valid]
        starts = singles(valid)
        return [
            as_lists(starts, self._buckets(numbers), pa.int32()),
            as_lists(starts, np.ones(len(numbers), np.int64), pa.int64()),
        ]

    def load(self, columns: Sequence[pa.Array]) -> Loaded:
        return Loaded((tally_of(columns[0], columns[1], ADD),))

    def store(self, loaded: Loaded, kind: pa.DataType) -> Arrays:
        cell = _tally(loaded)
        return [
            as_lists(cell.starts, cell.places, pa.int32()),
            as_lists(cell.starts, cell.numbers, pa.int64()),
        ]

    def finish(self, loaded: Loaded, kind: pa.DataType) -> pa.Array:
        cell = _tally(loaded)
        if self.given:
            return self._write(cell)
        running = np.append(0, np.cumsum(cell.numbers))
        before = running[cell.starts[:-1]]
        n = running[cell.starts[1:]] - before
        found = np.zeros((len(n), len(self.shares)))
        for at, share in enumerate(self.shares):
            # The least value with at least that share of all at or below it, as SQL's percentile_disc.
            rank = np.clip(np.ceil(share * n - 1e-9).astype(np.int64), 1, np.maximum(n, 1))
            place = np.searchsorted(running, before + rank, side="left") - 1
            place = np.clip(place, 0, max(len(cell.places) - 1, 0))
            found[:, at] = self._values(cell.places[place]) if len(cell.places) else 0.0
        empty = n == 0
        if not self.several:
            return pa.array(found[:, 0], mask=empty)
        offsets = np.arange(len(n) + 1, dtype=np.int32) * len(self.shares)
        return pa.ListArray.from_arrays(pa.array(offsets), pa.array(found.ravel()), mask=pa.array(empty))

    def _buckets(self, numbers: NDArray[np.float64]) -> Longs:
        size = np.abs(numbers)
        with np.errstate(divide="ignore", invalid="ignore"):
            steps = np.ceil(np.log(size) / self._step)
        found = np.where((size > 0) & np.isfinite(size), steps, 0).astype(np.int64) + self._far
        found[np.isinf(size)] = 2 * self._far
        found = np.where(numbers < 0, -found, found)
        found[size == 0] = 0
        found[np.isnan(numbers)] = 2 * self._far + 1  # greater than every number
        return found

    def _values(self, bucket: Longs) -> NDArray[np.float64]:
        size = np.abs(bucket)
        with np.errstate(over="ignore"):
            # The middle is 2 * edge / (factor + 1).
            found = np.minimum(np.exp((size - self._far) * self._step + log1p(-self.error)), np.finfo(np.float64).max)
        found = np.where(size == 0, 0.0, np.where(size == 2 * self._far, np.inf, found)) * np.sign(bucket)
        found[bucket == 2 * self._far + 1] = np.nan
        return np.asarray(found, np.float64)

    def _write(self, cell: Tally) -> pa.Array:
        sizes = cell.sizes
        starts = np.append(0, np.cumsum(_HEAD + 12 * sizes))
        data = np.zeros(starts[-1], np.uint8)
        begin = starts[:-1, None]
        data[begin + np.arange(4)] = _MAGIC
        data[begin + np.arange(4, 8)] = sizes.astype("<i4").view(np.uint8).reshape(-1, 4)
        data[begin + np.arange(8, 16)] = np.full(len(sizes), self.error, "<f8").view(np.uint8).reshape(-1, 8)
        at, within = _cells(starts[:-1] + _HEAD, sizes)
        data[(at + 4 * within)[:, None] + np.arange(4)] = cell.places.astype("<i4").view(np.uint8).reshape(-1, 4)
        counts = at + 4 * np.repeat(sizes, sizes) + 8 * within
        data[counts[:, None] + np.arange(8)] = cell.numbers.astype("<i8").view(np.uint8).reshape(-1, 8)
        return binary_of(data, starts)

    def _read(self, data: NDArray[np.uint8], begins: Longs) -> Arrays:
        lengths = np.diff(begins)
        there = np.flatnonzero(lengths)
        begin = begins[:-1][there, None]
        if (lengths[there] < _HEAD).any() or (data[begin + np.arange(4)] != _MAGIC).any():
            raise BadAggregate(f"{self.named}: a value is no sketch as percentile_sketch makes them")
        errors = np.ascontiguousarray(data[begin + np.arange(8, 16)]).view("<f8").ravel()
        if (errors != self.error).any():
            other = float(errors[errors != self.error][0])
            raise BadAggregate(
                f"{self.named}: a sketch was made with error={other} and is merged with error={self.error}, whose "
                "buckets are others: write the same"
            )
        sizes = np.zeros(len(lengths), np.int64)
        sizes[there] = np.ascontiguousarray(data[begin + np.arange(4, 8)]).view("<i4").ravel()
        if (sizes[there] < 0).any() or (lengths[there] != _HEAD + 12 * sizes[there]).any():
            raise BadAggregate(f"{self.named}: a sketch is cut short")
        at, within = _cells(begins[:-1] + _HEAD, sizes)
        places = np.ascontiguousarray(data[(at + 4 * within)[:, None] + np.arange(4)]).view("<i4").ravel()
        counts = at + 4 * np.repeat(sizes, sizes) + 8 * within
        numbers = np.ascontiguousarray(data[counts[:, None] + np.arange(8)]).view("<i8").ravel()
        inside = (np.abs(places.astype(np.int64)) <= 2 * self._far) | (places == 2 * self._far + 1)
        if not inside.all() or (numbers < 1).any() or (numbers > _MOST_ROWS).any():
            raise BadAggregate(f"{self.named}: a sketch has buckets or counts that percentile_sketch does not make")
        starts = np.append(0, np.cumsum(sizes))
        return [as_lists(starts, places, pa.int32()), as_lists(starts, numbers, pa.int64())]


def _tally(loaded: Loaded) -> Tally:
    (cell,) = loaded.cells
    assert isinstance(cell, Tally)
    return cell


def _cells(begins: Longs, sizes: Longs) -> tuple[Longs, Longs]:
    """Of each bucket, where the buckets of its sketch begin, and which of them it is."""
    starts = np.append(0, np.cumsum(sizes))
    return np.repeat(begins, sizes), np.arange(starts[-1]) - np.repeat(starts[:-1], sizes)
