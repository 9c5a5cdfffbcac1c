"""Groups of a table as changes, over keyed state: a row for each group that has rows, emitted when it differs. Pure.

State: `groups`, a row a group with whole numbers, and what its parts keep besides. A group that has lost all rows keeps
its numbers, so that its revisions go on if it comes back: no two rows of a group have the same version. What a call
emits is the difference between the group's row before and after it, so that over the calls of a micro-batch, and over
micro-batches, all that was emitted adds up to the groups as they are, also if a call brings a row's end before its
beginning.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa

from headrace.pipelines.keyed.operator import NO_WATERMARK, Batch, Changes, Keyed, Plan, State, Times, Untimed, Values
from headrace.pipelines.operators.aggregation.algebra import Call, Flags, Part, Step
from headrace.pipelines.operators.grouping import Longs, highest
from headrace.pipelines.operators.tables.form import TIME, TIME_TYPE, WEIGHT, WEIGHT_TYPE
from headrace.pipelines.operators.times import times_of, timestamps

ROWS: Final = "rows"
_COUNT: Final = pa.schema([("rows", pa.int64())])
GROUPS: Final = "groups"
REVISION: Final = "_revision"
_OWN: Final = ("revision", "at", "rows")


@dataclass(frozen=True)
class GroupedRows(Untimed):
    """The operator: each part by the name of its column. Its keys are the groups."""

    parts: Mapping[str, Part]

    @property
    def output(self) -> pa.Schema:
        """The parts' results, and what the form of changes needs."""
        results = [pa.field(name, part.result) for name, part in self.parts.items()]
        about = [pa.field(WEIGHT, WEIGHT_TYPE), pa.field(REVISION, pa.int64()), pa.field(TIME, TIME_TYPE)]
        return pa.schema([*results, *about])

    @property
    def groups(self) -> pa.Schema:
        names = [f"{name}.{column}" for name, part in self.parts.items() for column in part.columns]
        return pa.schema([pa.field(name, pa.int64()) for name in (*_OWN, *names)])

    def plan(self, keys: pa.Schema, rows: pa.Schema) -> Plan:
        others = [table for part in self.parts.values() for table in part.tables]
        parameters = {f"aggregate {name}": part for name, part in self.parts.items()}
        return Plan(self.output, (Values(GROUPS, self.groups), *others), parameters=parameters)

    def on_rows(self, batch: Batch, state: State, times: Times) -> Changes:
        count = batch.keys.num_rows
        weight = np.asarray(batch.rows.column(WEIGHT).fill_null(0)).astype(np.int64)
        call = Call(count, batch.key, batch.rows, weight, state)
        held = state.read(GROUPS)
        numbers = [np.zeros(count, np.int64) for _ in self.groups]
        for into, column in zip(numbers, held.rows.columns, strict=True):
            into[held.key] = np.asarray(column)
        revision, at, rows = numbers[: len(_OWN)]
        steps = self._steps(call, numbers[len(_OWN) :])
        rows_now = rows + call.add_up(weight)
        was, now = rows > 0, rows_now > 0
        altered = was != now
        for step in steps:
            altered |= step.altered
        back, fresh = np.flatnonzero(was & altered), np.flatnonzero(now & altered)
        at_now, revision_now = at.copy(), revision.copy()
        at_now[fresh] = np.maximum(np.where(revision > 0, at, NO_WATERMARK), self._latest(batch))[fresh]
        # A group of nothing but its key is always the same row.
        revision_now[fresh] = revision[fresh] + 1 if self.parts else 1
        emitted = [
            self._emitted(back, -1, [step.before for step in steps], revision, at),
            self._emitted(fresh, 1, [step.after for step in steps], revision_now, at_now),
        ]
        new = [revision_now, at_now, rows_now, *(column for step in steps for column in step.kept)]
        put, delete = self._kept(numbers, new, held.key)
        return Changes(
            emit=Keyed(np.concatenate([back, fresh]), pa.concat_batches(emitted)),
            put={GROUPS: put} | {name: rows for step in steps for name, rows in step.put.items()},
            append={name: rows for step in steps for name, rows in step.append.items()},
            delete={GROUPS: delete} | {name: keys for step in steps for name, keys in step.delete.items()},
        )

    def _steps(self, call: Call, numbers: list[Longs]) -> list[Step]:
        steps, first = [], 0
        for part in self.parts.values():
            behind = first + len(part.columns)
            steps.append(part.step(call, numbers[first:behind]))
            first = behind
        return steps

    def _latest(self, batch: Batch) -> Longs:
        time, valid = times_of(batch.rows.column(TIME))
        return highest(batch.keys.num_rows, batch.key[valid], time[valid], NO_WATERMARK)

    def _emitted(self, keys: Longs, weight: int, results: list[pa.Array], revision: Longs, at: Longs) -> pa.RecordBatch:
        some = pa.array(keys)
        time = timestamps(at[keys], at[keys] == NO_WATERMARK)
        weights = pa.array(np.full(len(keys), weight, np.int32))
        columns = [*(column.take(some) for column in results), weights, pa.array(revision[keys]), time]
        return pa.RecordBatch.from_arrays(columns, schema=self.output)

    def _kept(self, old: list[Longs], new: list[Longs], known: Longs) -> tuple[Keyed, Longs]:
        """The groups whose numbers changed, and those of which nothing is left to know."""
        moved: Flags = np.zeros(len(old[0]), np.bool_)
        some: Flags = np.zeros(len(old[0]), np.bool_)
        for before, after in zip(old, new, strict=True):
            moved |= before != after
        for after in new if self.parts else new[2:]:
            some |= after != 0
        kept = np.flatnonzero(moved & some)
        held: Flags = np.zeros(len(some), np.bool_)
        held[known] = True
        rows = pa.RecordBatch.from_arrays([pa.array(each[kept]) for each in new], schema=self.groups)
        return Keyed(kept, rows), np.flatnonzero(held & ~some)


@dataclass(frozen=True)
class DistinctMarks(Untimed):
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
        after = before + Call(count, batch.key, batch.rows, weight, state).add_up(weight)
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

    def _output(self, keys: pa.Schema) -> pa.Schema:
        """The columns of rows, which are null in a mark, and the mark."""
        others = [field.with_nullable(True) for field in self.rows if field.name not in keys.names]
        return pa.schema([*others, pa.field(self.mark, pa.int32())])
