"""Each aggregate as partial results: what is kept of it, how rows become it, how it combines, what comes out.

Here: what an aggregate is, and those that count and add.
"""

# ruff: noqa: D102, ARG002 - what the methods do is said once, in `Aggregate`; not each needs all it is given

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from headrace.pipelines.operators import limbs
from headrace.pipelines.operators.cells import Cell, Moments, Sum
from headrace.pipelines.operators.errors import BadAggregate
from headrace.pipelines.operators.grouping import Longs

if TYPE_CHECKING:
    from pyspark.sql import Column

Arrays = list[pa.Array]


@dataclass(frozen=True)
class Loaded:
    """Partial results of one aggregate, ready to be combined. `rows` are the columns that cells number the rows of."""

    cells: tuple[Cell, ...]
    rows: tuple[pa.Array, ...] = ()

    def map(self, change: Callable[[Cell], Cell]) -> "Loaded":
        """The same done to every cell."""
        return Loaded(tuple(change(cell) for cell in self.cells), self.rows)


@dataclass(frozen=True)
class Aggregate:
    """What is computed of a field (or of none)."""

    field: str | None

    def state(self, kind: pa.DataType) -> list[tuple[str, pa.DataType]]:
        """The columns in which a partial result is kept, for a field of that type; `BadAggregate` if it cannot be."""
        raise NotImplementedError

    def result(self, kind: pa.DataType) -> pa.DataType:
        """The type of what comes out."""
        raise NotImplementedError

    def lift(self, values: pa.Array, time: Longs) -> Arrays:
        """A partial result for each row."""
        raise NotImplementedError

    def load(self, columns: Sequence[pa.Array]) -> Loaded:
        """Kept columns as cells."""
        raise NotImplementedError

    def store(self, loaded: Loaded, kind: pa.DataType) -> Arrays:
        """Cells as kept columns."""
        raise NotImplementedError

    def finish(self, loaded: Loaded, kind: pa.DataType) -> pa.Array:
        """Cells as results."""
        raise NotImplementedError

    def native(self, time: "Column") -> "Column":
        """The same as an aggregate of Spark's."""
        raise BadAggregate(f"{self.named} is none that Spark can compute by itself")

    @property
    def named(self) -> str:
        """As a user wrote it."""
        return f"{type(self).__name__.lower()}({self.field or ''})"

    def _refuse(self, kind: pa.DataType, want: str) -> BadAggregate:
        return BadAggregate(f"{self.named}: field {self.field!r} is {kind}, and {want}")


def valid_in(values: pa.Array) -> Any:
    """Where there are values."""
    return np.asarray(values.is_valid())


def _ints(values: pa.Array) -> Any:
    return np.asarray(values, np.int64)


@dataclass(frozen=True)
class Count(Aggregate):
    """Rows, or values that are not null."""

    def state(self, kind: pa.DataType) -> list[tuple[str, pa.DataType]]:
        return [("n", pa.int64())]

    def result(self, kind: pa.DataType) -> pa.DataType:
        return pa.int64()

    def lift(self, values: pa.Array, time: Longs) -> Arrays:
        return [pa.array(valid_in(values).astype(np.int64) if self.field else np.ones(len(time), np.int64))]

    def load(self, columns: Sequence[pa.Array]) -> Loaded:
        return Loaded((Sum(_ints(columns[0])),))

    def store(self, loaded: Loaded, kind: pa.DataType) -> Arrays:
        return [pa.array(loaded.cells[0].values)]  # type: ignore[attr-defined]

    def finish(self, loaded: Loaded, kind: pa.DataType) -> pa.Array:
        return self.store(loaded, kind)[0]

    def native(self, time: "Column") -> "Column":
        from pyspark.sql import functions as fn

        return fn.count(self.field) if self.field else fn.count(fn.lit(1))


