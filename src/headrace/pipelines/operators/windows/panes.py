"""Tumbling and hopping windows over keyed state: a row goes into one pane, a window is made of panes.

State: `panes`, partial results a key and pane, several rows where several batches brought some; and, where results are
emitted more than once (early, corrected), `told`, what was emitted last of each window; and, where empty windows have
results, `alive`, the last pane of each key that `panes` does not have any more. All results come from `on_timers`, once
a micro-batch, so nothing depends on how rows are cut into calls.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from math import gcd

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyspark.sql import DataFrame

from headrace.pipelines.keyed.operator import NEVER, Batch, Changes, Due, Keyed, Plan, Rows, State, Table, Times, Values
from headrace.pipelines.operators.aggregation.algebra import Aggregate
from headrace.pipelines.operators.aggregation.fold import Folded
from headrace.pipelines.operators.frames import needed
from headrace.pipelines.operators.grouping import Longs, find, group_rows, lowest
from headrace.pipelines.operators.stragglers import Stragglers
from headrace.pipelines.operators.time_marks import TimeMark
from headrace.pipelines.operators.times import EARLIEST, LATEST, in_words, some_rows, times_of
from headrace.pipelines.operators.windows.empty import Alive
from headrace.pipelines.operators.windows.results import FINAL, Closing, Windowed
from headrace.pipelines.operators.windows.windowing import Windowing


@dataclass(frozen=True)
class Hops:
    """Windows of `size`, a new one every `slide`, counted from `offset` after 1970. A pane is what all edges divide."""

    size: int
    slide: int
    offset: int = 0

    @property
    def parameters(self) -> dict[str, str]:
        return {"size": in_words(self.size), "every": in_words(self.slide), "offset": in_words(self.offset)}

    @property
    def pane(self) -> int:
        """A window is a row of panes, and a row of data belongs to one pane."""
        return gcd(self.size, self.slide)

    def pane_of(self, time: Longs) -> Longs:
        """The start of the pane that holds a time."""
        return (time - self.offset) // self.pane * self.pane + self.offset

    def first_end(self, pane: Longs) -> Longs:
        """The end of the earliest window that has the pane in it."""
        low = pane + self.pane - self.size - self.offset
        return -(-low // self.slide) * self.slide + self.offset + self.size

    def last_end(self, pane: Longs) -> Longs:
        """The end of the latest window that has the pane in it."""
        return (pane - self.offset) // self.slide * self.slide + self.offset + self.size

    def end_until(self, time: int) -> int:
        """The latest end of a window at or before a time."""
        return (max(time, EARLIEST) - self.offset - self.size) // self.slide * self.slide + self.offset + self.size

    def next_end(self, pane: Longs, after: int) -> Longs:
        """The earliest end after a time of a window with the pane in it; beyond `last_end` if there is none."""
        return np.maximum(self.first_end(pane), self.end_until(after) + self.slide)


PANES, TOLD, ALIVE = "panes", "told", "alive"
_ALIVE = pa.schema([("pane", pa.int64())])


@dataclass(frozen=True)
class PanedWindows(Windowed):
    """The operator; its settings are checked where it is made."""

    time: str
    hops: Hops
    aggregates: Mapping[str, Aggregate]
    stragglers: Stragglers
    closing: Closing
    rows: pa.Schema
    empty: int | None = None
    """How long a silent key has results of windows without rows."""

    def plan(self, keys: pa.Schema, rows: pa.Schema) -> Plan:
        state = self.fold.state
        tables: list[Table] = [Rows(PANES, pa.schema([pa.field("pane", pa.int64()), *state]), "pane")]
        if self.emission.again:
            about = [pa.field("end", pa.int64()), pa.field("revision", pa.int32()), pa.field(FINAL, pa.bool_())]
            tables.append(Rows(TOLD, pa.schema([*about, *state]), "end"))
        parameters = {**self.hops.parameters, **self.parameters}
        if self.empty is not None:
            tables.append(Values(ALIVE, _ALIVE))
            parameters["empty"] = in_words(self.empty)
        return Plan(self.output, tuple(tables), self.closing.clock, parameters=parameters)

    def on_rows(self, batch: Batch, state: State, times: Times) -> Changes:
        """Rows into panes; the timers of their windows."""
        time, has_time = times_of(batch.rows.column(self.time))
        reached = self.closing.reached(times)
        horizon = reached - self.stragglers.allowed_us
        pane = self.hops.pane_of(time)
        late = has_time & (self.hops.first_end(pane) <= horizon)
        in_time = has_time & (self.hops.last_end(pane) > horizon)
        missed = np.minimum(self.hops.last_end(pane), self.hops.end_until(horizon))
        aside = self.set_aside(batch, late, has_time, (missed - self.hops.size, missed), reached)
        kept = np.flatnonzero(in_time)
        if not len(kept):
            return Changes(emit=aside)
        rows = some_rows(batch.rows, kept)
        made = self.fold
        groups = group_rows(batch.key[kept], pane[kept])
        folded = made.load(made.lift(rows, time[kept])).reduce(groups)
        key, pane = batch.key[kept][groups.firsts], pane[kept][groups.firsts]
        count = batch.keys.num_rows
        ends = self.hops.next_end(pane, horizon)
        timers = np.minimum(self.closing.waiting(state), lowest(count, key, ends, NEVER))
        changes = Changes(
            emit=aside,
            append={PANES: Keyed(key, self._panes(pane, folded))},
        )
        return self.closing.set_timers(changes, timers, state, times, fresh=True)

    def on_timers(self, due: Due, state: State, times: Times) -> Changes:
        """Windows that are over, or are emitted early; and what is no longer needed."""
        reached = self.closing.reached(times)
        horizon = reached - self.stragglers.allowed_us
        count = len(due)
        held = state.read(PANES)
        made = self.fold
        pane = np.asarray(held.rows.column(0))
        groups = group_rows(held.key, pane)
        folded = made.load(held.rows.columns[1:]).reduce(groups)
        key, pane = held.key[groups.firsts], pane[groups.firsts]
        opened = self.closing.emits_early(due)
        begins = self.closing.due_from(due, state)
        of, end = self._windows(key, pane, begins, opened, reached)
        lows = find(key, pane, of, end - self.hops.size, side="left")
        windows = folded.over(lows, find(key, pane, of, end, side="left"))
        alive = self._alive(key, pane, state)
        if alive is not None:
            no_rows_of, no_rows_end = alive.windows(begins, reached)
            of, end = np.concatenate([of, no_rows_of]), np.concatenate([end, no_rows_end])
            windows = windows.with_nothing(len(no_rows_of))
        emitted = state.read(TOLD) if self.emission.again else None
        emit, remembered = self.emission.emit(
            self.output, made, of, end, end - self.hops.size, windows, reached, emitted
        )
        following = self.hops.next_end(pane, reached)
        waiting = following <= self.hops.last_end(pane)
        timers = lowest(count, key[waiting], following[waiting], NEVER)
        if self.stragglers.allowed_us:
            # Nothing may come any more, and yet what was kept for corrections has to go one day.
            cleaned = self.hops.last_end(pane) + self.stragglers.allowed_us
            waits = cleaned > reached
            timers = np.minimum(timers, lowest(count, key[waits], cleaned[waits], NEVER))
        delete, put = {}, {}
        if alive is not None:
            timers = np.minimum(timers, alive.timers(count, reached, self.stragglers.allowed_us, NEVER))
            kept, last = alive.kept(count, horizon)
            put[ALIVE] = Keyed(kept, pa.RecordBatch.from_arrays([pa.array(last)], schema=_ALIVE))
            delete[ALIVE] = np.setdiff1d(np.arange(count), kept)
        dense = self._compacted(count, held.key, key, pane, folded)
        expire = {PANES: self.hops.end_until(horizon) - self.hops.size + self.hops.slide}
        if self.emission.again:
            expire[TOLD] = horizon + 1
        changes = Changes(
            emit=emit,
            put=put,
            delete=delete | ({PANES: dense[0]} if dense else {}),
            append=({PANES: dense[1]} if dense else {}) | ({TOLD: remembered} if remembered is not None else {}),
            expire=expire if reached > EARLIEST else {},
        )
        return self.closing.set_timers(changes, timers, state, times, fresh=False)

    def _alive(self, key: Longs, pane: Longs, state: State) -> Alive | None:
        """All panes with rows that are known, if empty windows have results."""
        if self.empty is None:
            return None
        earlier = state.read(ALIVE)
        keys = np.concatenate([key, earlier.key])
        panes = np.concatenate([pane, np.asarray(earlier.rows.column(0))])
        firsts = group_rows(keys, panes).firsts
        return Alive(self.hops, self.empty, keys[firsts], panes[firsts])

    def _panes(self, pane: Longs, folded: Folded) -> pa.RecordBatch:
        schema = pa.schema([pa.field("pane", pa.int64()), *self.fold.state])
        return pa.RecordBatch.from_arrays([pa.array(pane), *folded.stored()], schema=schema)

    def _windows(
        self, key: Longs, pane: Longs, begins: Longs, opened: NDArray[np.bool_], reached: int
    ) -> tuple[Longs, Longs]:
        """Every window with a pane in it that is to be emitted, once: whose it is, and its end.

        These are the windows that end from `begins` of their key to `reached`, and where `opened` those behind as well.
        """
        slide = self.hops.slide
        begins = np.where(opened, np.minimum(begins, reached + 1), np.minimum(begins, LATEST))[key]
        low = self.hops.first_end(pane)
        behind = begins > low
        low[behind] += -(-(begins[behind] - low[behind]) // slide) * slide
        last = self.hops.last_end(pane)
        high = np.where(opened[key], last, np.minimum(last, self.hops.end_until(reached)))
        # A pane names only the windows that the pane before it has not named.
        if len(pane) > 1:
            same = np.flatnonzero(key[1:] == key[:-1])
            low[same + 1] = np.maximum(low[same + 1], high[same] + slide)
        numbers = np.maximum((high - low) // slide + 1, 0)
        of = np.repeat(key, numbers)
        step = np.arange(len(of)) - np.repeat(np.cumsum(numbers) - numbers, numbers)
        return of, np.repeat(low, numbers) + step * slide

    def _compacted(
        self, count: int, held: Longs, key: Longs, pane: Longs, folded: Folded
    ) -> tuple[Longs, Keyed] | None:
        """Keys that have many rows a pane get them put together, so that reading does not grow with batches."""
        crowded = np.bincount(held, minlength=count) > 2 * np.bincount(key, minlength=count)
        rows = np.flatnonzero(crowded[key])
        if not len(rows):
            return None
        kept = Keyed(key[rows], self._panes(pane[rows], folded.take(rows)))
        return np.flatnonzero(crowded).astype(np.int64), kept


def hop(frame: DataFrame, at: TimeMark, hops: Hops, chosen: Windowing) -> DataFrame:
    """The windows of a frame."""
    rows = frame if chosen.stragglers.hands_on else needed(frame, chosen.by, at.column, chosen.aggregates)
    found = chosen.on_state(
        rows,
        lambda schema: PanedWindows(
            at.column, hops, chosen.aggregates, chosen.stragglers, chosen.closing, schema, chosen.empty_us
        ),
        at.ends_lag_us,
    )
    return chosen.results(found, at)
