"""`rolling`: for every row, aggregates of the last so many rows of its key.

State: `last`, what aggregates keep of the last rows of each key. It is added to, and cut back only when a key has
twice as many as it needs, so that a row costs the same whatever the number of rows in a window.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame

from headrace.pipelines.keyed.operator import NEVER, Keyed, Rows, State, Table
from headrace.pipelines.operators.aggregation.algebra import Aggregate
from headrace.pipelines.operators.aggregation.fold import Fold, fold
from headrace.pipelines.operators.errors import BadField, BadWindow, as_names, require
from headrace.pipelines.operators.frames import Transform
from headrace.pipelines.operators.grouping import Longs, find, highest, sort_rows
from headrace.pipelines.operators.ordered.in_order import Ready, Stepped, check_stragglers, put_in_order
from headrace.pipelines.operators.stragglers import Stragglers
from headrace.pipelines.operators.time_marks import TimeMark
from headrace.pipelines.operators.times import EARLIEST, TIMESTAMP, Interval, in_words, positive, timestamps
from headrace.pipelines.operators.windows.windowing import read_keywords

_MOST_ROWS = 1_000_000
_SINCE = "since"


def rolling(
    rows: int,
    *,
    within: Interval | None = None,
    by: str | Sequence[str] = (),
    keep: str | Sequence[str] = (),
    time: str | None = None,
    stragglers: Stragglers | None = None,
    buckets: int | None = None,
    **aggregates: Aggregate,
) -> Transform:
    """For every row, aggregates of the last `rows` rows of its key by event time, itself included.

    With `within="1 hour"` only of those that are not more than an hour before it; then a key that falls silent is
    forgotten, and otherwise its last rows are kept. One row comes out for each that goes in, with the columns `keep` of
    it, `since`, the time of the first of the rows, and `window_end`, its own time; it comes when the watermark
    has reached it. Among rows of the same time the order is by what is in them, so that nothing depends on how they
    came. For all rows of an interval, however many: `sliding`.
    """
    count = check_rows(rows, "rolling")
    within_us = None if within is None else positive(within, "within in rolling")
    chosen = read_keywords("rolling", by=by, time=time, stragglers=stragglers, early=None, wall_clock=None,
                           buckets=buckets, aggregates=aggregates)  # fmt: skip
    check_stragglers(chosen.stragglers, "rolling")
    if _SINCE in chosen.aggregates or _SINCE in (*chosen.by, *as_names(keep)):
        raise BadField(f"rolling adds a column {_SINCE!r}, and there is one already: choose another name")
    kept = tuple(name for name in as_names(keep) if name not in chosen.by)

    def apply(frame: DataFrame) -> DataFrame:
        require(kept, frame.columns, "keep")
        timed, made, at = chosen.over(frame)
        fields = [each.field for each in made.aggregates.values() if each.field is not None]
        columns = tuple(dict.fromkeys([*kept, *(name for name in fields if name not in made.by)]))
        found = put_in_order(
            timed, at, columns, made.by, made.stragglers, made.buckets,
            lambda schema: Rolling(count, within_us, kept, made.aggregates, schema),
        )  # fmt: skip
        return found.transform(TimeMark("window_end", lag_us=at.lag_us).put)

    return apply


def check_rows(rows: int, what: str) -> int:
    """How many rows, if that is a number of rows."""
    if isinstance(rows, bool) or not isinstance(rows, int) or not 1 <= rows <= _MOST_ROWS:
        raise BadWindow(f"{what} of rows={rows!r}: write a whole number from 1 to {_MOST_ROWS:,}")
    return rows


LAST = "last"


@dataclass(frozen=True)
class Rolling:
    """The step; `keep` are columns of the row that come out beside its results."""

    count: int
    within: int | None
    keep: tuple[str, ...]
    aggregates: Mapping[str, Aggregate]
    rows: pa.Schema

    @property
    def parameters(self) -> Mapping[str, object]:
        within = "ever" if self.within is None else in_words(self.within)
        return {"rows": self.count, "within": within, **{f"aggregate {n}": each for n, each in self.aggregates.items()}}

    @property
    def fold(self) -> Fold:
        return fold(self.aggregates, self.rows)

    @property
    def _last(self) -> pa.Schema:
        return pa.schema([pa.field("at", pa.int64()), *self.fold.state])

    @property
    def tables(self) -> tuple[Table, ...]:
        return (Rows(LAST, self._last, "at"),)

    @property
    def output(self) -> pa.Schema:
        edges = [pa.field(_SINCE, TIMESTAMP), pa.field("window_end", TIMESTAMP)]
        return pa.schema([*(self.rows.field(name) for name in self.keep), *edges, *self.fold.results])

    def run(self, ready: Ready, state: State) -> Stepped:
        made, old = self.fold, state.read(LAST)
        lifted = made.lift(ready.rows, ready.time)
        fresh = pa.RecordBatch.from_arrays([pa.array(ready.time), *lifted], schema=self._last)
        whole = pa.concat_batches([old.rows, fresh])
        key = np.concatenate([old.key, ready.key])
        order = sort_rows(key)  # both are in order, and all that is new is later
        place = np.empty(len(order), np.int64)
        place[order] = np.arange(len(order))
        key, time = key[order], np.asarray(whole.column(0))[order]
        begins = find(key, time, key, np.full(len(key), EARLIEST), side="left")
        emit = None
        new = place[len(old) :]
        if len(new):
            lows = np.maximum(begins[new], new + 1 - self.count)
            if self.within is not None:
                lows = np.maximum(lows, find(key, time, key[new], time[new] - self.within, side="left"))
            windows = made.load(whole.columns[1:]).take(order).over(lows, new + 1)
            kept = [ready.rows.column(name) for name in self.keep]
            columns = [*kept, timestamps(time[lows]), timestamps(ready.time), *windows.results()]
            emit = Keyed(ready.key, pa.RecordBatch.from_arrays(columns, schema=self.output))
        append, delete = self._cut_back(ready, old, fresh, whole, key, order)
        wake = np.full(ready.keys, NEVER, np.int64)
        expire = {}
        if self.within is not None:
            # A key that falls silent is woken once more, when nothing can reach back to its rows any longer.
            latest = highest(ready.keys, key, time, EARLIEST)
            wake = np.where(latest + self.within >= ready.reached, latest + self.within + 1, wake)
            expire[LAST] = ready.reached - self.within
        return Stepped(emit, wake, append={LAST: append}, delete={LAST: delete}, expire=expire)

    def _cut_back(
        self, ready: Ready, old: Keyed, fresh: pa.RecordBatch, whole: pa.RecordBatch, key: Longs, order: Longs
    ) -> tuple[Keyed, Longs]:
        """What to add to what is kept, and the keys of which all that was kept goes: they get their last rows."""
        total = np.bincount(key, minlength=ready.keys)
        crowded = total > 2 * self.count
        ends = np.cumsum(total)[key]
        last = crowded[key] & (np.arange(len(key)) >= ends - (self.count - 1))
        again = order[last]
        added = np.flatnonzero(~crowded[ready.key])
        rows = np.concatenate([len(old) + added, again])
        keys = np.concatenate([ready.key[added], key[last]])
        return Keyed(keys, whole.take(pa.array(rows))), np.flatnonzero(crowded).astype(np.int64)
