"""What an aggregate is: in windows, as partial results that combine; in groups, as parts that changes are added to.

An aggregate leaves nulls out. So a condition (`where`) needs nothing of it: before the operator it becomes a column
that is null where the condition does not hold, and the aggregate is computed of that column, whose name says what it
is.

In windows: what is kept of an aggregate, how rows become it, how it combines (`cells`), what comes out. In groups,
which lose rows too, all parts are linear: what is kept depends only on the sum of all weighted rows, never on their
order or on how they were cut into calls, and rows that are taken away before they came are as good as any. So the
difference between the results of a part before and after a call adds up over calls and micro-batches.
"""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pyspark.sql import Column
from pyspark.sql import functions as fn

from headrace.pipelines.keyed.operator import Keyed, State, Table
from headrace.pipelines.operators.aggregation.cells import Cell
from headrace.pipelines.operators.errors import BadAggregate
from headrace.pipelines.operators.grouping import Groups, Longs, group_rows

Arrays = list[pa.Array]
Flags = NDArray[np.bool_]
Where = str | Column | None
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
class Call:
    """The rows of a call: row i belongs to group `key[i]` of `count`, and counts `weight[i]` times."""

    count: int
    key: Longs
    rows: pa.RecordBatch
    weight: Longs
    state: State

    @cached_property
    def _groups(self) -> Groups:
        return group_rows(self.key)

    def add_up(self, values: Longs) -> Longs:
        """The sum of rows' values, by group."""
        groups = self._groups
        sums = np.zeros(self.count, np.int64)
        if len(groups.starts):
            sums[self.key[groups.firsts]] = np.add.reduceat(values[groups.order], groups.starts)
        return sums


@dataclass(frozen=True)
class Step:
    """What a part made of a call: its numbers from now on, its results before and after, and where these differ."""

    kept: list[Longs]
    before: pa.Array
    after: pa.Array
    altered: Flags
    put: Mapping[str, Keyed] = dataclasses.field(default_factory=dict)
    append: Mapping[str, Keyed] = dataclasses.field(default_factory=dict)
    delete: Mapping[str, Longs] = dataclasses.field(default_factory=dict)


class Part:
    """One aggregate of a group. Its text is stored with state: see `keyed.settings.describe`."""

    @property
    def result(self) -> pa.DataType:
        """The type of what comes out."""
        return pa.int64()

    @property
    def columns(self) -> tuple[str, ...]:
        """Whole numbers that it keeps, one of each a group, 0 at the beginning."""
        return ("n",)

    @property
    def tables(self) -> tuple[Table, ...]:
        """Tables that it keeps besides."""
        return ()

    def step(self, call: Call, held: list[Longs]) -> Step:
        """The rows of a call added; `held` are its numbers so far."""
        raise NotImplementedError


