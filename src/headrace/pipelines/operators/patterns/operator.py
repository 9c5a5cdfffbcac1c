"""Patterns over keyed state: rows come in the order of event time, partial matches are kept, matches go out. Pure.

State, of each key: `partial`, what each pattern has begun and not decided, packed into one row (`packing.py`); `taken`,
the rows that partial matches are made of, each once, whatever number of partial matches and patterns hold it. Of the
bucket: `due` and `crowded`, from which the numbers in the status come (`counting.py`).

A row is put into `taken` when it is taken, and goes by its time: when no partial match can be as old. Partial matches
whose window is over are stepped if somebody asked for them, or if the time decides something; else they expire as they
are, and their key is not woken.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from headrace.cep.columnar import Kept, Stepped
from headrace.cep.stored import RUNNING
from headrace.pipelines.keyed.operator import (
    FINAL_WATERMARK,
    NEVER,
    Batch,
    Changes,
    Clock,
    Due,
    Keyed,
    Ordered,
    Plan,
    Rows,
    State,
    Timers,
    Times,
    Values,
    put_together,
)
from headrace.pipelines.keyed.packing import flags_of
from headrace.pipelines.operators.grouping import Longs
from headrace.pipelines.operators.patterns.counting import COUNTS, STATUS, Tally, count_all
from headrace.pipelines.operators.patterns.packing import LONGS, TEXTS, Packed, Tables
from headrace.pipelines.operators.patterns.shapes import Named, Shape, Taken
from headrace.pipelines.operators.patterns.stored import (
    CHANGES,
    IS_PATTERN,
    KEY,
    OFFSET,
    PARTITION,
    PATTERNS,
    VALUE,
    FromTopic,
    Record,
)
from headrace.pipelines.operators.patterns.watched import Watched
from headrace.pipelines.operators.stragglers import Stragglers, aside_field, set_aside
from headrace.pipelines.operators.times import some_rows, times_of

PARTIAL, TAKEN = "partial", "taken"
PARTIAL_SCHEMA: Final = pa.schema(
    [("pattern", pa.int32()), ("until", pa.int64()), ("count", pa.int32()), ("longs", LONGS), ("texts", TEXTS)]
)
LOST: Final = "dropped with patterns"
"""The counter of partial matches of patterns that were removed, changed or paused."""
UNNAMED_RECORDS: Final = "records of patterns without a name"
FOREVER: Final = 2**62
"""The time until which something is kept that does not expire."""
_AT, _NUMBER = "(at)", "(number)"
_SLOTS: Final = 32  # of a pattern's window: partial matches expire together, as many slots are counted
_NOBODY: Final = np.zeros(0, np.int64)


@dataclass(frozen=True)
class Fixed:
    """Patterns that stay as they are as long as the query runs."""

    patterns: tuple[Watched, ...]

    @property
    def common(self) -> tuple[Values, ...]:
        return ()

    def watched(self, state: State) -> Sequence[Watched]:
        return self.patterns

    def others(self, state: State) -> list[Named]:
        return []


class _Rows(NamedTuple):
    """The rows of a call, sorted by key and in their order; none where time has passed."""

    ends: Longs
    numbers: Longs
    at_us: Longs
    rows: pa.RecordBatch | None
    first: int


@dataclass(frozen=True)
class MatchPatterns:
    """The operator; its settings are checked where it is made."""

    source: Fixed | FromTopic
    shape: Shape
    order: Ordered
    rows: pa.Schema
    stragglers: Stragglers
    timed_out: bool
    parameters: tuple[tuple[str, str], ...] = ()

    @property
    def output(self) -> pa.Schema:
        aside = aside_field(self.rows, self.stragglers)
        return pa.schema([*(each.with_nullable(True) for each in self.shape.fields()), aside, STATUS])

    @property
    def carried(self) -> pa.Schema:
        return pa.schema([self.rows.field(name) for name in self.shape.columns])

    @property
    def taken_schema(self) -> pa.Schema:
        return pa.schema([pa.field(_AT, pa.int64()), pa.field(_NUMBER, pa.int64()), *self.carried])

    def plan(self, keys: pa.Schema, rows: pa.Schema) -> Plan:
        tables = (Values(PARTIAL, PARTIAL_SCHEMA, "until"), Rows(TAKEN, self.taken_schema, _AT))
        return Plan(
            self.output,
            tables,
            Clock.EVENT,
            IS_PATTERN if isinstance(self.source, FromTopic) else None,
            parameters=dict(self.parameters),
            ordered=self.order,
            common=(*COUNTS, *self.source.common),
        )

    # --- calls

    def on_arrival(self, batch: Batch, state: State, times: Times) -> Changes:
        """Rows that are late or have no time; and patterns."""
        at, has_time = times_of(batch.rows.column(self.order.time))
        is_row = np.ones(len(batch), np.bool_)
        if isinstance(self.source, FromTopic):
            is_row = ~flags_of(batch.rows, IS_PATTERN)
        aside = set_aside(
            self.output,
            batch.key,
            batch.rows,
            late=has_time & is_row,
            timeless=~has_time & is_row,
            window=(at, at),
            reached_us=times.watermark_us,
        )
        if is_row.all():
            return Changes(emit=aside)
        assert isinstance(self.source, FromTopic)
        return self._changed(self.source, batch, np.flatnonzero(~is_row), aside, state, times)

    def _changed(
        self, source: FromTopic, batch: Batch, places: Longs, aside: Keyed | None, state: State, times: Times
    ) -> Changes:
        """Other patterns: what those that are gone have begun is dropped."""
        rows = batch.rows.select([PARTITION, OFFSET, KEY, VALUE]).take(pa.array(places)).to_pylist()
        rows.sort(key=lambda row: (row[PARTITION], row[OFFSET]))
        changed = source.changed([Record(row[KEY], row[VALUE], row[OFFSET]) for row in rows], state)
        held = state.read(PARTIAL)
        is_gone = np.isin(np.asarray(held.rows.column(0)), list(changed.gone))
        touched = np.zeros(batch.keys.num_rows, np.bool_)
        touched[held.key[is_gone]] = True
        rest = _some(held, touched[held.key] & ~is_gone)
        lost = np.flatnonzero(touched)
        running = {one.number: one.called for one in changed.known if one.state == RUNNING}
        others = [one.called for one in changed.known if one.state != RUNNING]
        count = state.count(CHANGES) + changed.records
        counted = count_all(running, others, count, Tally(batch.keys.num_rows), batch.keys, state, times, 0)
        stored = changed.stored()
        dropped = int(np.asarray(held.rows.column(2))[is_gone].sum())
        return Changes(
            emit=put_together(aside, self._with_status(counted.status)),
            put={PARTIAL: rest, **counted.put, **({PATTERNS: stored} if len(stored) else {})},
            delete={
                PARTIAL: np.setdiff1d(lost, rest.key),
                **counted.delete,
                **({} if len(stored) else {PATTERNS: np.zeros(1, np.int64)}),
            },
            counts={
                CHANGES: changed.records,
                "dropped with patterns": dropped,
                "patterns without name": changed.unnamed,
            },
        )

    def on_rows(self, batch: Batch, state: State, times: Times) -> Changes:
        """Rows that the watermark has passed."""
        at, _ = times_of(batch.rows.column(self.order.time))
        ends = np.cumsum(np.bincount(batch.key, minlength=batch.keys.num_rows))
        rows = _Rows(ends, batch.number + np.arange(len(batch)), at, batch.rows, batch.number)
        changes = self._stepped(rows, batch.keys, state, times)
        # Of a key that is to be woken at this very watermark, the rows are still asked for.
        keep_us = self._keep_us(state)
        expire = {} if keep_us is None else {TAKEN: int(at.min()) - keep_us}
        return replace(changes, expire={**expire, PARTIAL: times.watermark_us + 1})

    def on_timers(self, due: Due, state: State, times: Times) -> Changes:
        """Times that decide something."""
        none = np.zeros(len(due), np.int64)
        changes = self._stepped(_Rows(none, _NOBODY, _NOBODY, None, FOREVER), due.keys, state, times)
        keep_us = self._keep_us(state)
        expire = {} if keep_us is None else {TAKEN: times.watermark_us - keep_us + 1}
        return replace(changes, expire={**expire, PARTIAL: times.watermark_us + 1})

    def _keep_us(self, state: State) -> int | None:
        """How long a row is kept that was taken; None: as long as a partial match has it."""
        withins = [one.within_us for one in self.source.watched(state)]
        return None if None in withins else max((within for within in withins if within is not None), default=0)

    # --- stepping

    def _stepped(self, rows: _Rows, keys: pa.RecordBatch, state: State, times: Times) -> Changes:
        count = keys.num_rows
        patterns = self.source.watched(state)
        held = state.read(PARTIAL)
        tally = Tally(count)
        partial, stepped, taken_by, timers = [], [], [_NOBODY], np.full(count, NEVER, np.int64)
        number = np.asarray(held.rows.column(0), np.int64)
        tally.was(number, np.asarray(held.rows.column(1)), np.asarray(held.rows.column(2), np.int64))
        for watched in patterns:
            mine = held if len(patterns) == 1 else _some(held, number == watched.number)
            done = self._step(watched, mine, count, rows, times)
            stepped.append((watched, done))
            tables = watched.program.to_tables(done.kept)
            taken_by.append(np.asarray(tables["nodes"][1].column("row")))
            wanted = self._timers(watched, done.kept, tables)
            timers = np.minimum(timers, wanted)
            partial.append(self._packed(watched, done.kept, tables, wanted, times, tally))
            tally.counted(watched.number, done)
        put = put_together(*partial) or Keyed(_NOBODY, held.rows.slice(0, 0))
        keeps = np.zeros(count, np.bool_)
        keeps[put.key] = True
        had = np.unique(held.key)
        taken = self._taken(rows, np.concatenate(taken_by), state, keeps, had)
        before = np.full(count, NEVER, np.int64)
        if rows.rows is not None and any(self._wakes(watched) for watched in patterns):
            before = state.timers(Clock.EVENT)
        changed = np.flatnonzero(before != timers)
        names = {one.number: one.called for one in patterns}
        others, changes = self.source.others(state), state.count(CHANGES)
        counted = count_all(names, others, changes, tally, keys, state, times, len(rows.numbers))
        lost = {PARTIAL: had[~keeps[had]], **({TAKEN: had} if self._keep_us(state) is None else {})}
        return Changes(
            emit=put_together(*self._shown(rows, stepped, state), self._with_status(counted.status)),
            put={PARTIAL: put, **counted.put},
            append={} if taken is None else {TAKEN: taken},
            delete={**lost, **counted.delete},
            event_timers=Timers(changed, timers[changed]),
            counts=tally.counts(len(rows.numbers)),
        )

    def _step(self, watched: Watched, held: Keyed, count: int, rows: _Rows, times: Times) -> Stepped:
        program, layout = watched.program, watched.layout
        lists = held.rows.column(3), held.rows.column(4)
        kept = program.from_tables(count, layout.unpack(Packed(held.key, *lists)))
        is_final = times.watermark_us >= FINAL_WATERMARK
        ends, numbers, at = rows.ends, rows.numbers, rows.at_us
        given = rows.rows
        facts = None
        if given is None:
            masks = _NOBODY
            if program.facts:
                facts = _no_rows(program.fact_schema)
        elif watched.mask:
            masks = np.asarray(given.column(watched.mask), np.int64)
            if program.facts:
                columns = [given.column(name) for name in watched.facts]
                facts = pa.RecordBatch.from_arrays(columns, schema=program.fact_schema)
        else:
            evaluated = program.evaluate(given)
            masks, facts = evaluated.masks, evaluated.facts
        return program.step(kept, ends, numbers, at, masks, facts, watermark_us=times.watermark_us, is_final=is_final)

    def _wakes(self, watched: Watched) -> bool:
        """Whether keys may have to be looked at though no row comes."""
        return self.timed_out or watched.is_decided_by_time or watched.lets_matches_wait

    def _timers(self, watched: Watched, kept: Kept, tables: Tables) -> Longs:
        """When each key has to be looked at though no row comes, because something comes of that."""
        deadlines = kept.deadlines_us()
        if self.timed_out or watched.is_decided_by_time:
            return deadlines
        waits = np.zeros(len(deadlines), np.bool_)
        if "waiting" in tables:
            waits[tables["waiting"][0]] = True
        return np.where(waits, deadlines, NEVER)

    def _packed(self, watched: Watched, kept: Kept, tables: Tables, timers: Longs, times: Times, tally: Tally) -> Keyed:
        packed = watched.layout.pack(tables, len(timers))
        sizes = kept.sizes()[packed.keys]
        until = np.full(len(packed.keys), FOREVER, np.int64)
        if watched.within_us is not None and not watched.keeps_keys:
            slot = max(1, watched.within_us // _SLOTS)
            over = -(-(times.watermark_us + watched.within_us) // slot) * slot
            until[timers[packed.keys] == NEVER] = min(over, FOREVER)
        tally.now(watched.number, packed.keys, until, sizes)
        columns = [
            pa.array(np.full(len(until), watched.number, np.int32)),
            pa.array(until),
            pa.array(sizes.astype(np.int32)),
            packed.longs,
            packed.texts,
        ]
        return Keyed(packed.keys, pa.RecordBatch.from_arrays(columns, schema=PARTIAL_SCHEMA))

    # --- the rows that were taken

    def _taken(self, rows: _Rows, held: Longs, state: State, keeps: NDArray[np.bool_], had: Longs) -> Keyed | None:
        """Rows of this call that a partial match holds, by `held`; where they do not go by time, all of those."""
        is_held = np.zeros(len(rows.numbers), np.bool_)
        is_held[held[held >= rows.first] - rows.first] = True
        places = np.flatnonzero(is_held)
        fresh = None
        if len(places):
            assert rows.rows is not None
            key = np.searchsorted(rows.ends, places, side="right")
            carried = some_rows(rows.rows, places).select(self.carried.names)
            columns = [pa.array(rows.at_us[places]), pa.array(rows.numbers[places]), *carried.columns]
            fresh = Keyed(key, pa.RecordBatch.from_arrays(columns, schema=self.taken_schema))
        if self._keep_us(state) is not None or not keeps[had].any():
            return fresh
        before = state.read(TAKEN, had[keeps[had]])
        return put_together(_some(before, np.isin(np.asarray(before.rows.column(_NUMBER)), held)), fresh)

    def _shown(self, rows: _Rows, stepped: Sequence[tuple[Watched, Stepped]], state: State) -> list[Keyed]:
        """What matches, and partial ones whose time was over, look like."""
        founds = [(one, done.matches, False) for one, done in stepped if len(done.matches)]
        if self.timed_out:
            founds += [(one, done.timed_out, True) for one, done in stepped if len(done.timed_out)]
        if not founds:
            return []
        taken = self._gathered(rows, np.unique(np.concatenate([found.rows for _, found, _ in founds])), state,
                               np.unique(np.concatenate([found.keys for _, found, _ in founds])))  # fmt: skip
        emitted = []
        for watched, found, timed_out in founds:
            key, arrays = self.shape.show(watched.program, found, taken, watched.called, timed_out=timed_out)
            columns = [*arrays, *(pa.nulls(len(key), field.type) for field in list(self.output)[len(arrays) :])]
            emitted.append(Keyed(key, pa.RecordBatch.from_arrays(columns, schema=self.output)))
        return emitted

    def _gathered(self, rows: _Rows, numbers: Longs, state: State, keys: Longs) -> Taken:
        """Rows by their numbers, which rise: those of earlier calls first."""
        split = int(np.searchsorted(numbers, rows.first))
        parts, times = [], []
        if split:
            before = state.read(TAKEN, keys).rows
            known = np.asarray(before.column(_NUMBER))
            order = np.argsort(known)
            places = order[np.searchsorted(known[order], numbers[:split])]
            assert np.array_equal(known[places], numbers[:split]), "a row that a match is made of is gone"
            parts.append(before.select(self.carried.names).take(pa.array(places)))
            times.append(np.asarray(before.column(_AT))[places])
        if split < len(numbers):
            assert rows.rows is not None
            places = numbers[split:] - rows.first
            parts.append(rows.rows.select(self.carried.names).take(pa.array(places)))
            times.append(rows.at_us[places])
        if not self.carried.names:
            return Taken(numbers, np.concatenate(times), parts[0])
        return Taken(numbers, np.concatenate(times), pa.concat_batches(parts))

    def _with_status(self, status: str) -> Keyed:
        columns = [
            pa.array([status]) if field.name == STATUS.name else pa.nulls(1, field.type) for field in self.output
        ]
        return Keyed(np.zeros(1, np.int64), pa.RecordBatch.from_arrays(columns, schema=self.output))


def _some(given: Keyed, chosen: NDArray[np.bool_]) -> Keyed:
    places = np.flatnonzero(chosen)
    return Keyed(given.key[places], some_rows(given.rows, places))


def _no_rows(schema: pa.Schema) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.nulls(0, field.type) for field in schema], schema=schema)
