"""Aggregates that go by the order of values or of time: least and greatest, first and last, all, different ones."""

# ruff: noqa: D102, ARG002 - what the methods do is said once, in `Aggregate`; not each needs all it is given

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.pipelines.operators.cells import Bag, Extreme
from headrace.pipelines.operators.grouping import Longs
from headrace.pipelines.operators.ordering import as_numbers, from_numbers, is_direct, is_ordered, ranks
from headrace.pipelines.operators.partials import Aggregate, Arrays, Loaded, valid_in

if TYPE_CHECKING:
    from pyspark.sql import Column

_TIME = ("at", pa.int64())


def _picked(column: pa.Array, cell: Extreme) -> pa.Array:
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

    def result(self, kind: pa.DataType) -> pa.DataType:
        return kind

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
        return [_picked(loaded.rows[0], cell) if loaded.rows else from_numbers(cell.values, cell.valid, kind)]

    def finish(self, loaded: Loaded, kind: pa.DataType) -> pa.Array:
        return self.store(loaded, kind)[0]

    def native(self, time: "Column") -> "Column":
        from pyspark.sql import functions as fn

        return (fn.max if self.greatest else fn.min)(self.field or "")


@dataclass(frozen=True)
class Edge(Aggregate):
    """The earliest or the latest value."""

    latest: bool

    def state(self, kind: pa.DataType) -> list[tuple[str, pa.DataType]]:
        if not is_ordered(kind):
            raise self._refuse(kind, "rows of the same time could not be told apart: take a field of it")
        return [_TIME, ("value", kind)]

    def result(self, kind: pa.DataType) -> pa.DataType:
        return kind

    def lift(self, values: pa.Array, time: Longs) -> Arrays:
        return [pa.array(time, mask=~valid_in(values)), values]

    def load(self, columns: Sequence[pa.Array]) -> Loaded:
        places, rows = ranks(columns)
        picked = tuple(column.take(pa.array(rows)) for column in columns)
        return Loaded((Extreme(places, valid_in(columns[0]), self.latest),), picked)

    def store(self, loaded: Loaded, kind: pa.DataType) -> Arrays:
        (cell,) = loaded.cells
        assert isinstance(cell, Extreme)
        return [_picked(column, cell) for column in loaded.rows]

    def finish(self, loaded: Loaded, kind: pa.DataType) -> pa.Array:
        return self.store(loaded, kind)[1]

    def native(self, time: "Column") -> "Column":
        from pyspark.sql import functions as fn

        value = fn.col(self.field or "")
        pair = fn.when(value.isNotNull(), fn.struct(time.alias("at"), value.alias("value")))
        return (fn.max if self.latest else fn.min)(pair)["value"]


@dataclass(frozen=True)
class Collected(Aggregate):
    """All values."""

    def state(self, kind: pa.DataType) -> list[tuple[str, pa.DataType]]:
        if not is_ordered(kind):
            raise self._refuse(kind, "rows of the same time could not be put in order: take a field of it")
        return [("all", pa.list_(pa.struct([_TIME, ("value", kind)])))]

    def result(self, kind: pa.DataType) -> pa.DataType:
        return pa.list_(kind)

    def lift(self, values: pa.Array, time: Longs) -> Arrays:
        valid = valid_in(values)
        offsets = np.concatenate([[0], np.cumsum(valid)]).astype(np.int32)
        keep = pa.array(np.flatnonzero(valid))
        pairs = pa.StructArray.from_arrays([pa.array(time[valid]), values.take(keep)], ["at", "value"])
        return [pa.ListArray.from_arrays(pa.array(offsets), pairs)]

    def load(self, columns: Sequence[pa.Array]) -> Loaded:
        (lists,) = columns
        pairs = lists.flatten()
        parts = pairs.flatten()
        places, rows = ranks(parts)
        return Loaded((_bag(lists, places, distinct=False),), (pairs.take(pa.array(rows)),))

    def store(self, loaded: Loaded, kind: pa.DataType) -> Arrays:
        return [_unbagged(loaded)]

    def finish(self, loaded: Loaded, kind: pa.DataType) -> pa.Array:
        lists = _unbagged(loaded)
        return pa.ListArray.from_arrays(lists.offsets, pc.struct_field(lists.values, "value"))

    def native(self, time: "Column") -> "Column":
        from pyspark.sql import functions as fn

        value = fn.col(self.field or "")
        pair = fn.when(value.isNotNull(), fn.struct(time.alias("at"), value.alias("value")))
        return fn.transform(fn.array_sort(fn.collect_list(pair)), lambda each: each["value"])


@dataclass(frozen=True)
class Distinct(Aggregate):
    """How many different values."""

    def state(self, kind: pa.DataType) -> list[tuple[str, pa.DataType]]:
        if not is_ordered(kind):
            raise self._refuse(kind, "its values cannot be compared: take a field of it")
        return [("seen", pa.list_(kind))]

    def result(self, kind: pa.DataType) -> pa.DataType:
        return pa.int64()

    def lift(self, values: pa.Array, time: Longs) -> Arrays:
        offsets = np.concatenate([[0], np.cumsum(valid_in(values))]).astype(np.int32)
        return [pa.ListArray.from_arrays(pa.array(offsets), values.drop_null())]

    def load(self, columns: Sequence[pa.Array]) -> Loaded:
        (lists,) = columns
        values = lists.flatten()
        places, rows = ranks([values])
        return Loaded((_bag(lists, places, distinct=True),), (values.take(pa.array(rows)),))

    def store(self, loaded: Loaded, kind: pa.DataType) -> Arrays:
        return [_unbagged(loaded)]

    def finish(self, loaded: Loaded, kind: pa.DataType) -> pa.Array:
        return _unbagged(loaded).value_lengths().cast(pa.int64())

    def native(self, time: "Column") -> "Column":
        from pyspark.sql import functions as fn

        return fn.size(fn.collect_set(self.field or "")).cast("bigint")


def _bag(lists: pa.ListArray, places: Longs, *, distinct: bool) -> Bag:
    sizes = np.asarray(lists.value_lengths().fill_null(0))
    offsets = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int32)
    return Bag(pa.ListArray.from_arrays(pa.array(offsets), pa.array(places)), distinct)


def _unbagged(loaded: Loaded) -> pa.ListArray:
    (cell,) = loaded.cells
    assert isinstance(cell, Bag)
    # `flatten` and lengths instead of the raw parts: taken rows may share or skip what lies under them.
    sizes = np.asarray(cell.lists.value_lengths())
    offsets = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int32)
    return pa.ListArray.from_arrays(pa.array(offsets), loaded.rows[0].take(cell.lists.flatten()))
