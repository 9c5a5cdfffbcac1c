"""`sessions`: windows that last as long as rows of a key follow each other within a gap.

State: `sessions`, what is open of each key (with a maximum: a partial result for each time, because where sessions are
cut is known only when all their rows have come); and `told`, where results are emitted more than once. A session that
grows swallows others, so what was emitted of them is retracted: retractions name the window as it was.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyspark.sql import DataFrame
from pyspark.sql import functions as fn

from headrace.jit import compiled
from headrace.pipelines.keyed.operator import (
    NEVER,
    Batch,
    Changes,
    Due,
    Keyed,
    Plan,
    State,
    Times,
    Values,
    put_together,
)
from headrace.pipelines.operators.aggregation.algebra import Aggregate
from headrace.pipelines.operators.aggregation.fold import Fold, Folded
from headrace.pipelines.operators.errors import BadWindow
from headrace.pipelines.operators.frames import Transform, needed
from headrace.pipelines.operators.grouping import Groups, Longs, find, group_rows, highest, lowest, sort_rows
from headrace.pipelines.operators.stragglers import Stragglers
from headrace.pipelines.operators.times import Interval, in_words, microseconds, some_rows, spell, times_of
from headrace.pipelines.operators.windows.results import FINAL, Closing, Emission, Windowed, results_batch
from headrace.pipelines.operators.windows.windowing import read_keywords


def sessions(
    gap: Interval,
    *,
    by: str | Sequence[str] = (),
    maximum: Interval | None = None,
    time: str | None = None,
    stragglers: Stragglers | None = None,
    early: Interval | None = None,
    wall_clock: Interval | None = None,
    buckets: int | None = None,
    **aggregates: Aggregate,
) -> Transform:
    """Aggregates of rows of a key that follow each other within `gap`: from the first to `gap` after the last.

    With `maximum` a session ends so long after its first row at the latest, and the next row begins another one. With
    `early`, and with stragglers that correct, what was emitted of a session is retracted when it is emitted again,
    because a session that has grown is another window. The rest is as with `tumbling`.
    """
    gap_us = microseconds(gap, "the gap of sessions")
    if gap_us <= 0:
        raise BadWindow(
            f"sessions have a gap of {gap!r}, so every row would be a session: write for example '10 minutes'"
        )
    maximum_us = None if maximum is None else microseconds(maximum, "maximum in sessions")
    if maximum_us is not None and maximum_us <= 0:
        raise BadWindow(f"sessions have a maximum of {maximum!r}: leave it out, or write for example '4 hours'")
    chosen = read_keywords("sessions", by=by, time=time, stragglers=stragglers, early=early, wall_clock=wall_clock,
                       buckets=buckets, aggregates=aggregates)  # fmt: skip

    def apply(frame: DataFrame) -> DataFrame:
        rows, made, at = chosen.over(frame)
        if maximum_us is None and made.by and made.is_native(frame, at):
            return made.natively(rows, at, fn.session_window(f"`{at.column}`", spell(gap_us)))
        found = made.on_state(
            rows if made.stragglers.hands_on else needed(rows, made.by, at.column, made.aggregates),
            lambda schema: SessionWindows(
                at.column, gap_us, maximum_us, made.aggregates, made.stragglers, made.closing, schema
            ),
            at.ends_lag_us,
        )
        return made.results(found, at)

    return apply


class Sessions(NamedTuple):
    """For pieces sorted by key and start: the session of each, and of each session its first piece and its end."""

    of: Longs
    first: Longs
    end: Longs


def cut(key: Longs, start: Longs, end: Longs, maximum: int | None) -> Sessions:
    """Pieces that touch belong together; with a maximum a session ends so long after its start at the latest."""
    of = np.empty(len(key), np.int64)
    ends = np.empty(len(key), np.int64)
    count = _cut(key, start, end, -1 if maximum is None else maximum, of, ends)
    first = np.flatnonzero(np.diff(of, prepend=-1)).astype(np.int64)
    return Sessions(of, first, ends[:count])


@compiled
def _cut(key: Longs, start: Longs, end: Longs, maximum: int, of: Longs, ends: Longs) -> int:
    session = -1
    begun = 0
    until = 0
    for row in range(len(key)):
        joins = session >= 0 and key[row] == key[row - 1] and start[row] <= until
        if joins and maximum >= 0 and start[row] >= begun + maximum:
            joins = False
        if not joins:
            session += 1
            begun = start[row]
            until = end[row]
        elif end[row] > until:
            until = end[row]
        of[row] = session
        ends[session] = min(until, begun + maximum) if maximum >= 0 else until
    return session + 1


SESSIONS, TOLD = "sessions", "told"


@dataclass(frozen=True)
class SessionWindows(Windowed):
    """The operator; its settings are checked where it is made."""

    time: str
    gap: int
    maximum: int | None
    aggregates: Mapping[str, Aggregate]
    stragglers: Stragglers
    closing: Closing
    rows: pa.Schema

    @property
    def emission(self) -> Emission:
        """A window that is emitted again has another end, so what was emitted is always retracted."""
        again = self.stragglers.corrects or self.closing.early_us is not None
        return Emission(again, self.closing.early_us is not None)

    def plan(self, keys: pa.Schema, rows: pa.Schema) -> Plan:
        tables = [Values(SESSIONS, self._schema())]
        if self.emission.again:
            tables.append(Values(TOLD, self._told_schema()))
        maximum = "none" if self.maximum is None else in_words(self.maximum)
        parameters = {"gap": in_words(self.gap), "maximum": maximum, **self.parameters}
        return Plan(self.output, tuple(tables), self.closing.clock, parameters=parameters)

    def on_rows(self, batch: Batch, state: State, times: Times) -> Changes:
        """Rows into sessions, sessions into each other."""
        time, has_time = times_of(batch.rows.column(self.time))
        reached = self.closing.reached(times)
        late = has_time & (time + self.gap <= reached - self.stragglers.allowed_us)
        aside = self.set_aside(batch, late, has_time, (time, time + self.gap), reached)
        kept = np.flatnonzero(has_time & ~late)
        if not len(kept):
            return Changes(emit=aside)
        made = self.fold
        lifted = made.lift(some_rows(batch.rows, kept), time[kept])
        key, start, end, folded, touched = self._joined(state.read(SESSIONS), batch.key[kept], time[kept], made, lifted)
        sessions = cut(key, start, end, self.maximum)
        pending = touched_any(touched, sessions) | (sessions.end > reached)
        count = batch.keys.num_rows
        timers = lowest(count, key[sessions.first][pending], sessions.end[pending], NEVER)
        waiting = self.closing.waiting(state)
        timers = np.minimum(timers, np.where(waiting <= reached, waiting, NEVER))
        if self.stragglers.allowed_us:
            # A timer for what is kept for corrections may stand before all others.
            timers = np.minimum(timers, waiting)
        changes = Changes(
            emit=aside,
            put={SESSIONS: Keyed(key, self._batch(start, end, folded))},
        )
        return self.closing.set_timers(changes, timers, state, times, fresh=True)

    def on_timers(self, due: Due, state: State, times: Times) -> Changes:
        """Sessions that are over, or are emitted early."""
        reached = self.closing.reached(times)
        horizon = reached - self.stragglers.allowed_us
        count = len(due)
        held = state.read(SESSIONS)
        made = self.fold
        start, end = (np.asarray(held.rows.column(at)) for at in (0, 1))
        order = sort_rows(held.key, start)
        key, start, end = held.key[order], start[order], end[order]
        folded = made.load(held.rows.columns[2:]).take(order)
        sessions = cut(key, start, end, self.maximum)
        of, begun = key[sessions.first], start[sessions.first]
        windows = folded.over(sessions.first, np.append(sessions.first[1:], len(key))) if len(key) else folded
        over = sessions.end <= reached
        wanted = np.flatnonzero(over | self.closing.emits_early(due)[of])
        keep_until = horizon if self.emission.again else reached
        gone = sessions.end <= keep_until
        if self.emission.again:
            emitted = state.read(TOLD)
            emit, remembered = self._emit_again(emitted, of, begun, sessions.end, windows, wanted, over, horizon)
        else:
            emit, remembered = None, None
            if len(wanted):
                rows = results_batch(self.output, begun[wanted], sessions.end[wanted], windows.take(wanted))
                emit = Keyed(of[wanted], rows)
        left = np.flatnonzero(~gone[sessions.of]) if len(key) else np.zeros(0, np.int64)
        rest = np.setdiff1d(np.arange(count), key[left])
        timers = lowest(count, of[~over], sessions.end[~over], NEVER)
        cleaned = over & ~gone
        timers = np.minimum(
            timers, lowest(count, of[cleaned], sessions.end[cleaned] + self.stragglers.allowed_us, NEVER)
        )
        put = {SESSIONS: Keyed(key[left], self._batch(start[left], end[left], folded.take(left)))}
        delete = {SESSIONS: rest}
        if remembered is not None:
            put[TOLD] = remembered
            delete[TOLD] = np.setdiff1d(np.arange(count), remembered.key)
        changes = Changes(
            emit=emit,
            put=put,
            delete=delete,
        )
        return self.closing.set_timers(changes, timers, state, times, fresh=False)

    def _joined(
        self, held: Keyed, key: Longs, time: Longs, made: Fold, lifted: list[pa.Array]
    ) -> tuple[Longs, Longs, Longs, Folded, NDArray[np.bool_]]:
        """What is kept and what is new, sorted, and put together as far as that is certain already."""
        keys = np.concatenate([held.key, key])
        start = np.concatenate([np.asarray(held.rows.column(0)), time])
        end = np.concatenate([np.asarray(held.rows.column(1)), time + self.gap])
        columns = [pa.concat_arrays([old, new]) for old, new in zip(held.rows.columns[2:], lifted, strict=True)]
        new = np.arange(len(keys)) >= len(held.key)
        if self.maximum is not None:
            groups = group_rows(keys, start)
        else:
            order = sort_rows(keys, start)
            sessions = cut(keys[order], start[order], end[order], None)
            groups = Groups(order, sessions.first, np.append(sessions.first[1:], len(keys)))
        firsts = groups.firsts
        ends = np.maximum.reduceat(end[groups.order], groups.starts)
        touched = np.logical_or.reduceat(new[groups.order], groups.starts)
        return keys[firsts], start[firsts], ends, made.load(columns).reduce(groups), touched

    def _emit_again(
        self,
        emitted: Keyed,
        of: Longs,
        begun: Longs,
        end: Longs,
        windows: Folded,
        wanted: Longs,
        over: NDArray[np.bool_],
        horizon: int,
    ) -> tuple[Keyed | None, Keyed]:
        made = self.fold
        old_start, old_end, revision = (np.asarray(emitted.rows.column(at), np.int64) for at in range(3))
        was_final = np.asarray(emitted.rows.column(3))
        old = made.load(emitted.rows.columns[4:])
        # The session that each emitted one is in now; sessions of a key do not overlap, so it is the last that began.
        at = find(of, begun, emitted.key, old_start, side="right") - 1
        inside = np.maximum(at, 0)
        exists = (
            (at >= 0) & (of[inside] == emitted.key) & (end[inside] >= old_end) if len(of) else np.zeros(len(at), bool)
        )
        same = exists.copy()
        if len(of):
            same &= (begun[inside] == old_start) & (end[inside] == old_end) & (windows.rows[inside] == old.rows)
            same &= was_final | ~over[inside]
        is_wanted = np.zeros(len(of), np.bool_)
        is_wanted[wanted] = True
        # Emitted and still so; of an open session what was emitted stands until it is emitted again.
        known = np.zeros(len(of), np.bool_)
        known[at[same]] = True
        stale = exists & ~same & (is_wanted[inside] if len(of) else False)
        fresh = np.flatnonzero(is_wanted & ~known)
        last = highest(len(of), at[exists], revision[exists], 0)
        now = (last + 1)[fresh] if len(of) else last
        back = np.flatnonzero(stale)
        emit = None
        if len(back) or len(fresh):
            gone = results_batch(self.output, old_start[back], old_end[back], old.take(back), revision[back],
                                 final=was_final[back], retracted=True)  # fmt: skip
            come = results_batch(self.output, begun[fresh], end[fresh], windows.take(fresh), now, final=over[fresh])
            emit = put_together(Keyed(emitted.key[back], gone), Keyed(of[fresh], come))
        stays = np.flatnonzero(~stale & (old_end > horizon))
        kept = emitted.rows.take(pa.array(stays))
        about = [begun[fresh], end[fresh], now.astype(np.int32), over[fresh]]
        added = pa.RecordBatch.from_arrays(
            [*map(pa.array, about), *windows.take(fresh).stored()], schema=self._told_schema()
        )
        lasts = np.flatnonzero(end[fresh] > horizon)
        rows = pa.concat_batches([kept, added.take(pa.array(lasts))])
        return emit, Keyed(np.concatenate([emitted.key[stays], of[fresh][lasts]]), rows)

    def _schema(self) -> pa.Schema:
        return pa.schema([pa.field("start", pa.int64()), pa.field("end", pa.int64()), *self.fold.state])

    def _told_schema(self) -> pa.Schema:
        edges = [pa.field("start", pa.int64()), pa.field("end", pa.int64())]
        return pa.schema([*edges, pa.field("revision", pa.int32()), pa.field(FINAL, pa.bool_()), *self.fold.state])

    def _batch(self, start: Longs, end: Longs, folded: Folded) -> pa.RecordBatch:
        return pa.RecordBatch.from_arrays([pa.array(start), pa.array(end), *folded.stored()], schema=self._schema())


def touched_any(touched: NDArray[np.bool_], sessions: Sessions) -> NDArray[np.bool_]:
    """The sessions that have a new piece."""
    found: NDArray[np.bool_] = np.logical_or.reduceat(touched, sessions.first)
    return found
