"""`sliding`: for every row, all rows of its key in the interval before it and itself.

State: `buffer`, the rows of each key in the order of time, as long as an interval yet to come can reach back to them. A
row's result is emitted when the watermark has reached its time: then all rows before it have come. Rows of the same
time are in each other's intervals, as with SQL's RANGE.

With corrections a row may come later than that. Its result is emitted at once, and the rows of its key up to an
interval after it have one row more: what was emitted of them (`told`) is retracted and emitted again. Rows of a key and
time keep the order in which they came, so time and place in it name a row.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame

from headrace.pipelines.keyed.operator import NEVER, Batch, Changes, Due, Keyed, Plan, Rows, State, Times
from headrace.pipelines.operators.aggregation.algebra import Aggregate
from headrace.pipelines.operators.aggregation.fold import Folded
from headrace.pipelines.operators.errors import as_names, require
from headrace.pipelines.operators.frames import Transform
from headrace.pipelines.operators.grouping import Longs, find, highest, lowest, sort_rows
from headrace.pipelines.operators.stragglers import Stragglers
from headrace.pipelines.operators.time_marks import TimeMark
from headrace.pipelines.operators.times import EARLIEST, Interval, in_words, positive, some_rows, times_of
from headrace.pipelines.operators.windows.results import RETRACTED, Closing, Remembered, Windowed, news, results_batch
from headrace.pipelines.operators.windows.windowing import read_keywords


def sliding(
    size: Interval,
    *,
    by: str | Sequence[str] = (),
    keep: str | Sequence[str] = (),
    time: str | None = None,
    stragglers: Stragglers | None = None,
    wall_clock: Interval | None = None,
    buckets: int | None = None,
    **aggregates: Aggregate,
) -> Transform:
    """For every row, aggregates of the rows of its key from `size` before it up to its own time, itself included.

    One row comes out for each that goes in, with the columns `keep` of it; `window_end` is its time. It comes when the
    watermark has reached it. With stragglers that correct, a late row is answered when it comes, and the rows up to
    `size` after it, which have one more in their interval now, are retracted and emitted again. What was emitted is
    kept as long as it can be corrected: with `collect` and `count_distinct` that is a list for every row.
    """
    size_us = positive(size, "the size of sliding windows")
    chosen = read_keywords("sliding", by=by, time=time, stragglers=stragglers, early=None, wall_clock=wall_clock,
                       buckets=buckets, aggregates=aggregates)  # fmt: skip
    kept = tuple(name for name in as_names(keep) if name not in chosen.by)  # keys come out anyway

    def apply(frame: DataFrame) -> DataFrame:
        require(kept, frame.columns, "keep")
        timed, made, at = chosen.over(frame)
        fields = [each.field for each in made.aggregates.values() if each.field is not None]
        columns = dict.fromkeys([*made.by, at.column, *kept, *fields])
        found = made.on_state(
            timed if made.stragglers.hands_on else timed.select(*(f"`{name}`" for name in columns)),
            lambda schema: SlidingRows(
                at.column, size_us, kept, made.aggregates, made.stragglers, made.closing, schema
            ),
            at.lag_us,
        )
        again = (RETRACTED,) if made.stragglers.corrects else ()
        # A row's interval ends with the row, and has its time.
        return found.transform(TimeMark("window_end", lag_us=at.lag_us + made.stragglers.allowed_us, again=again).put)

    return apply


BUFFER, TOLD = "buffer", "told"
_ABOUT = [pa.field("at", pa.int64()), pa.field("place", pa.int64()), pa.field("revision", pa.int32())]


@dataclass(frozen=True)
class SlidingRows(Windowed):
    """The operator; `keep` are columns of the row that come out beside its results."""

    time: str
    size: int
    keep: tuple[str, ...]
    aggregates: Mapping[str, Aggregate]
    stragglers: Stragglers
    closing: Closing
    rows: pa.Schema

    @property
    def carried(self) -> list[pa.Field]:
        return [self.rows.field(name).with_nullable(True) for name in self.keep]

    def plan(self, keys: pa.Schema, rows: pa.Schema) -> Plan:
        tables = [Rows(BUFFER, self._schema(), "at")]
        if self.emission.again:
            tables.append(Rows(TOLD, pa.schema([*_ABOUT, *self.fold.state]), "at"))
        parameters = {"size": in_words(self.size), **self.parameters}
        return Plan(self.output, tuple(tables), self.closing.clock, parameters=parameters)

    def on_rows(self, batch: Batch, state: State, times: Times) -> Changes:
        time, has_time = times_of(batch.rows.column(self.time))
        reached = self.closing.reached(times)
        late = has_time & (time <= reached - self.stragglers.allowed_us)
        aside = self.set_aside(batch, late, has_time, (time - self.size, time), reached)
        kept = np.flatnonzero(has_time & ~late)
        if not len(kept):
            return Changes(emit=aside)
        rows, time, key = some_rows(batch.rows, kept), time[kept], batch.key[kept]
        carried = [rows.column(name) for name in self.keep]
        buffered = [pa.array(time), *carried, *self.fold.lift(rows, time)]
        timers = np.minimum(self.closing.waiting(state), lowest(batch.keys.num_rows, key, time, NEVER))
        changes = Changes(
            emit=aside,
            append={BUFFER: Keyed(key, pa.RecordBatch.from_arrays(buffered, schema=self._schema()))},
        )
        return self.closing.set_timers(changes, timers, state, times, fresh=True)

    def on_timers(self, due: Due, state: State, times: Times) -> Changes:
        """Rows whose interval is complete, or has got another row."""
        reached = self.closing.reached(times)
        horizon = reached - self.stragglers.allowed_us
        held = state.read(BUFFER)
        time = np.asarray(held.rows.column(0))
        order = sort_rows(held.key, time)
        key, time = held.key[order], time[order]
        ready = np.flatnonzero((time >= self.closing.due_from(due, state)[key]) & (time <= reached))
        emit, remembered = None, None
        if len(ready):
            lows = find(key, time, key[ready], time[ready] - self.size, side="left")
            highs = find(key, time, key[ready], time[ready], side="right")
            windows = self.fold.load(held.rows.columns[1 + len(self.keep) :]).take(order).over(lows, highs)
            carried = _take(held.rows.columns[1 : 1 + len(self.keep)], order[ready])
            if self.emission.again:
                of = find(key, time, key[ready], time[ready], side="left")
                rows = _Answered(key[ready], time[ready], of, ready - of, carried, windows)
                emitted = state.read(TOLD)
                emit, remembered = self._emit_again(
                    rows, emitted, find(key, time, emitted.key, np.asarray(emitted.rows[0]), side="left")
                )
            else:
                emit = Keyed(key[ready], self._results(time[ready], windows, carried))
        waits = time > reached
        timers = lowest(len(due), key[waits], time[waits], NEVER)
        # A key that falls silent is woken once more, when nothing can reach back to its rows any longer.
        kept_us = self.size + self.stragglers.allowed_us
        latest = highest(len(due), key, time, EARLIEST)
        timers = np.where((timers == NEVER) & (latest + kept_us >= reached), latest + kept_us + 1, timers)
        expire = {BUFFER: horizon - self.size} | ({TOLD: horizon + 1} if self.emission.again else {})
        changes = Changes(
            emit=emit,
            append={TOLD: remembered} if remembered is not None else {},
            expire=expire if reached > EARLIEST else {},
        )
        return self.closing.set_timers(changes, timers, state, times, fresh=False)

    def _emit_again(self, rows: "_Answered", emitted: Keyed, emitted_of: Longs) -> tuple[Keyed | None, Keyed | None]:
        """What to emit for rows, and what to remember of it; `emitted_of` says where the rows of an emission begin."""
        old = self.fold.load(emitted.rows.columns[len(_ABOUT) :])
        place, revision = (np.asarray(emitted.rows.column(at), np.int64) for at in (1, 2))
        remembered = Remembered(emitted_of, place, revision, np.ones(len(emitted), np.bool_), old.rows)
        over = np.ones(len(rows.key), np.bool_)
        found = news(rows.of, rows.place, rows.windows.rows, over, remembered, corrects=True)
        fresh, back = rows.take(found.fresh), rows.take(found.back)
        if not len(fresh.key):
            return None, None
        parts = [
            self._results(back.time, old.take(found.last), back.carried, revision[found.last], retracted=True),
            self._results(fresh.time, fresh.windows, fresh.carried, found.revision),
        ]
        about = [pa.array(fresh.time), pa.array(fresh.place), pa.array(found.revision.astype(np.int32))]
        kept = pa.RecordBatch.from_arrays([*about, *fresh.windows.stored()], schema=emitted.rows.schema)
        return Keyed(np.concatenate([back.key, fresh.key]), pa.concat_batches(parts)), Keyed(fresh.key, kept)

    def _results(
        self,
        time: Longs,
        windows: Folded,
        carried: list[pa.Array],
        revision: Longs | None = None,
        *,
        retracted: bool = False,
    ) -> pa.RecordBatch:
        start = time - self.size
        return results_batch(self.output, start, time, windows, revision, retracted=retracted, carried=carried)

    def _schema(self) -> pa.Schema:
        kept = [pa.field(f"kept.{name}", self.rows.field(name).type) for name in self.keep]
        return pa.schema([pa.field("at", pa.int64()), *kept, *self.fold.state])


@dataclass(frozen=True)
class _Answered:
    """Rows with their windows; `of` says where the rows of the same key and time begin, `place` which of them it is."""

    key: Longs
    time: Longs
    of: Longs
    place: Longs
    carried: list[pa.Array]
    windows: Folded

    def take(self, some: Longs) -> "_Answered":
        columns = (self.key[some], self.time[some], self.of[some], self.place[some])
        return _Answered(*columns, _take(self.carried, some), self.windows.take(some))


def _take(columns: Sequence[pa.Array], rows: Longs) -> list[pa.Array]:
    index = pa.array(rows)
    return [column.take(index) for column in columns]
