"""`deduplicate`: of rows with the same key the first that was seen, and the operator on keyed state that does it.

State: `seen`, the times of the rows that were let through. One stays until the watermark is so far beyond it that a row
near to it would be late; a key is woken then, so that nothing is left of one that falls silent.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyspark.sql import DataFrame
from pyspark.sql import functions as fn

from headrace.jit import compiled
from headrace.pipelines.keyed.operator import (
    NEVER,
    NO_WATERMARK,
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
from headrace.pipelines.observed import DUPLICATES
from headrace.pipelines.operators.aggregation.algebra import PREPARED
from headrace.pipelines.operators.bloom import LEFT_OUT, WRONG, Filters, ProbablyFirst, check_filters
from headrace.pipelines.operators.errors import BadField, BadWindow, as_names, require
from headrace.pipelines.operators.frames import Transform, check_events, event_time_of, over_keys
from headrace.pipelines.operators.grouping import Longs, group_rows, highest, sort_rows
from headrace.pipelines.operators.stragglers import (
    ASIDE,
    Stragglers,
    aside_field,
    count_late_rows,
    drop,
    next_number,
    set_aside,
)
from headrace.pipelines.operators.time_marks import TimeMark, time_marks
from headrace.pipelines.operators.times import Interval, in_words, positive, some_rows, times_of

SEEN: Final = "seen"
_BLOCK: Final = f"{PREPARED}block"
_BITS: Final = f"{PREPARED}bits"
_ONCE: Final = pa.schema([("seen", pa.bool_())])
_AT: Final = pa.schema([("at", pa.int64())])


def deduplicate(
    by: str | Sequence[str],
    *,
    within: Interval | None = None,
    expected: int | None = None,
    error: float | None = None,
    time: str | None = None,
    stragglers: Stragglers | None = None,
    buckets: int | None = None,
) -> Transform:
    """Of rows with equal `by` the first that is seen, at once and as it is; the others are left out.

    With `within="10 minutes"` a row is left out if one was let through whose event time is no further from its own than
    that, earlier or later; keys are forgotten when the watermark has passed. A row at or behind the watermark is late:
    whether it was seen may be forgotten, so `stragglers` decides about it (`drop()` or `side_output()`). Without
    `within` every key is remembered for ever, and no time is needed. Nulls in `by` are equal to each other.

    Within a micro-batch the earliest by event time is the first. For the last row instead of the first: `latest`.

    With `expected=10_000_000` and `error=0.001` keys are not kept, but Bloom filters for so many different keys in
    `within` (or ever): about three bytes a key whatever its columns are, and no more if more keys come. No row is let
    through twice; but so large a share of the rows with new keys, at most, is left out as if they had been seen, and
    more if more keys come than expected. How many rows were left out, and how many of them perhaps wrongly, is in the
    query's progress (`headrace.duplicates`: `left_out`, `perhaps_wrongly`). Rows up to a quarter further away than
    `within` may be left out as well.
    """
    keys = as_names(by)
    if not keys:
        raise BadField('deduplicate has no key: write by="…" with the columns that are equal in rows that are the same')
    choice = stragglers or drop()
    if choice.corrects:
        raise BadWindow("deduplicate lets a row through once, and has nothing to correct: use drop() or side_output()")
    within_us = None if within is None else positive(within, "within in deduplicate")
    if within_us is None and stragglers is not None:
        raise BadWindow("deduplicate without within= remembers every key, so that no row is late: leave out stragglers")

    check_filters(error, expected)
    filters = Filters.of(error, expected, rotates=within_us is not None) if error and expected else None

    def apply(frame: DataFrame) -> DataFrame:
        require(keys, frame.columns, "by in deduplicate")
        check_events(frame, "deduplicate")
        marks = time_marks(frame)
        if filters is not None:
            mark = None if within_us is None else event_time_of(frame, time, "deduplicate")
            marks = [mark] if mark else marks
            found = _by_filters(frame, keys, filters, mark, within_us, choice, buckets)
        elif within_us is None:
            others = tuple(name for name in frame.columns if name not in keys)
            found = over_keys(frame, keys, lambda rows: FirstEver(others, rows), buckets)
        else:
            marks = [event_time_of(frame, time, "deduplicate")]
            rows, at = marks[0].at_hand(frame)
            others = tuple(name for name in rows.columns if name not in keys)
            found = over_keys(
                rows,
                keys,
                lambda schema: FirstWithin(at.column, within_us, others, choice, schema),
                buckets,
                at.lag_us,
            )
            found = count_late_rows(found, choice)
        names = [*frame.columns, *(name for name in found.columns if name == ASIDE)]
        # A row is let through when it comes, and so carries its time as it did.
        return reduce(lambda each, mark: mark.put(each), marks, found.select(*(f"`{name}`" for name in names)))

    return apply


def _by_filters(
    frame: DataFrame,
    keys: tuple[str, ...],
    filters: Filters,
    mark: TimeMark | None,
    within_us: int | None,
    choice: Stragglers,
    buckets: int | None,
) -> DataFrame:
    """Rows by the blocks of filters that their keys belong to; what was left out is counted."""
    rows, at = mark.at_hand(frame) if mark else (frame, None)
    columns = [fn.col(f"`{name}`") for name in keys]
    hashed = rows.withColumns(
        {_BLOCK: fn.pmod(fn.xxhash64(*columns), fn.lit(filters.blocks)), _BITS: fn.xxhash64(fn.lit("bits"), *columns)}
    )
    carried = tuple(frame.columns)
    found = over_keys(
        hashed,
        (_BLOCK,),
        lambda schema: ProbablyFirst(_BITS, filters, at.column if at else None, within_us, carried, choice, schema),
        buckets,
        at.lag_us if at else 0,
    )
    reason, number = fn.col(f"{ASIDE}.reason"), fn.col(f"{ASIDE}.rows")
    counts = [fn.coalesce(fn.sum(fn.when(reason == why, number)), fn.lit(0)) for why in (LEFT_OUT, WRONG)]
    found = found.observe(f"{DUPLICATES}.{next_number()}", counts[0].alias("left_out"),
                          (counts[1] / 1e6).alias("perhaps_wrongly"))  # fmt: skip
    return count_late_rows(found.where(fn.coalesce(~reason.isin(LEFT_OUT, WRONG), fn.lit(True))), choice)


@dataclass(frozen=True)
class FirstEver(Untimed):
    """The operator without times: `carried` are the columns besides the keys."""

    carried: tuple[str, ...]
    rows: pa.Schema

    def plan(self, keys: pa.Schema, rows: pa.Schema) -> Plan:
        return Plan(pa.schema([self.rows.field(name) for name in self.carried]), (Values(SEEN, _ONCE),))

    def on_rows(self, batch: Batch, state: State, times: Times) -> Changes:
        """The first row of each key that is new."""
        new = np.ones(batch.keys.num_rows, np.bool_)
        new[state.read(SEEN).key] = False
        first = group_rows(batch.key).firsts
        first = np.sort(first[new[batch.key[first]]])
        rows = batch.rows.select(self.carried).take(pa.array(first))
        fresh = np.flatnonzero(new)
        seen = pa.RecordBatch.from_arrays([pa.array(np.ones(len(fresh), np.bool_))], schema=_ONCE)
        return Changes(emit=Keyed(batch.key[first], rows), put={SEEN: Keyed(fresh, seen)})


@dataclass(frozen=True)
class FirstWithin:
    """The operator by event time."""

    time: str
    within: int
    carried: tuple[str, ...]
    stragglers: Stragglers
    rows: pa.Schema

    @property
    def output(self) -> pa.Schema:
        carried = [self.rows.field(name).with_nullable(True) for name in self.carried]  # null in what is set aside
        return pa.schema([*carried, aside_field(self.rows, self.stragglers)])

    def plan(self, keys: pa.Schema, rows: pa.Schema) -> Plan:
        parameters = {"time": self.time, "within": in_words(self.within)}
        return Plan(self.output, (Rows(SEEN, _AT, "at"),), Clock.EVENT, parameters=parameters)

    def on_rows(self, batch: Batch, state: State, times: Times) -> Changes:
        """Rows that are near to none that was let through."""
        time, has_time = times_of(batch.rows.column(self.time))
        reached = times.watermark_us
        late = has_time & (time <= reached)
        window = (time - self.within, time)
        aside = set_aside(self.output, batch.key, batch.rows, late=late, timeless=~has_time, window=window,
                          reached_us=reached)  # fmt: skip
        given = np.flatnonzero(has_time & ~late)
        if not len(given):
            return Changes(emit=aside)
        held = state.read(SEEN)
        key = np.concatenate([held.key, batch.key[given]])
        at = np.concatenate([np.asarray(held.rows.column(0)), time[given]])
        is_new = np.arange(len(key)) >= len(held.key)
        order = sort_rows(key, at)
        through = np.zeros(len(key), np.bool_)
        through[order] = _let_through(key[order], at[order], is_new[order], self.within)
        rows = np.sort(given[np.flatnonzero(through[len(held.key) :])])
        carried = some_rows(batch.rows, rows).select(self.carried)
        output = pa.RecordBatch.from_arrays(
            [*carried.columns, pa.nulls(len(rows), self.output.field(len(self.carried)).type)], schema=self.output
        )
        latest = highest(batch.keys.num_rows, key, at, NO_WATERMARK)
        seen = pa.RecordBatch.from_arrays([pa.array(time[rows])], schema=_AT)
        every = np.flatnonzero(latest != NO_WATERMARK)
        return Changes(
            emit=put_together(Keyed(batch.key[rows], output), aside),
            append={SEEN: Keyed(batch.key[rows], seen)},
            event_timers=Timers(every, latest[every] + self.within),
        )

    def on_timers(self, due: Due, state: State, times: Times) -> Changes:
        """Keys that can be forgotten."""
        return Changes(expire={SEEN: times.watermark_us - self.within + 1})


def _let_through(key: Longs, at: Longs, is_new: NDArray[np.bool_], within: int) -> NDArray[np.bool_]:
    """Which of the new rows are near to none let through; sorted by key and time, the old ones were all let through."""
    through = np.zeros(len(key), np.bool_)
    # For each row, when the next old one of its key is.
    following = np.full(len(key), NEVER)
    _choose(key, at, is_new, within, following, through)
    return through


@compiled
def _choose(
    key: Longs, at: Longs, is_new: NDArray[np.bool_], within: int, following: Longs, through: NDArray[np.bool_]
) -> None:
    for row in range(len(key) - 2, -1, -1):
        if key[row + 1] == key[row]:
            following[row] = following[row + 1] if is_new[row + 1] else at[row + 1]
    has_last = False
    last = 0
    for row in range(len(key)):
        if row == 0 or key[row] != key[row - 1]:
            has_last = False
        if is_new[row]:
            if has_last and at[row] - last <= within:
                continue
            if following[row] - within <= at[row]:
                continue
            through[row] = True
        has_last = True
        last = at[row]