@dataclass(frozen=True)
class _Numbers(Aggregate):
    """What sum and average keep: exact pieces, or a double, and how many values there were."""

    def state(self, kind: pa.DataType) -> list[tuple[str, pa.DataType]]:
        if not (pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)):
            raise self._refuse(kind, "only numbers can be summed: cast it to one first")
        pieces = self._pieces(kind)
        sums = [(f"limb{at}", pa.int64()) for at in range(pieces)] if pieces else [("sum", pa.float64())]
        return [("n", pa.int64()), *sums]

    def lift(self, values: pa.Array, time: Longs) -> Arrays:
        n = pa.array(valid_in(values).astype(np.int64))
        if self._pieces(values.type):
            return [n, *map(pa.array, limbs.split(values))]
        return [n, values.cast(pa.float64()).fill_null(0.0)]

    def load(self, columns: Sequence[pa.Array]) -> Loaded:
        return Loaded(tuple(Sum(np.asarray(column)) for column in columns))

    def store(self, loaded: Loaded, kind: pa.DataType) -> Arrays:
        return [pa.array(cell.values) for cell in loaded.cells]  # type: ignore[attr-defined]

    def _pieces(self, kind: pa.DataType) -> int:
        raise NotImplementedError

    def _read(self, loaded: Loaded) -> tuple[Any, list[Any]]:
        n, *sums = [cell.values for cell in loaded.cells]  # type: ignore[attr-defined]
        return n, sums


@dataclass(frozen=True)
class Total(_Numbers):
    """A sum."""

    def result(self, kind: pa.DataType) -> pa.DataType:
        if pa.types.is_decimal(kind):
            return pa.decimal128(min(38, kind.precision + 10), kind.scale)
        return pa.int64() if pa.types.is_integer(kind) else pa.float64()

    def finish(self, loaded: Loaded, kind: pa.DataType) -> pa.Array:
        n, sums = self._read(loaded)
        what = f"a sum of {self.field!r}"
        if pa.types.is_decimal(kind):
            return limbs.decimals(sums, n > 0, self.result(kind), what)
        return pa.array(limbs.joined(sums, what) if self._pieces(kind) else sums[0], mask=n == 0)

    def _pieces(self, kind: pa.DataType) -> int:
        return 0 if pa.types.is_floating(kind) else limbs.limbs_needed(kind)

    def native(self, time: "Column") -> "Column":
        from pyspark.sql import functions as fn

        return fn.sum(self.field or "")


@dataclass(frozen=True)
class Mean(_Numbers):
    """An average."""

    def result(self, kind: pa.DataType) -> pa.DataType:
        if pa.types.is_decimal(kind):
            return _adjusted(kind.precision + 4, kind.scale + 4)
        return pa.float64()

    def finish(self, loaded: Loaded, kind: pa.DataType) -> pa.Array:
        n, sums = self._read(loaded)
        if pa.types.is_decimal(kind):
            return limbs.means(sums, n, kind.scale, self.result(kind))
        return pa.array(sums[0] / np.maximum(n, 1), mask=n == 0)

    def _pieces(self, kind: pa.DataType) -> int:
        return 4 if pa.types.is_decimal(kind) else 0

    def native(self, time: "Column") -> "Column":
        from pyspark.sql import functions as fn

        return fn.avg(self.field or "")


def _adjusted(precision: int, scale: int) -> pa.DataType:
    """A decimal type within 38 digits, as Spark bounds it."""
    return pa.decimal128(min(precision, 38), min(scale, 38))


@dataclass(frozen=True)
class Deviation(Aggregate):
    """A sample's standard deviation."""

    def state(self, kind: pa.DataType) -> list[tuple[str, pa.DataType]]:
        if not (pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)):
            raise self._refuse(kind, "only numbers deviate: cast it to one first")
        return [("n", pa.int64()), ("mean", pa.float64()), ("squares", pa.float64())]

    def result(self, kind: pa.DataType) -> pa.DataType:
        return pa.float64()

    def lift(self, values: pa.Array, time: Longs) -> Arrays:
        n = pa.array(valid_in(values).astype(np.int64))
        return [n, values.cast(pa.float64()).fill_null(0.0), pa.array(np.zeros(len(values)))]

    def load(self, columns: Sequence[pa.Array]) -> Loaded:
        return Loaded((Moments(*(np.asarray(column) for column in columns)),))

    def store(self, loaded: Loaded, kind: pa.DataType) -> Arrays:
        (cell,) = loaded.cells
        assert isinstance(cell, Moments)
        return [pa.array(cell.count), pa.array(cell.mean), pa.array(cell.squares)]

    def finish(self, loaded: Loaded, kind: pa.DataType) -> pa.Array:
        (cell,) = loaded.cells
        assert isinstance(cell, Moments)
        return pa.array(np.sqrt(cell.squares / np.maximum(cell.count - 1, 1)), mask=cell.count < 2)

    def native(self, time: "Column") -> "Column":
        from pyspark.sql import functions as fn

        return fn.stddev_samp(self.field or "")