@dataclass(frozen=True)
class Aggregate:
    """What is computed of a field (or of none), of the rows that a condition holds for."""

    field: str | None
    where: Where = dataclasses.field(
        default=None, kw_only=True, repr=False
    )  # in what is computed it is part of the field

    is_native: ClassVar[bool] = True
    """Whether Spark can compute it by itself, in windows."""
    sparks: ClassVar[str]
    """Spark's function of the field, where that is all."""

    @property
    def names(self) -> tuple[str, ...]:
        """The columns that it looks at."""
        return () if self.field is None else (self.field,)

    @property
    def names_in_group(self) -> tuple[str, ...]:
        """The columns that it looks at in groups of a table."""
        present = getattr(self, "present", None)  # says where the condition holds, if it looks at several columns
        return (*self.names, *([present] if present else []))

    @property
    def named(self) -> str:
        """As a user wrote it."""
        return f"{type(self).__name__.lower()}({(self.field or '').removeprefix(PREPARED)})"

    @property
    def column(self) -> Column:
        """The field, for Spark."""
        return fn.col(f"`{self.field}`")

    def prepare(self, *, of_table: bool = False) -> tuple[Self, dict[str, Column]]:
        """The aggregate as it is computed, and the columns that have to be made for it before, by name."""
        if self.where is None:
            return self, {}
        value = fn.lit(True) if self.field is None else self.column
        name, column = self.make_column(value, self.field or "*")
        return replace(self, field=name, where=None), {name: column}

    def prepare_present(self) -> tuple[Self, dict[str, Column]]:
        """For groups, of an aggregate of several columns: one more that is null where the condition does not hold."""
        if self.where is None:
            return self, {}
        name, column = self.make_column(fn.lit(True), "*")
        return replace(self, where=None, present=name), {name: column}  # type: ignore[call-arg]

    def make_column(self, value: Column, called: str) -> tuple[str, Column]:
        """A column of a value where the condition holds, and its name."""
        if self.where is None:
            return f"{PREPARED}{called}", value
        condition = fn.expr(self.where) if isinstance(self.where, str) else self.where
        text = self.where if isinstance(self.where, str) else str(self.where)
        return f"{PREPARED}{called} where {text}".replace("`", ""), fn.when(condition, value)

    # --- in windows

    def state(self, kind: pa.DataType) -> list[tuple[str, pa.DataType]]:
        """The columns in which a partial result is kept, for a field of that type; `BadAggregate` if it cannot be."""
        raise NotImplementedError

    def result(self, kind: pa.DataType) -> pa.DataType:
        """The type of what comes out."""
        return kind

    def lift(self, values: pa.Array, time: Longs) -> Arrays:
        """A partial result for each row."""
        raise NotImplementedError

    def nothing(self, kind: pa.DataType, count: int) -> Arrays:
        """So many partial results of no rows: a null is left out, so they are those of nulls."""
        return self.lift(pa.nulls(count, kind), np.zeros(count, np.int64))

    def load(self, columns: Sequence[pa.Array]) -> Loaded:
        """Kept columns as cells."""
        raise NotImplementedError

    def store(self, loaded: Loaded, kind: pa.DataType) -> Arrays:
        """Cells as kept columns."""
        raise NotImplementedError

    def finish(self, loaded: Loaded, kind: pa.DataType) -> pa.Array:
        """Cells as results."""
        return self.store(loaded, kind)[0]

    def native(self, time: Column) -> Column:
        """The same as an aggregate of Spark's."""
        return getattr(fn, self.sparks)(self.column)  # type: ignore[no-any-return]

    # --- in groups

    def part(self, name: str, rows: pa.Schema, *, inserts: bool) -> Part:
        """What a group keeps of it, for rows of that schema; with `inserts` the table only grows."""
        raise BadAggregate(
            f"{name}: {self.named} cannot be kept of a table, because it cannot take back a row that is gone: use "
            "count, sum, avg, min, max, min_by, max_by, count_distinct, collect or top_n"
        )

    def kind_in(self, rows: pa.Schema) -> pa.DataType:
        """The type of its field, once it is known to fit."""
        kind = pa.null() if self.field is None else rows.field(self.field).type
        self.state(kind)
        return kind

    def _refuse(self, kind: pa.DataType, want: str) -> BadAggregate:
        return BadAggregate(f"{self.named}: field {(self.field or '').removeprefix(PREPARED)!r} is {kind}, and {want}")


def valid_in(values: pa.Array) -> Any:
    """Where there are values."""
    return np.asarray(values.is_valid())


def differ(one: pa.Array, other: pa.Array) -> Flags:
    """Where two columns of plain values differ; null equals null, NaN equals NaN."""
    equal: Any = pc.equal(one, other)
    if pa.types.is_floating(one.type):
        equal = pc.or_(equal, pc.and_(pc.is_nan(one), pc.is_nan(other)))
    both = pc.and_(one.is_null(), other.is_null())
    return ~np.asarray(pc.or_(equal.fill_null(False), both))
