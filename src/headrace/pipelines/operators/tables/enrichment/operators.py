"""Events joined with a table's row over keyed state: as it was at their time, or as it is when they come. Pure.

Events and versions come in one stream. A row of either side has the key's columns, and further:

- `_at`: the time of the event, or when the version became valid;
- `_event`: the event's other columns, null on the table's side;
- `_row`, `_gone`, `_offset`, `_partition`, `_id`: the table's columns that are asked for, whether the row is gone, the
  version's place in the log and its id; null on the events' side;
- `_emptied`, where the table can say so: whether all its rows are gone.
"""

from collections.abc import Mapping, Sequence
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
    Untimed,
    Values,
    put_together,
)
from headrace.pipelines.operators.grouping import Longs, lowest
from headrace.pipelines.operators.stragglers import ASIDE, NO_TIME, Stragglers, aside_field, set_aside
from headrace.pipelines.operators.tables.current import sort_by_age, without_truncates
from headrace.pipelines.operators.tables.enrichment.versions import (
    AT,
    EMPTIED,
    GONE,
    OFFSET,
    PARTITION,
    VERSION,
    Versions,
    last_until,
    match,
    put_in_order,
    versions_schema,
)
from headrace.pipelines.operators.times import EARLIEST, in_words, some_rows, times_of

EVENT, ROW = "_event", "_row"
JOINED = "_joined"
LATE_CHANGE = "late change"
_IDS = 5  # columns of a version before those of its row


@dataclass(frozen=True)
class Sides:
    """The types of both sides, and what an enriched event looks like; without `stragglers` nothing is set aside."""

    event: pa.StructType
    row: pa.StructType
    version: pa.StructType
    keeps_unmatched: bool
    stragglers: Stragglers | None = None
    prefix: str = ""
    joined: str = JOINED
    empties: bool = False

    @property
    def to_all(self) -> str | None:
        """The column that marks truncates, if there is one."""
        return EMPTIED if self.empties else None

    @property
    def events(self) -> pa.Schema:
        return pa.schema(list(self.event))

    @property
    def versions(self) -> pa.Schema:
        return versions_schema(self.row, self.version)

    @property
    def output(self) -> pa.Schema:
        """The event's columns, the row's, the id of the version, and what is set aside."""
        row = [pa.field(f"{self.prefix}{field.name}", field.type) for field in self.row]
        aside = [] if self.stragglers is None else [aside_field(self.events, self.stragglers)]
        return pa.schema([*self.event, *row, pa.field(self.joined, self.version), *aside])

    def events_in(self, batch: Batch, chosen: Longs) -> pa.RecordBatch:
        return pa.RecordBatch.from_arrays(_columns(batch.rows.column(EVENT), chosen), schema=self.events)

    def versions_in(self, batch: Batch, chosen: Longs, at: Longs) -> Keyed:
        """Some versions of a call, with when they became valid."""
        picked = pa.array(chosen)
        about = [batch.rows.column(name).take(picked) for name in (OFFSET, PARTITION, GONE, VERSION)]
        columns = [pa.array(at[chosen]), *about, *_columns(batch.rows.column(ROW), chosen)]
        return Keyed(batch.key[chosen], pa.RecordBatch.from_arrays(columns, schema=self.versions))

    def enriched(self, key: Longs, events: list[pa.Array], versions: pa.RecordBatch, found: Longs) -> Keyed | None:
        """Events, each with the version in row `found[i]`; with -1 there is none, and they go or have nulls."""
        known = found >= 0
        if not self.keeps_unmatched and not known.all():
            chosen = np.flatnonzero(known)
            key, found, known = key[chosen], found[chosen], known[chosen]
            events = [column.take(pa.array(chosen)) for column in events]
        if not len(key):
            return None
        place = pa.array(found) if known.all() else pa.array(found, mask=~known)
        taken = [column.take(place) for column in versions.columns[_IDS:]]
        columns = [*events, *taken, versions.column(VERSION).take(place)]
        if self.stragglers is not None:
            columns.append(pa.nulls(len(key), self.output.field(ASIDE).type))
        return Keyed(key, pa.RecordBatch.from_arrays(columns, schema=self.output))

    def counted_aside(self, counts: Mapping[str, int]) -> Keyed | None:
        """Says how many rows there were for each reason, where nobody can be handed the rows themselves."""
        cells = [{"reason": reason, "rows": count} for reason, count in counts.items() if count]
        if not cells:
            return None
        aside = pa.array(cells, self.output.field(ASIDE).type)
        columns = [aside if field.name == ASIDE else pa.nulls(len(cells), field.type) for field in self.output]
        return Keyed(np.zeros(len(cells), np.int64), pa.RecordBatch.from_arrays(columns, schema=self.output))


def replace_truncates(sides: Sides, batch: Batch, state: State, tables: Sequence[str]) -> Batch:
    """The rows of a call, with deletes instead of truncates."""
    return without_truncates(batch, state, EMPTIED, PARTITION, tables) if sides.empties else batch


