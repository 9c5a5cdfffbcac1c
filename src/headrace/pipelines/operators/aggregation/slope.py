"""`slope`: how fast a value changes with event time, the line through all by least squares."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from headrace.pipelines.operators.aggregation.algebra import Aggregate, Arrays, Loaded, valid_in
from headrace.pipelines.operators.aggregation.cells import Array, Cell
from headrace.pipelines.operators.grouping import Groups, Longs

_PARTS = ("n", "time", "value", "spread", "together")


@dataclass(frozen=True)
class Line(Cell):
    """How many points, the means of both, and sums of products of distances from them, which lose no digits."""

    n: Array
    time: Array
    value: Array
    spread: Array
    together: Array

    def merge(self, other: "Line") -> "Line":
        n = self.n + other.n
        share = other.n / np.maximum(n, 1)
        later, higher = other.time - self.time, other.value - self.value
        weight = self.n * share
        return Line(
            n,
            self.time + later * share,
            self.value + higher * share,
            self.spread + other.spread + later * later * weight,
            self.together + other.together + later * higher * weight,
        )

    def reduce(self, groups: Groups) -> "Line":
        if not len(groups.starts):
            return self.take(groups.starts)
        order, starts = groups.order, groups.starts
        lengths = groups.ends - starts
        n = self.n[order]
        count = np.add.reduceat(n, starts)
        first = self.time[order][starts]
        away = np.where(n > 0, self.time[order] - np.repeat(first, lengths), 0.0)
        later = np.add.reduceat(n * away, starts) / np.maximum(count, 1)
        value = np.add.reduceat(n * self.value[order], starts) / np.maximum(count, 1)
        away = away - np.repeat(later, lengths)
        higher = self.value[order] - np.repeat(value, lengths)
        spread = np.add.reduceat(self.spread[order] + n * away * away, starts)
        together = np.add.reduceat(self.together[order] + n * away * higher, starts)
        return Line(count, first + later, value, spread, together)


@dataclass(frozen=True)
class Slope(Aggregate):
    """By how much the value grows in a time of `per` microseconds."""

    is_native = False

    per: int

    def state(self, kind: pa.DataType) -> list[tuple[str, pa.DataType]]:
        if not (pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)):
            raise self._refuse(kind, "only numbers have a slope: cast it to one first")
        return [(name, pa.float64()) for name in _PARTS]

    def result(self, kind: pa.DataType) -> pa.DataType:
        return pa.float64()

    def lift(self, values: pa.Array, time: Longs) -> Arrays:
        valid = valid_in(values)
        value = values.cast(pa.float64(), safe=False).fill_null(0.0)
        nothing = pa.array(np.zeros(len(valid)))
        return [pa.array(valid.astype(np.float64)), pa.array(time.astype(np.float64)), value, nothing, nothing]

    def load(self, columns: Sequence[pa.Array]) -> Loaded:
        return Loaded((Line(*(np.asarray(column) for column in columns)),))

    def store(self, loaded: Loaded, kind: pa.DataType) -> Arrays:
        (cell,) = loaded.cells
        return [pa.array(getattr(cell, name)) for name in _PARTS]

    def finish(self, loaded: Loaded, kind: pa.DataType) -> pa.Array:
        (cell,) = loaded.cells
        assert isinstance(cell, Line)
        flat = cell.spread <= 0
        return pa.array(cell.together / np.where(flat, 1.0, cell.spread) * self.per, mask=flat | (cell.n < 2))
