"""Sliding windows over keyed state: for every row, all rows of its key in the interval before it and itself. Pure.

State: `buffer`, the rows of each key in the order of time, as long as an interval yet to come can reach back to them. A
row is answered when the watermark has reached its time: then all rows before it have come. Rows of the same time are in
each other's intervals, as with SQL's RANGE.
"""

# ruff: noqa: ARG002 - the engine hands over more than each operator needs

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from headrace.pipelines.keyed.operator import NEVER, Batch, Changes, Due, Keyed, Plan, Rows, State, Times
from headrace.pipelines.operators.asides import TIME, aside_field, set_aside, timestamps
from headrace.pipelines.operators.closing import Closing
from headrace.pipelines.operators.fold import Fold, fold
from headrace.pipelines.operators.grouping import find, highest, lowest, sorted_by
from headrace.pipelines.operators.hops import EARLY
from headrace.pipelines.operators.partials import Aggregate
from headrace.pipelines.operators.stragglers import Stragglers
from headrace.pipelines.operators.times import some_rows, times_of

BUFFER = "buffer"


@dataclass(frozen=True)
class SlidingRows:
    """The operator; `keep` are columns of the row that come out beside its results."""

    time: str
    size: int
    keep: tuple[str, ...]
    aggregates: Mapping[str, Aggregate]
    stragglers: Stragglers
    closing: Closing
    rows: pa.Schema

    @property
    def fold(self) -> Fold:
        """The aggregates over the rows' types."""
        return fold(self.aggregates, self.rows)

    @property
    def output(self) -> pa.Schema:
        """What comes out behind the keys."""
        kept = [self.rows.field(name) for name in self.keep]
        edges = [pa.field("window_start", TIME), pa.field("window_end", TIME)]
        return pa.schema([*kept, *edges, *self.fold.results, aside_field(self.rows, self.stragglers)])

    def plan(self, keys: pa.Schema, rows: pa.Schema) -> Plan:
        """Tables and columns."""
        return Plan(self.output, (Rows(BUFFER, self._schema(), "at"),), self.closing.clock)

    def on_rows(self, batch: Batch, state: State, times: Times) -> Changes:
        """Rows into the buffer."""
        time, has_time = times_of(batch.rows.column(self.time))
        reached = self.closing.reached(times)
        late = has_time & (time <= reached)
        aside = set_aside(
            self.output,
            batch.key,
            batch.rows,
            late=late,
            timeless=~has_time,
            window=(time - self.size, time),
            reached_us=reached,
        )
        kept = np.flatnonzero(has_time & ~late)
        if not len(kept):
            return Changes(emit=aside)
        rows, time, key = some_rows(batch.rows, kept), time[kept], batch.key[kept]
        carried = [rows.column(name) for name in self.keep]
        buffered = [pa.array(time), *carried, *self.fold.lift(rows, time)]
        timers = np.minimum(self.closing.waiting(state), lowest(batch.keys.num_rows, key, time, NEVER))
        return Changes(
            emit=aside,
            append={BUFFER: Keyed(key, pa.RecordBatch.from_arrays(buffered, schema=self._schema()))},
            event_timers=self.closing.event_timers(timers),
            wall_timers=self.closing.wall_timers(timers, state, times, fresh=True),
        )

    def on_timers(self, due: Due, state: State, times: Times) -> Changes:
        """Rows whose interval is complete."""
        reached = self.closing.reached(times)
        held = state.read(BUFFER)
        time = np.asarray(held.rows.column(0))
        order = sorted_by(held.key, time)
        key, time = held.key[order], time[order]
        ready = np.flatnonzero((time >= self.closing.due_from(due, state)[key]) & (time <= reached))
        emit = None
        if len(ready):
            lows = find(key, time, key[ready], time[ready] - self.size, side="left")
            highs = find(key, time, key[ready], time[ready], side="right")
            made = self.fold
            windows = made.load(held.rows.columns[1 + len(self.keep) :]).take(order).over(lows, highs)
            taken = pa.array(order[ready])
            carried = [held.rows.column(1 + at).take(taken) for at in range(len(self.keep))]
            edges = [timestamps(time[ready] - self.size), timestamps(time[ready])]
            nothing = pa.nulls(len(ready), self.output.field(self.output.names[-1]).type)
            columns = [*carried, *edges, *windows.results(), nothing]
            emit = Keyed(key[ready], pa.RecordBatch.from_arrays(columns, schema=self.output))
        waits = time > reached
        timers = lowest(len(due), key[waits], time[waits], NEVER)
        # A key that falls silent is woken once more, when nothing can reach back to its rows any longer.
        latest = highest(len(due), key, time, EARLY)
        timers = np.where((timers == NEVER) & (latest + self.size >= reached), latest + self.size + 1, timers)
        return Changes(
            emit=emit,
            expire={BUFFER: reached - self.size} if reached > EARLY else {},
            event_timers=self.closing.event_timers(timers),
            wall_timers=self.closing.wall_timers(timers, state, times, fresh=False),
        )

    def _schema(self) -> pa.Schema:
        kept = [pa.field(f"kept.{name}", self.rows.field(name).type) for name in self.keep]
        return pa.schema([pa.field("at", pa.int64()), *kept, *self.fold.state])
