"""Aggregates that go by an order: least and greatest, of a value or by another, first and last, and all values."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column
from pyspark.sql import functions as fn

from headrace.pipelines.operators.aggregation.algebra import Aggregate, Arrays, Loaded, Part, valid_in
from headrace.pipelines.operators.aggregation.cells import Bag, Cut, Extreme
from headrace.pipelines.operators.aggregation.heads import Ordered
from headrace.pipelines.operators.aggregation.ordering import as_numbers, from_numbers, is_direct, is_ordered, ranks
from headrace.pipelines.operators.errors import BadAggregate
from headrace.pipelines.operators.grouping import Longs

_TIME = ("at", pa.int64())


def _timed(value: Column, time: Column) -> Column:
    """A value with its time, where there is one."""
    return fn.when(value.isNotNull(), fn.struct(time.alias("at"), value.alias("value")))


def _pick(column: pa.Array, cell: Extreme) -> pa.Array:
    """The rows that an extreme of places names."""
    return column.take(pa.array(cell.values, mask=~cell.valid))


@dataclass(frozen=True)
class Best(Aggregate):
    """The least or the greatest value."""

    greatest: bool

    def state(self, kind: pa.DataType) -> list[tuple[str, pa.DataType]]:
        if not is_ordered(kind):
            raise self._refuse(kind, "it has no order: take a field of it, or a number or text made of it")
        return [("best", kind)]

    def lift(self, values: pa.Array, time: Longs) -> Arrays:
        return [values]

    def load(self, columns: Sequence[pa.Array]) -> Loaded:
        (values,) = columns
        if is_direct(values.type):
            return Loaded((Extreme(as_numbers(values), valid_in(values), self.greatest),))
        places, rows = ranks([values])
        return Loaded((Extreme(places, valid_in(values), self.greatest),), (values.take(pa.array(rows)),))

    def store(self, loaded: Loaded, kind: pa.DataType) -> Arrays:
        (cell,) = loaded.cells
        assert isinstance(cell, Extreme)
        return [_pick(loaded.rows[0], cell) if loaded.rows else from_numbers(cell.values, cell.valid, kind)]

    def native(self, time: Column) -> Column:
        return (fn.max if self.greatest else fn.min)(self.column)

    def part(self, name: str, rows: pa.Schema, *, inserts: bool) -> Part:
        field = pa.field(self.field or "", self.kind_in(rows))
        return Ordered(name, (field,), (self.greatest,), 1, self.names, self.names, single=True, inserts=inserts)


@dataclass(frozen=True)
class BestBy(Best):
    """The value of the row with the least or the greatest `by`; among equal ones the least or greatest value, not null.

    In windows it is computed of a column of both: `by`, whether there is a value, the value.
    """

    by: str
    present: str | None = None
    """In groups of a table, a column that is null where the condition does not hold."""

    @property
    def names(self) -> tuple[str, ...]:
        return (self.field or "", self.by)

    @property
    def named(self) -> str:
        return f"{'max' if self.greatest else 'min'}_by({self.field}, {self.by})"

    def prepare(self, *, of_table: bool = False) -> tuple[Self, dict[str, Column]]:
        if of_table:
            return self.prepare_present()
        by, value = fn.col(f"`{self.by}`"), self.column
        there = value.isNotNull() if self.greatest else value.isNull()
        both = fn.struct(by.alias("by"), there.alias("there"), value.alias("value"))
        name, column = self.make_column(fn.when(by.isNotNull(), both), f"{self.field} by {self.by}")
        return replace(self, field=name, where=None), {name: column}

    def state(self, kind: pa.DataType) -> list[tuple[str, pa.DataType]]:
        for part in kind:
            if not is_ordered(part.type):
                raise BadAggregate(f"{self.named}: {part.type} has no order, so that equal rows cannot be ordered")
        return [("best", kind)]

    def result(self, kind: pa.DataType) -> pa.DataType:
        return kind.field("value").type

    def finish(self, loaded: Loaded, kind: pa.DataType) -> pa.Array:
        return pc.struct_field(self.store(loaded, kind)[0], "value")

    def native(self, time: Column) -> Column:
        return super().native(time)["value"]

    def part(self, name: str, rows: pa.Schema, *, inserts: bool) -> Part:
        both = tuple(pa.field(column, rows.field(column).type) for column in dict.fromkeys((self.by, self.field or "")))
        self.state(pa.struct(both))
        wanted = (self.by, *([self.present] if self.present else []))
        down = (self.greatest,) * len(both)
        return Ordered(name, both, down, 1, (self.field or "",), wanted, single=True, inserts=inserts)


@dataclass(frozen=True)
class Edge(Aggregate):
    """The earliest or the latest value."""

    latest: bool

    def state(self, kind: pa.DataType) -> list[tuple[str, pa.DataType]]:
        if not is_ordered(kind):
            raise self._refuse(kind, "rows of the same time cannot be ordered: take a field of it")
        return [_TIME, ("value", kind)]

    def lift(self, values: pa.Array, time: Longs) -> Arrays:
        return [pa.array(time, mask=~valid_in(values)), values]

    def load(self, columns: Sequence[pa.Array]) -> Loaded:
        places, rows = ranks(columns)
        picked = tuple(column.take(pa.array(rows)) for column in columns)
        return Loaded((Extreme(places, valid_in(columns[0]), self.latest),), picked)

    def store(self, loaded: Loaded, kind: pa.DataType) -> Arrays:
        (cell,) = loaded.cells
        assert isinstance(cell, Extreme)
        return [_pick(column, cell) for column in loaded.rows]

    def finish(self, loaded: Loaded, kind: pa.DataType) -> pa.Array:
        return self.store(loaded, kind)[1]

    def native(self, time: Column) -> Column:
        return (fn.max if self.latest else fn.min)(_timed(self.column, time))["value"]


@dataclass(frozen=True)
class Listed(Aggregate):
    """Those that keep lists, to which each row adds one value at most."""

    def store(self, loaded: Loaded, kind: pa.DataType) -> Arrays:
        return [from_bag(loaded)]


def lists_of(sizes: Any, values: pa.Array) -> pa.ListArray:
    """Values one behind the other as lists of these sizes."""
    offsets = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int32)
    return pa.ListArray.from_arrays(pa.array(offsets), values)


def as_bag(lists: pa.ListArray, places: Longs, *, distinct: bool, cut: Cut | None = None) -> Bag:
    """Lists with places instead of their values."""
    return Bag(lists_of(lists.value_lengths().fill_null(0), pa.array(places)), distinct, cut)


def from_bag(loaded: Loaded) -> pa.ListArray:
    """The way back."""
    (cell,) = loaded.cells
    assert isinstance(cell, Bag)
    # `flatten` and lengths instead of the raw parts: taken rows may share or skip what lies under them.
    return lists_of(cell.lists.value_lengths(), loaded.rows[0].take(cell.lists.flatten()))


@dataclass(frozen=True)
class Collected(Listed):
    """All values."""

    def state(self, kind: pa.DataType) -> list[tuple[str, pa.DataType]]:
        if not is_ordered(kind):
            raise self._refuse(kind, "rows of the same time could not be put in order: take a field of it")
        return [("all", pa.list_(pa.struct([_TIME, ("value", kind)])))]

    def result(self, kind: pa.DataType) -> pa.DataType:
        return pa.list_(kind)

    def lift(self, values: pa.Array, time: Longs) -> Arrays:
        pairs = pa.StructArray.from_arrays([pa.array(time[valid_in(values)]), values.drop_null()], ["at", "value"])
        return [lists_of(valid_in(values), pairs)]

    def load(self, columns: Sequence[pa.Array]) -> Loaded:
        (lists,) = columns
        pairs = lists.flatten()
        parts = pairs.flatten()
        places, rows = ranks(parts)
        return Loaded((as_bag(lists, places, distinct=False),), (pairs.take(pa.array(rows)),))

    def finish(self, loaded: Loaded, kind: pa.DataType) -> pa.Array:
        lists = from_bag(loaded)
        return pa.ListArray.from_arrays(lists.offsets, pc.struct_field(lists.values, "value"))

    def native(self, time: Column) -> Column:
        return fn.transform(fn.array_sort(fn.collect_list(_timed(self.column, time))), lambda each: each["value"])

    def part(self, name: str, rows: pa.Schema, *, inserts: bool) -> Part:
        field = pa.field(self.field or "", self.kind_in(rows))
        return Ordered(name, (field,), (False,), None, self.names, self.names, bare=True, inserts=inserts)
