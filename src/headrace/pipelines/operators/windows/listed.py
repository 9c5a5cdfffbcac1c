"""Results of windows without rows, for keys that are listed: each of them has one in every window.

Which windows there are, all keys together decide: from the first one with any row on, up to where the watermark is, or
where the input ends, to the last one with any row. So this stands behind the windows, and sees the results of all keys.

State, for all keys together: `known`, from where to where listed keys have all their results, and the first and last
window with any row; `came`, results of listed keys outside of that; and where results are corrected, `zeros`, what was
emitted here, as long as a late row can retract it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame

from headrace.pipelines.keyed.operator import (
    FINAL_WATERMARK,
    NEVER,
    Batch,
    Changes,
    Clock,
    Due,
    Keyed,
    Plan,
    Rows,
    State,
    Table,
    Timers,
    Times,
    Values,
    put_together,
)
from headrace.pipelines.operators.aggregation.fold import fold
from headrace.pipelines.operators.errors import BadField, BadWindow, require
from headrace.pipelines.operators.frames import arrow_schema, over_keys
from headrace.pipelines.operators.grouping import Longs, find
from headrace.pipelines.operators.stragglers import ASIDE
from headrace.pipelines.operators.time_marks import TimeMark
from headrace.pipelines.operators.times import EARLIEST, LATEST, times_of, timestamps
from headrace.pipelines.operators.windows.empty import Places, check_number
from headrace.pipelines.operators.windows.results import RETRACTED, REVISION
from headrace.pipelines.operators.windows.windowing import Windowing

Listed = DataFrame | Sequence[Any]
_MOST = 1_000_000
_YEAR = 366 * 86_400_000_000
KNOWN, CAME, ZEROS = "known", "came", "zeros"
_KNOWN = pa.schema([(name, pa.int64()) for name in ("begins", "first", "until", "last")])
_END, _BACK = pa.field("end", pa.int64()), pa.field("back", pa.bool_())


def check_listed(chosen: Windowing) -> None:
    """Refuse what listed keys cannot be used with, as far as that needs no data."""
    if not chosen.by:
        raise BadWindow(f'{chosen.what}: empty= lists keys, and there are none: write by="…", or empty="1 hour"')
    if chosen.closing.early_us is not None or chosen.closing.grace_us is not None:
        raise BadWindow(
            f"{chosen.what}: empty= with a list of keys goes by the watermark, which early and wall_clock do not hand "
            'on: leave them out, or write empty="1 hour"'
        )


def fill_listed(
    found: DataFrame, rows: DataFrame, listed: Listed, places: Places, chosen: Windowing, at: TimeMark
) -> DataFrame:
    """The results of windows of rows, and those of listed keys that had none."""
    keys = _read_keys(listed, rows, chosen)
    names, made = found.columns, fold(chosen.aggregates, arrow_schema(rows))
    nothing = pa.RecordBatch.from_arrays(made.load(made.nothing(1)).results(), schema=pa.schema(made.results))
    filled = over_keys(
        found,
        (),
        lambda schema: ListedKeys(
            keys, places, nothing, chosen.stragglers.corrects, chosen.stragglers.allowed_us, tuple(names), schema
        ),
        None,
        at.ends_lag_us,
    )
    return chosen.results(filled.select(*(f"`{name}`" for name in names)), at)


def _read_keys(listed: Listed, frame: DataFrame, chosen: Windowing) -> pa.RecordBatch:
    """The keys, each once, as columns of the types that the frame has."""
    kinds = arrow_schema(frame.select(*(f"`{name}`" for name in chosen.by)))
    what = f"{chosen.what}: empty="
    if nested := [kind.name for kind in kinds if pa.types.is_nested(kind.type)]:
        raise BadField(
            f"{what} cannot list keys of {nested[0]!r}, which is {kinds.field(nested[0]).type}: take a field"
        )
    if isinstance(listed, DataFrame):
        if listed.isStreaming:
            raise BadWindow(f"{what} is a stream, and which keys there are has to be known: read a table instead")
        require(chosen.by, listed.columns, f"by in {chosen.what}, for empty=,")
        # Cast by Spark to what the windows have, so that equal keys are equal.
        types = [frame.schema[name].dataType for name in chosen.by]
        columns = [listed[name].cast(kind).alias(name) for name, kind in zip(chosen.by, types, strict=True)]
        try:
            rows = listed.select(*columns).distinct().limit(_MOST + 1).toArrow()
        except PySparkException as error:
            raise BadField(f"{what} cannot be read: {str(error).partition(chr(10))[0]}") from None
        found = rows.cast(kinds).combine_chunks()
    else:
        given = [each if isinstance(each, tuple) else (each,) for each in listed]
        if wrong := [each for each in given if len(each) != len(chosen.by)]:
            raise BadWindow(f"{what} lists {wrong[0]!r}, and a key is {', '.join(chosen.by)}: write a value for each")
        try:
            columns = [pa.array([row[at] for row in given], kind.type) for at, kind in enumerate(kinds)]
        except (pa.ArrowException, TypeError) as error:
            raise BadField(f"{what} lists what is no key: {error}") from None
        found = pa.Table.from_arrays(columns, schema=kinds)
        found = found.group_by(list(chosen.by)).aggregate([])
    if not 1 <= len(found) <= _MOST:
        raise BadWindow(f"{what} lists {len(found):,} keys: write from 1 to {_MOST:,} of them")
    return pa.RecordBatch.from_arrays([found[name].combine_chunks() for name in chosen.by], schema=kinds)


@dataclass(frozen=True)
class ListedKeys:
    """The operator, of one key: `nothing` is a row of what the aggregates are of no rows, `names` what it emits."""

    keys: pa.RecordBatch
    places: Places
    nothing: pa.RecordBatch
    corrects: bool
    allowed: int
    names: tuple[str, ...]
    rows: pa.Schema

    @property
    def output(self) -> pa.Schema:
        return pa.schema([self.rows.field(name).with_nullable(True) for name in self.names])

    @property
    def _came(self) -> pa.Schema:
        """With the keys themselves: with the next start of the job they may be listed in another order."""
        return pa.schema([_END, *(field.with_name(f"key {field.name}") for field in self.keys.schema)])

    @property
    def _zeroed(self) -> pa.Schema:
        return self._came.append(_BACK)

    def plan(self, keys: pa.Schema, rows: pa.Schema) -> Plan:
        tables: list[Table] = [Values(KNOWN, _KNOWN), Rows(CAME, self._came, "end")]
        if self.corrects:
            tables.append(Rows(ZEROS, self._zeroed, "end"))
        return Plan(self.output, tuple(tables), Clock.EVENT)

    def on_rows(self, batch: Batch, state: State, times: Times) -> Changes:
        """Results go through; one that comes where there was none takes that back."""
        end, has_window = times_of(batch.rows.column("window_end"))
        if ASIDE in self.names:
            has_window = has_window & ~np.asarray(batch.rows.column(ASIDE).is_valid())
        rows = pa.RecordBatch.from_arrays(batch.rows.select(self.names).columns, schema=self.output)
        if not has_window.any():
            return Changes(emit=Keyed(batch.key, rows))
        code = np.where(has_window, self._codes(batch.rows), -1)
        emit, append = None, {}
        if self.corrects:
            rows, emit, taken = self._take_back(rows, code, end, state)
            append[ZEROS] = taken
        begins, first, until, last = self._known(state)
        fresh = np.flatnonzero((code >= 0) & ((end < first) | (end > until)))
        append[CAME] = self._kept(self._came, end[fresh], code[fresh])
        begins, last = min(begins, int(end[has_window].min())), max(last, int(end[has_window].max()))
        return Changes(
            emit=put_together(emit, Keyed(batch.key, rows)),
            put={KNOWN: _knowledge(begins, first, until, last)},
            append=append,
            event_timers=Timers(
                np.zeros(1, np.int64), np.full(1, EARLIEST)
            ),  # in this micro-batch, all rows being there
        )

    def on_timers(self, due: Due, state: State, times: Times) -> Changes:
        """Windows that are over, for the listed keys that have no result in them."""
        reached, slide = times.watermark_us, self.places.slide
        begins, first, until, last = self._known(state)
        limit = self.places.end_until(reached)
        is_over = reached > FINAL_WATERMARK - _YEAR
        limit = min(limit, last) if is_over else limit
        ends = np.arange(begins, min(limit, first - slide) + 1, slide)
        if limit >= begins:
            ends = np.append(ends, np.arange(max(begins, until + slide), limit + 1, slide) if first < LATEST else [])
            first, until = begins, max(until, limit)
        ends = ends.astype(np.int64)
        held, came_end, came_code = self._read(state, CAME)
        check_number(len(ends) * self.keys.num_rows)
        missing = np.ones((len(ends), self.keys.num_rows), np.bool_)
        if len(ends) and len(came_end):
            place = np.minimum(np.searchsorted(ends, came_end), len(ends) - 1)
            known = ends[place] == came_end
            missing[place[known], came_code[known]] = False
        row, code = np.nonzero(missing)
        emit = Keyed(np.zeros(len(code), np.int64), self._zeros(ends[row], code, retracted=False))
        waits = np.flatnonzero((came_end > until) | (came_end < first))
        append = {CAME: Keyed(np.zeros(len(waits), np.int64), held.take(pa.array(waits)))}
        expire = {}
        if self.corrects:
            append[ZEROS] = self._emitted(ends[row], code, back=False)
            expire[ZEROS] = max(reached, EARLIEST) - self.allowed + 1
        following = NEVER if is_over or first == LATEST else until + slide
        return Changes(
            emit=emit if len(code) else None,
            put={KNOWN: _knowledge(begins, first, until, last)},
            append=append,
            delete={CAME: np.zeros(1, np.int64)},
            expire=expire,
            event_timers=Timers(np.zeros(1, np.int64), np.full(1, following)),
        )

    def _known(self, state: State) -> tuple[int, int, int, int]:
        """The earliest window with any row; from and to which all is filled; the latest window with any row."""
        rows = state.read(KNOWN).rows.to_pylist()
        return tuple(rows[0].values()) if rows else (LATEST, LATEST, EARLIEST, EARLIEST)

    def _read(self, state: State, table: str) -> tuple[pa.RecordBatch, Longs, Longs]:
        """Rows of a table of keys that are listed, the ends of their windows, and which keys they are."""
        rows = state.read(table).rows
        code = self._codes(rows.rename_columns([name.removeprefix("key ") for name in rows.schema.names]))
        chosen = np.flatnonzero(code >= 0)
        rows = rows.take(pa.array(chosen))
        return rows, np.asarray(rows.column("end")), code[chosen]

    def _kept(self, schema: pa.Schema, end: Longs, code: Longs, *more: pa.Array) -> Keyed:
        keys = self.keys.take(pa.array(code)).columns
        columns = [pa.array(end, pa.int64()), *keys, *more]
        return Keyed(np.zeros(len(end), np.int64), pa.RecordBatch.from_arrays(columns, schema=schema))

    def _emitted(self, end: Longs, code: Longs, *, back: bool) -> Keyed:
        return self._kept(self._zeroed, end, code, pa.array(np.full(len(end), back)))

    def _codes(self, rows: pa.RecordBatch) -> Longs:
        """Which of the listed keys each row has; -1 for none of them."""
        whole, listed = np.zeros(rows.num_rows, np.int64), np.zeros(self.keys.num_rows, np.int64)
        strange = np.zeros(rows.num_rows, np.bool_)
        for field in self.keys.schema:
            values = self.keys.column(field.name).unique()
            of = pc.index_in(rows.column(field.name), values)
            strange |= ~np.asarray(of.is_valid())
            # Numbers of what is left stay below the number of listed keys.
            both = np.concatenate([listed, whole]) * len(values)
            both += np.concatenate(
                [np.asarray(pc.index_in(self.keys.column(field.name), values)), np.asarray(of.fill_null(0))]
            )
            _, both = np.unique(both, return_inverse=True)
            listed, whole = both[: len(listed)], both[len(listed) :]
        order = np.argsort(listed)
        place = np.minimum(np.searchsorted(listed[order], whole), len(listed) - 1)
        return np.where(strange | (listed[order][place] != whole), -1, order[place]).astype(np.int64)

    def _take_back(
        self, rows: pa.RecordBatch, code: Longs, end: Longs, state: State
    ) -> tuple[pa.RecordBatch, Keyed | None, Keyed]:
        """The rows, counted on behind what was emitted here; that taken back; and a note of it."""
        held, old_end, old_code = self._read(state, ZEROS)
        back = np.asarray(held.column("back"))
        order = np.lexsort((back, old_end, old_code))
        old_end, old_code, back = old_end[order], old_code[order], back[order]
        behind = find(old_code, old_end, code, end, side="right")
        known = behind > find(old_code, old_end, code, end, side="left")
        last = np.maximum(behind - 1, 0)
        fresh = np.flatnonzero(known & ~(back[last] if len(back) else known))
        pairs = np.unique(np.stack([code[fresh], end[fresh]]), axis=1)
        place = rows.schema.get_field_index(REVISION)
        revision = pc.add(rows.column(place), pa.array(known.astype(np.int32)))
        columns = [*rows.columns[:place], revision.cast(rows.column(place).type), *rows.columns[place + 1 :]]
        gone = Keyed(np.zeros(pairs.shape[1], np.int64), self._zeros(pairs[1], pairs[0], retracted=True))
        rows = pa.RecordBatch.from_arrays(columns, schema=rows.schema)
        return rows, gone if len(gone) else None, self._emitted(pairs[1], pairs[0], back=True)

    def _zeros(self, end: Longs, code: Longs, *, retracted: bool) -> pa.RecordBatch:
        """Results of no rows."""
        columns = []
        for field in self.output:
            if field.name in self.keys.schema.names:
                column = self.keys.column(field.name).take(pa.array(code))
            elif field.name in ("window_start", "window_end"):
                column = timestamps(end - self.places.size if field.name == "window_start" else end)
            elif field.name in self.nothing.schema.names:
                column = self.nothing.column(field.name).take(pa.array(np.zeros(len(end), np.int64)))
            elif field.name == REVISION:
                column = pa.array(np.ones(len(end), np.int32))
            elif field.name == RETRACTED:
                column = pa.array(np.full(len(end), retracted))
            else:
                column = pa.nulls(len(end), field.type)
            columns.append(column.cast(field.type))
        return pa.RecordBatch.from_arrays(columns, schema=self.output)


def _knowledge(*known: int) -> Keyed:
    columns = [pa.array([number], pa.int64()) for number in known]
    return Keyed(np.zeros(1, np.int64), pa.RecordBatch.from_arrays(columns, schema=_KNOWN))
