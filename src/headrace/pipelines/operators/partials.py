"""Each aggregate as partial results: what is kept of it, how rows become it, how it combines, what comes out.

Here: what an aggregate is, and those that count and add.

An aggregate leaves nulls out. So a condition (`where`) needs nothing of it: before the operator it becomes a column
that is null where the condition does not hold, and the aggregate is computed of that column, whose name says what it
is.
"""

# ruff: noqa: ARG002 - what the methods do is said once, in `Aggregate`; not each needs all it is given

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Self, Union

import numpy as np
import pyarrow as pa

from headrace.pipelines.operators import limbs
from headrace.pipelines.operators.cells import Cell, Moments, Sum
from headrace.pipelines.operators.errors import BadAggregate
from headrace.pipelines.operators.grouping import Longs

if TYPE_CHECKING:
    from pyspark.sql import Column

Arrays = list[pa.Array]
Where = Union[str, "Column", None]
"""A condition on rows: SQL text, or a column of Spark's."""
PREPARED = "(agg) "
"""What the names of columns begin with that are made for an aggregate."""


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
    """What is computed of a field (or of none), of the rows that a condition holds for."""

    field: str | None
    where: Where = dataclasses.field(
        default=None, kw_only=True, repr=False
    )  # in what is computed it is part of the field

    @property
    def names(self) -> tuple[str, ...]:
        """The columns that it looks at."""
        return () if self.field is None else (self.field,)

    def prepared(self, *, of_table: bool = False) -> "tuple[Self, dict[str, Column]]":
        """The aggregate as it is computed, and the columns that have to be made for it before, by name."""
        if self.where is None:
            return self, {}
        from pyspark.sql import functions as fn

        value = fn.lit(True) if self.field is None else fn.col(f"`{self.field}`")
        name, column = self.held(value, self.field or "*")
        return replace(self, field=name, where=None), {name: column}

    def held(self, value: "Column", called: str) -> "tuple[str, Column]":
        """A column of a value where the condition holds, and its name."""
        from pyspark.sql import functions as fn

        if self.where is None:
            return f"{PREPARED}{called}", value
        condition = fn.expr(self.where) if isinstance(self.where, str) else self.where
        text = self.where if isinstance(self.where, str) else str(self.where)
        return f"{PREPARED}{called} where {text}".replace("`", ""), fn.when(condition, value)

    @property
    def column(self) -> "Column":
        """The field, for Spark."""
        from pyspark.sql import functions as fn

        return fn.col(f"`{self.field}`")

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
        return f"{type(self).__name__.lower()}({(self.field or '').removeprefix(PREPARED)})"

    def _refuse(self, kind: pa.DataType, want: str) -> BadAggregate:
        return BadAggregate(f"{self.named}: field {(self.field or '').removeprefix(PREPARED)!r} is {kind}, and {want}")


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

        return fn.count(self.column if self.field else fn.lit(1))


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

        return fn.sum(self.column)


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

        return fn.avg(self.column)


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

        return fn.stddev_samp(self.column)
