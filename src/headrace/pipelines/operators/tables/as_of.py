"""Events joined with the version of a row that was valid at their time, over keyed state. Pure.

State: `versions`, of each key the one that holds where the watermark stands, and `changes`, all later ones; `events`,
those that wait. An event is answered when the watermark has passed its time: then every version up to there has come,
so the answer is the same whenever and however often it is asked for. A change that the watermark has passed takes the
place of what was in `versions`; with `allowed`, so much later, because late events still ask for what was.

What comes late and has a place still is put into tables of its own until the micro-batch is complete: the others have
let go of its time. A change of the table that comes late is taken in, because events yet to be answered have to see it;
it is counted, because events that were answered before it may have seen another version than they would now.
"""

# ruff: noqa: ARG002 - the engine hands over more than each operator needs

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from headrace.pipelines.keyed.operator import (
    NEVER,
    Batch,
    Changes,
    Clock,
    Due,
    Keyed,
    Plan,
    Rows,
    State,
    Timers,
    Times,
    Values,
)
from headrace.pipelines.operators.grouping import Longs, lowest
from headrace.pipelines.operators.stragglers import NO_TIME, set_aside
from headrace.pipelines.operators.tables.as_of_versions import AT, Versions, in_order, last_until, match
from headrace.pipelines.operators.tables.enrich_sides import LATE_CHANGE, Sides, split, told_together, untruncated
from headrace.pipelines.operators.times import EARLIEST, in_words, some_rows, times_of

EVENTS, LATE_EVENTS, CHANGES, LATE_CHANGES, VERSIONS = "events", "late events", "changes", "late changes", "versions"


@dataclass(frozen=True)
class AsOf:
    """The operator; events that are late by up to `allowed` microseconds are answered as if they were not."""

    sides: Sides
    allowed: int = 0

    def plan(self, keys: pa.Schema, rows: pa.Schema) -> Plan:
        """Tables and columns."""
        waiting, versions = self._waiting_schema, self.sides.versions
        late = [Rows(LATE_EVENTS, waiting, AT)] if self.allowed else []
        tables = [Rows(EVENTS, waiting, AT), *late, Rows(CHANGES, versions, AT), Rows(LATE_CHANGES, versions, AT)]
        parameters = {"stragglers answered": in_words(self.allowed)}
        return Plan(
            self.sides.output, (*tables, Values(VERSIONS, versions)), Clock.EVENT, self.sides.to_all, parameters
        )

    def on_rows(self, batch: Batch, state: State, times: Times) -> Changes:
        """Everything is put down until the micro-batch is complete; events that are too late are set aside."""
        batch = untruncated(self.sides, batch, state, (CHANGES, LATE_CHANGES, VERSIONS))
        at, has_time = times_of(batch.rows.column(AT))
        reached = max(times.watermark_us, EARLIEST)
        bound = reached - self.allowed
        events, changes = split(batch)
        append: dict[str, Keyed] = {}
        wake = np.full(batch.keys.num_rows, NEVER, np.int64)
        aside = None
        if len(events):
            rows, key, when, timed = (
                self.sides.events_in(batch, events),
                batch.key[events],
                at[events],
                has_time[events],
            )
            late = timed & (when < bound)
            aside = set_aside(
                self.sides.output, key, rows, late=late, timeless=~timed, window=(when, when), reached_us=reached
            )
            for table, chosen in (
                (EVENTS, timed & (when >= reached)),
                (LATE_EVENTS, timed & ~late & (when < reached)),
            ):
                if chosen.any():
                    append[table] = self._waiting(key, when, rows, np.flatnonzero(chosen))
                    np.minimum.at(wake, key[chosen], when[chosen] + 1)
        placed = changes[has_time[changes]]
        for table, some in ((CHANGES, placed[at[placed] > bound]), (LATE_CHANGES, placed[at[placed] <= bound])):
            if len(some):
                append[table] = self.sides.versions_in(batch, some, at)
                np.minimum.at(wake, batch.key[some], at[some] + self.allowed)
        counts = {LATE_CHANGE: int((at[placed] < reached).sum()), NO_TIME: len(changes) - len(placed)}
        sooner = np.flatnonzero(wake < state.timers(Clock.EVENT))
        return Changes(
            emit=told_together(aside, self.sides.counted_aside(counts)),
            append=append,
            event_timers=Timers(sooner, wake[sooner]),
        )

    def on_timers(self, due: Due, state: State, times: Times) -> Changes:
        """Events that the watermark has passed are answered, and versions that nobody will ask for go."""
        reached = max(times.watermark_us, EARLIEST)
        bound = reached - self.allowed
        held, changes, late_changes = state.read(VERSIONS), state.read(CHANGES), state.read(LATE_CHANGES)
        fresh = told_together(*(each for each in (changes, late_changes) if len(each))) or changes
        versions = in_order(held, fresh)
        waiting = state.read(EVENTS)
        at, since = (np.asarray(each.rows.column(AT)) for each in (waiting, changes))
        waits, stays = at >= reached, since > bound
        told = [self._answered(waiting, np.flatnonzero(~waits), versions)]
        delete = {LATE_CHANGES: np.unique(late_changes.key)}
        if self.allowed:
            late = state.read(LATE_EVENTS)
            told.append(self._answered(late, np.arange(len(late)), versions))
            delete[LATE_EVENTS] = np.unique(late.key)
        written, delete[VERSIONS] = _rebased(len(due), held, versions, bound)
        wake = np.minimum(
            lowest(len(due), waiting.key[waits], at[waits] + 1, NEVER),
            lowest(len(due), changes.key[stays], since[stays] + self.allowed, NEVER),
        )
        again = np.flatnonzero(wake != NEVER)
        return Changes(
            emit=told_together(*told),
            put={VERSIONS: versions.some(written)} if len(written) else {},
            delete={name: keys for name, keys in delete.items() if len(keys)},
            expire={EVENTS: reached, CHANGES: bound + 1} if bound > EARLIEST else {},
            event_timers=Timers(again, wake[again]),
        )

    @property
    def _waiting_schema(self) -> pa.Schema:
        return pa.schema([pa.field(AT, pa.int64()), *(pa.field(f"event.{e.name}", e.type) for e in self.sides.event)])

    def _waiting(self, key: Longs, at: Longs, rows: pa.RecordBatch, chosen: Longs) -> Keyed:
        columns = [pa.array(at[chosen]), *some_rows(rows, chosen).columns]
        return Keyed(key[chosen], pa.RecordBatch.from_arrays(columns, schema=self._waiting_schema))

    def _answered(self, waiting: Keyed, chosen: Longs, versions: Versions) -> Keyed | None:
        """Events with what they found; `waiting` is in the order of keys and times."""
        if not len(chosen):
            return None
        events = some_rows(waiting.rows, chosen)
        key = waiting.key[chosen]
        found = match(key, np.asarray(events.column(AT)), versions)
        return self.sides.enriched(key, events.columns[1:], versions.rows, found)


def _rebased(count: int, held: Keyed, versions: Versions, bound: int) -> tuple[Longs, Longs]:
    """The versions that take the place of what keys had, and the keys whose row is gone."""
    last = last_until(versions, bound)
    is_new = versions.place[last] >= len(held)
    is_gone = versions.gone[last]
    had = np.zeros(count, np.bool_)
    had[held.key] = True
    lost = versions.key[last[is_gone]]
    return last[is_new & ~is_gone], lost[had[lost]]
