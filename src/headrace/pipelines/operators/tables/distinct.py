"""`distinct_changes`: rows of some columns, each once however often it is there; and how different values are counted.

Both look at one value of one group at a time, which is why a change costs the same however many there are. For that,
different values of a table that loses rows too are counted by an operator of their own, before the groups. Where a
table only grows, a value once seen stays: the group itself knows its values, and the second operator is saved.
"""

# ruff: noqa: ARG002 - the engine hands over more than each operator needs

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.pipelines.keyed.operator import (
    NOTHING,
    Batch,
    Changes,
    Due,
    Keyed,
    Longs,
    Plan,
    Rows,
    State,
    Table,
    Times,
    Values,
)
from headrace.pipelines.operators.errors import BadField, as_names, require
from headrace.pipelines.operators.frames import Transform, arrow_schema, over_keys
from headrace.pipelines.operators.tables.form import NAMES, TIME, WEIGHT, check_form, row_names
from headrace.pipelines.operators.tables.grouped_form import in_form
from headrace.pipelines.operators.tables.grouped_parts import Call, Step
from headrace.pipelines.operators.tables.grouped_rows import GroupedRows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

ROWS: Final = "rows"
_COUNT: Final = pa.schema([("rows", pa.int64())])


def distinct_changes(columns: str | Sequence[str] = (), *, buckets: int | None = None) -> Transform:
    """The different rows of some columns (of all, if none are named): a table as changes in, one out.

    A row appears when the first of its kind does and disappears with the last. Its version is always the same, because
    a row of the same columns is the same row.
    """
    named = as_names(columns)

    def apply(frame: "DataFrame") -> "DataFrame":
        check_form(arrow_schema(frame), "the input of distinct_changes")
        chosen = named or tuple(row_names(frame.columns))
        require(chosen, frame.columns, "distinct_changes")
        for name in chosen:
            if name in NAMES:
                raise BadField(f"distinct_changes names {name!r}, which is not a column of the row: leave it out")
        some = frame.select(*(f"`{name}`" for name in dict.fromkeys([*chosen, WEIGHT, TIME])))
        made = over_keys(some, tuple(dict.fromkeys(chosen)), lambda _: GroupedRows({}), buckets)
        return in_form(made, tuple(dict.fromkeys(chosen)))

    return apply


@dataclass(frozen=True)
class DistinctMarks:
    """Passes rows on, and marks when a value of a group appears or disappears: +1 or -1 in a row of weight 0.

    Its keys are the group and the value; a value that is null is not counted.
    """

    field: str
    mark: str
    rows: pa.Schema

    def plan(self, keys: pa.Schema, rows: pa.Schema) -> Plan:
        """How many rows each value has."""
        return Plan(self._output(keys), (Values(ROWS, _COUNT),))

    def on_rows(self, batch: Batch, state: State, times: Times) -> Changes:
        """Every row as it came, behind it the marks."""
        count = batch.keys.num_rows
        weight = np.asarray(batch.rows.column(WEIGHT).fill_null(0)).astype(np.int64)
        held = state.read(ROWS)
        before = np.zeros(count, np.int64)
        before[held.key] = np.asarray(held.rows.column(0))
        after = before + Call(count, batch.key, batch.rows, weight, state).summed(weight)
        there = np.asarray(batch.keys.column(self.field).is_valid())
        flipped = np.flatnonzero(there & ((before > 0) != (after > 0)))
        # A row of each key that has one, for the columns that a mark needs: its time.
        a_row = np.zeros(count, np.int64)
        a_row[batch.key] = np.arange(len(batch))
        others = [name for name in self.rows.names if name not in batch.keys.schema.names]
        columns = []
        for name in others:
            column = batch.rows.column(name)
            if name == TIME:
                marked = column.take(pa.array(a_row[flipped]))
            elif name == WEIGHT:
                marked = pa.array(np.zeros(len(flipped)), column.type)
            else:
                marked = pa.nulls(len(flipped), column.type)
            columns.append(pa.concat_arrays([column, marked]))
        signs = np.where(after[flipped] > 0, 1, -1).astype(np.int32)
        columns.append(pa.concat_arrays([pa.nulls(len(batch), pa.int32()), pa.array(signs)]))
        schema = self._output(batch.keys.schema)
        emit = Keyed(np.concatenate([batch.key, flipped]), pa.RecordBatch.from_arrays(columns, schema=schema))
        put = np.flatnonzero((after != 0) & (after != before))
        kept = Keyed(put, pa.RecordBatch.from_arrays([pa.array(after[put])], schema=_COUNT))
        return Changes(emit=emit, put={ROWS: kept}, delete={ROWS: np.flatnonzero((after == 0) & (before != 0))})

    def on_timers(self, due: Due, state: State, times: Times) -> Changes:
        """No timer is ever set."""
        return NOTHING

    def _output(self, keys: pa.Schema) -> pa.Schema:
        """The columns of rows, which are null in a mark, and the mark."""
        others = [field.with_nullable(True) for field in self.rows if field.name not in keys.names]
        return pa.schema([*others, pa.field(self.mark, pa.int32())])


@dataclass(frozen=True)
class Different:
    """How many different values a group of a table that only grows has had: a part of the group. Null is not counted.

    The values of the groups of a call are looked through for those that it brings, which are few: a probe each.
    """

    name: str
    field: str
    kind: pa.DataType

    @property
    def result(self) -> pa.DataType:
        """A number."""
        return pa.int64()

    @property
    def columns(self) -> tuple[str, ...]:
        """How many."""
        return ("n",)

    @property
    def tables(self) -> tuple[Table, ...]:
        """The values, each once."""
        fields = [pa.field("(at)", pa.int64(), nullable=False), pa.field("value", self.kind)]
        return (Rows(f"{self.name}.values", pa.schema(fields), "(at)"),)

    def step(self, call: Call, held: list[Longs]) -> Step:
        """Values that are new to their group."""
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