def split(batch: Batch) -> tuple[Longs, Longs]:
    """Which rows of a call are events, and which are versions."""
    is_event = np.asarray(batch.rows.column(GONE).is_null())
    return np.flatnonzero(is_event), np.flatnonzero(~is_event)


def _columns(column: pa.StructArray, chosen: Longs) -> list[pa.Array]:
    taken = column if len(chosen) == len(column) else column.take(pa.array(chosen))
    return list(taken.flatten())


CURRENT = "current"


@dataclass(frozen=True)
class Latest(Untimed):
    """The operator."""

    sides: Sides

    def plan(self, keys: pa.Schema, rows: pa.Schema) -> Plan:
        return Plan(self.sides.output, (Values(CURRENT, self.sides.versions),), to_all=self.sides.to_all)

    def on_rows(self, batch: Batch, state: State, times: Times) -> Changes:
        """Changes are kept, then events are answered."""
        batch = replace_truncates(self.sides, batch, state, (CURRENT,))
        events, changes = split(batch)
        held = state.read(CURRENT)
        rows, place = held.rows, np.full(batch.keys.num_rows, -1, np.int64)
        place[held.key] = np.arange(len(held))
        written, lost = np.empty(0, np.int64), np.empty(0, np.int64)
        if len(changes):
            at, _ = times_of(batch.rows.column(AT))
            fresh = self.sides.versions_in(batch, changes, at)
            rows = pa.concat_batches([held.rows, fresh.rows])
            gone = np.asarray(rows.column(GONE), np.bool_)
            had = place >= 0
            key = np.concatenate([held.key, fresh.key])
            partition, offset, since = (np.asarray(rows.column(name), np.int64) for name in (PARTITION, OFFSET, AT))
            order = sort_by_age(batch.keys.num_rows, key, partition, offset, since)
            place[key[order]] = order  # of several the last stays
            is_new = place >= len(held)
            is_gone = is_new & gone[place]
            written, lost = np.flatnonzero(is_new & ~is_gone), np.flatnonzero(had & is_gone)
            place[is_gone] = -1
        emit = None
        if len(events):
            key = batch.key[events]
            emit = self.sides.enriched(key, self.sides.events_in(batch, events).columns, rows, place[key])
        return Changes(
            emit=emit,
            put={CURRENT: Keyed(written, rows.take(pa.array(place[written])))} if len(written) else {},
            delete={CURRENT: lost} if len(lost) else {},
        )


EVENTS, LATE_EVENTS, CHANGES, LATE_CHANGES, VERSIONS = "events", "late events", "changes", "late changes", "versions"


@dataclass(frozen=True)
class AsOf:
    """The operator; events that are late by up to `allowed` microseconds are answered as if they were not."""

    sides: Sides
    allowed: int = 0

    def plan(self, keys: pa.Schema, rows: pa.Schema) -> Plan:
        waiting, versions = self._waiting_schema, self.sides.versions
        late = [Rows(LATE_EVENTS, waiting, AT)] if self.allowed else []
        tables = [Rows(EVENTS, waiting, AT), *late, Rows(CHANGES, versions, AT), Rows(LATE_CHANGES, versions, AT)]
        parameters = {"stragglers answered": in_words(self.allowed)}
        return Plan(
            self.sides.output, (*tables, Values(VERSIONS, versions)), Clock.EVENT, self.sides.to_all, parameters
        )

    def on_rows(self, batch: Batch, state: State, times: Times) -> Changes:
        """Everything is put down until the micro-batch is complete; events that are too late are set aside."""
        batch = replace_truncates(self.sides, batch, state, (CHANGES, LATE_CHANGES, VERSIONS))
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
            emit=put_together(aside, self.sides.counted_aside(counts)),
            append=append,
            event_timers=Timers(sooner, wake[sooner]),
        )

    def on_timers(self, due: Due, state: State, times: Times) -> Changes:
        """Events that the watermark has passed are answered, and versions that nobody will ask for go."""
        reached = max(times.watermark_us, EARLIEST)
        bound = reached - self.allowed
        held, changes, late_changes = state.read(VERSIONS), state.read(CHANGES), state.read(LATE_CHANGES)
        fresh = put_together(*(each for each in (changes, late_changes) if len(each))) or changes
        versions = put_in_order(held, fresh)
        waiting = state.read(EVENTS)
        at, since = (np.asarray(each.rows.column(AT)) for each in (waiting, changes))
        waits, stays = at >= reached, since > bound
        answered = [self._answered(waiting, np.flatnonzero(~waits), versions)]
        delete = {LATE_CHANGES: np.unique(late_changes.key)}
        if self.allowed:
            late = state.read(LATE_EVENTS)
            answered.append(self._answered(late, np.arange(len(late)), versions))
            delete[LATE_EVENTS] = np.unique(late.key)
        written, delete[VERSIONS] = _rebased(len(due), held, versions, bound)
        wake = np.minimum(
            lowest(len(due), waiting.key[waits], at[waits] + 1, NEVER),
            lowest(len(due), changes.key[stays], since[stays] + self.allowed, NEVER),
        )
        again = np.flatnonzero(wake != NEVER)
        return Changes(
            emit=put_together(*answered),
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
