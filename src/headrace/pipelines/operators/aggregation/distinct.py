"""How many different values there are: `count_distinct`, in windows and as parts of groups.

A group of a table that loses rows too adds up marks, which an operator before it sets when a value appears or
disappears: that operator looks at one value of one group at a time, which is why a change costs the same however many
there are. Where a table only grows, a value once seen stays: the group itself knows its values, and the second operator
is saved.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column
from pyspark.sql import functions as fn

from headrace.pipelines.keyed.operator import Keyed, Rows, Table
from headrace.pipelines.operators.aggregation.algebra import Arrays, Call, Loaded, Part, Step, valid_in
from headrace.pipelines.operators.aggregation.ordered import Listed, as_bag, from_bag, lists_of
from headrace.pipelines.operators.aggregation.ordering import is_ordered, ranks
from headrace.pipelines.operators.grouping import Longs


@dataclass(frozen=True)
class Distinct(Listed):
    """How many different values."""

    def state(self, kind: pa.DataType) -> list[tuple[str, pa.DataType]]:
        if not is_ordered(kind):
            raise self._refuse(kind, "its values cannot be compared: take a field of it")
        return [("seen", pa.list_(kind))]

    def result(self, kind: pa.DataType) -> pa.DataType:
        return pa.int64()

    def lift(self, values: pa.Array, time: Longs) -> Arrays:
        return [lists_of(valid_in(values), values.drop_null())]

    def load(self, columns: Sequence[pa.Array]) -> Loaded:
        (lists,) = columns
        values = lists.flatten()
        places, rows = ranks([values])
        return Loaded((as_bag(lists, places, distinct=True),), (values.take(pa.array(rows)),))

    def finish(self, loaded: Loaded, kind: pa.DataType) -> pa.Array:
        return from_bag(loaded).value_lengths().cast(pa.int64())

    def native(self, time: Column) -> Column:
        return fn.size(fn.collect_set(self.column)).cast("bigint")

    def part(self, name: str, rows: pa.Schema, *, inserts: bool) -> Part:
        kind = self.kind_in(rows)
        return Different(name, self.field or "", kind) if inserts and not pa.types.is_nested(kind) else Marks("")


@dataclass(frozen=True)
class Marks(Part):
    """Adds up marks that an operator before has set: +1 for a value that is new, -1 for one that is gone."""

    column: str

    def step(self, call: Call, held: list[Longs]) -> Step:
        marks = np.asarray(call.rows.column(self.column).fill_null(0), np.int64)
        n = held[0] + call.add_up(marks)
        return Step([n], pa.array(held[0]), pa.array(n), n != held[0])


@dataclass(frozen=True)
class Different(Part):
    """How many different values a group of a table that only grows has had: a part of the group. Null is not counted.

    The values of the groups of a call are looked through for those that it brings, which are few: a probe each.
    """

    name: str
    field: str
    kind: pa.DataType

    @property
    def tables(self) -> tuple[Table, ...]:
        fields = [pa.field("(at)", pa.int64(), nullable=False), pa.field("value", self.kind)]
        return (Rows(f"{self.name}.values", pa.schema(fields), "(at)"),)

    def step(self, call: Call, held: list[Longs]) -> Step:
        (table,) = self.tables
        values = _zeroed(call.rows.column(self.field))
        there = np.flatnonzero(np.asarray(values.is_valid()) & (call.weight > 0))
        words = values.take(pa.array(there)).unique()
        number = np.asarray(pc.index_in(values.take(pa.array(there)), words), np.int64)
        pair = call.key[there] * max(len(words), 1) + number
        pair, first = np.unique(pair, return_index=True)
        old = call.state.read(table.name)
        known = pc.index_in(old.rows.column(1), words)
        is_known = np.flatnonzero(np.asarray(known.is_valid()))
        before = old.key[is_known] * max(len(words), 1) + np.asarray(known.take(pa.array(is_known)), np.int64)
        rows = there[first[~np.isin(pair, before)]]
        n = held[0] + np.bincount(call.key[rows], minlength=call.count)
        columns = [pa.array(np.zeros(len(rows), np.int64)), values.take(pa.array(rows))]
        fresh = Keyed(call.key[rows], pa.RecordBatch.from_arrays(columns, schema=table.schema))
        return Step([n], pa.array(held[0]), pa.array(n), n != held[0], append={table.name: fresh})


def _zeroed(values: pa.Array) -> pa.Array:
    """-0.0 is 0.0."""
    return pc.add(values, pa.scalar(0.0, values.type)) if pa.types.is_floating(values.type) else values
