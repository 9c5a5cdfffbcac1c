"""Groups of a table as changes, over keyed state: a row for each group that has rows, told anew when it differs. Pure.

State: `groups`, a row a group with whole numbers, and what its parts keep besides. A group that has lost all rows keeps
its numbers, so that its revisions go on if it comes back: no two rows of a group have the same version. What is told of
a call is the difference between the group's row before and after it, so that over the calls of a micro-batch, and over
micro-batches, all that was told adds up to the groups as they are, also if a call brings a row's end before its
beginning.
"""

# ruff: noqa: ARG002 - the engine hands over more than each operator needs

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa

from headrace.pipelines.keyed.operator import (
    NO_WATERMARK,
    NOTHING,
    Batch,
    Changes,
    Due,
    Keyed,
    Plan,
    State,
    Times,
    Values,
)
from headrace.pipelines.operators.grouping import Longs, highest
from headrace.pipelines.operators.tables.form import TIME, TIME_TYPE, WEIGHT, WEIGHT_TYPE
from headrace.pipelines.operators.tables.grouped_parts import Call, Flags, Part, Step
from headrace.pipelines.operators.times import times_of, timestamps

GROUPS: Final = "groups"
REVISION: Final = "_revision"
_OWN: Final = ("revision", "at", "rows")


@dataclass(frozen=True)
class GroupedRows:
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
        """The numbers kept of a group."""
        names = [f"{name}.{column}" for name, part in self.parts.items() for column in part.columns]
        return pa.schema([pa.field(name, pa.int64()) for name in (*_OWN, *names)])

    def plan(self, keys: pa.Schema, rows: pa.Schema) -> Plan:
        """One table of groups, and those of the parts."""
        others = [table for part in self.parts.values() for table in part.tables]
        parameters = {f"aggregate {name}": part for name, part in self.parts.items()}
        return Plan(self.output, (Values(GROUPS, self.groups), *others), parameters=parameters)

    def on_rows(self, batch: Batch, state: State, times: Times) -> Changes:
        """Changes of some groups."""
        count = batch.keys.num_rows
        weight = np.asarray(batch.rows.column(WEIGHT).fill_null(0)).astype(np.int64)
        call = Call(count, batch.key, batch.rows, weight, state)
        held = state.read(GROUPS)
        numbers = [np.zeros(count, np.int64) for _ in self.groups]
        for into, column in zip(numbers, held.rows.columns, strict=True):
            into[held.key] = np.asarray(column)
        revision, at, rows = numbers[: len(_OWN)]
        steps = self._steps(call, numbers[len(_OWN) :])
        rows_now = rows + call.summed(weight)
        was, now = rows > 0, rows_now > 0
        altered = was != now
        for step in steps:
            altered |= step.altered
        back, fresh = np.flatnonzero(was & altered), np.flatnonzero(now & altered)
        at_now, revision_now = at.copy(), revision.copy()
        at_now[fresh] = np.maximum(np.where(revision > 0, at, NO_WATERMARK), self._latest(batch))[fresh]
        # A group of nothing but its key is always the same row.
        revision_now[fresh] = revision[fresh] + 1 if self.parts else 1
        told = [
            self._told(back, -1, [step.before for step in steps], revision, at),
            self._told(fresh, 1, [step.after for step in steps], revision_now, at_now),
        ]
        new = [revision_now, at_now, rows_now, *(column for step in steps for column in step.kept)]
        put, delete = self._kept(numbers, new, held.key)
        return Changes(
            emit=Keyed(np.concatenate([back, fresh]), pa.concat_batches(told)),
            put={GROUPS: put} | {name: rows for step in steps for name, rows in step.put.items()},
            append={name: rows for step in steps for name, rows in step.append.items()},
            delete={GROUPS: delete} | {name: keys for step in steps for name, keys in step.delete.items()},
        )

    def on_timers(self, due: Due, state: State, times: Times) -> Changes:
        """No timer is ever set."""
        return NOTHING

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

    def _told(self, keys: Longs, weight: int, results: list[pa.Array], revision: Longs, at: Longs) -> pa.RecordBatch:
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
