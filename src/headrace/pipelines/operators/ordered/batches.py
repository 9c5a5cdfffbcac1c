"""`batches`: aggregates of so many rows of a key, one batch behind the other.

State: `open`, what aggregates keep of each key's batch that is not full yet.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as fn

from headrace.jit import compiled
from headrace.pipelines.keyed.operator import NEVER, Keyed, State, Table, Values
from headrace.pipelines.operators.aggregation.algebra import PREPARED, Aggregate
from headrace.pipelines.operators.aggregation.fold import Fold, fold
from headrace.pipelines.operators.errors import BadField, BadWindow
from headrace.pipelines.operators.frames import Transform
from headrace.pipelines.operators.grouping import Groups, Longs, sort_rows
from headrace.pipelines.operators.ordered.in_order import Ready, Stepped, check_stragglers, put_in_order
from headrace.pipelines.operators.ordered.rolling import check_rows
from headrace.pipelines.operators.stragglers import Stragglers
from headrace.pipelines.operators.time_marks import TimeMark
from headrace.pipelines.operators.times import TIMESTAMP, Interval, in_words, positive, timestamps
from headrace.pipelines.operators.windows.windowing import read_keywords

_ENDS = f"{PREPARED}ends a batch"


def batches(
    rows: int | None = None,
    *,
    within: Interval | None = None,
    ends: str | Column | None = None,
    by: str | Sequence[str] = (),
    time: str | None = None,
    stragglers: Stragglers | None = None,
    buckets: int | None = None,
    **aggregates: Aggregate,
) -> Transform:
    """Aggregates of the rows of a key in batches: of `rows` rows, or up to a row for which the condition `ends` holds.

    With `within="1 minute"` a batch ends so long after its first row at the latest; the next row begins another one.
    Whichever comes first ends it. A result has `window_start`, the time of its first row, and `window_end`, that of its
    last one, or of its end by `within`; it comes when the watermark has reached that. A batch that never ends has no
    result, also where the input ends: write `within`, and its rest comes out. Rows are in the order of event time, and
    those of the same time by what is in them.
    """
    count = None if rows is None else check_rows(rows, "batches")
    within_us = None if within is None else positive(within, "within in batches")
    if count is None and ends is None:
        raise BadWindow('batches have no end: write batches(100, …) or ends="…" (with within= alone use tumbling)')
    chosen = read_keywords("batches", by=by, time=time, stragglers=stragglers, early=None, wall_clock=None,
                           buckets=buckets, aggregates=aggregates)  # fmt: skip
    check_stragglers(chosen.stragglers, "batches")

    def apply(frame: DataFrame) -> DataFrame:
        timed, made, at = chosen.over(frame)
        ended = None
        if ends is not None:
            ended, timed = _ENDS, _with_ends(timed, ends)
        fields = [each.field for each in made.aggregates.values() if each.field is not None]
        columns = tuple(dict.fromkeys([*(n for n in fields if n not in made.by), *([ended] if ended else [])]))
        found = put_in_order(
            timed, at, columns, made.by, made.stragglers, made.buckets,
            lambda schema: Batches(count, within_us, ended, made.aggregates, schema),
        )  # fmt: skip
        return found.transform(TimeMark("window_end", lag_us=at.lag_us).put)

    return apply


def _with_ends(frame: DataFrame, ends: str | Column) -> DataFrame:
    try:
        condition = fn.expr(ends) if isinstance(ends, str) else ends
        found = frame.withColumn(_ENDS, condition)
        kind = found.schema[_ENDS].dataType.simpleString()
    except AnalysisException as error:
        why = str(error).partition("\n")[0].partition(" SQLSTATE")[0]
        raise BadField(f"batches: ends={ends!r} cannot be evaluated: {why}") from None
    if kind != "boolean":
        raise BadField(f"batches: ends={ends!r} is {kind} and no condition: write for example \"kind = 'stop'\"")
    return found


OPEN = "open"


@dataclass(frozen=True)
class Batches:
    """The step; `ends` is the column of flags that end a batch."""

    count: int | None
    within: int | None
    ends: str | None
    aggregates: Mapping[str, Aggregate]
    rows: pa.Schema

    @property
    def parameters(self) -> Mapping[str, object]:
        within = "never" if self.within is None else in_words(self.within)
        size = "any" if self.count is None else self.count
        return {"rows": size, "within": within, **{f"aggregate {n}": each for n, each in self.aggregates.items()}}

    @property
    def fold(self) -> Fold:
        return fold(self.aggregates, self.rows)

    @property
    def _open(self) -> pa.Schema:
        return pa.schema([pa.field("start", pa.int64()), *self.fold.state])

    @property
    def tables(self) -> tuple[Table, ...]:
        return (Values(OPEN, self._open),)

    @property
    def output(self) -> pa.Schema:
        edges = [pa.field("window_start", TIMESTAMP), pa.field("window_end", TIMESTAMP)]
        return pa.schema([*edges, *self.fold.results])

    def run(self, ready: Ready, state: State) -> Stepped:
        made, old = self.fold, state.read(OPEN)
        lifted = made.lift(ready.rows, ready.time)
        columns = [pa.concat_arrays([o, n]) for o, n in zip(old.rows.columns[1:], lifted, strict=True)]
        key = np.concatenate([old.key, ready.key])
        time = np.concatenate([np.asarray(old.rows.column(0)), ready.time])
        folded = made.load(columns)
        flags = np.zeros(len(key), np.bool_)
        if self.ends is not None:
            flags[len(old) :] = np.asarray(ready.rows.column(self.ends).fill_null(False))
        order = sort_rows(key)
        of, ends = np.empty(len(key), np.int64), np.full(len(key), NEVER, np.int64)
        within = -1 if self.within is None else self.within
        number = _cut(key[order], time[order], folded.rows[order], flags[order], self.count or 0, within, of, ends)
        firsts = np.flatnonzero(np.diff(of, prepend=-1)).astype(np.int64)
        whole = folded.reduce(Groups(order, firsts, np.append(firsts[1:], len(key)))) if number else folded
        whose, start, end = key[order][firsts], time[order][firsts], ends[:number]
        over = end <= ready.reached
        emit = None
        done, left = np.flatnonzero(over), np.flatnonzero(~over)
        if len(done):
            columns = [timestamps(start[done]), timestamps(end[done]), *whole.take(done).results()]
            emit = Keyed(whose[done], pa.RecordBatch.from_arrays(columns, schema=self.output))
        columns = [pa.array(start[left]), *whole.take(left).stored()]
        kept = Keyed(whose[left], pa.RecordBatch.from_arrays(columns, schema=self._open))
        gone = np.setdiff1d(np.arange(ready.keys), whose[left])
        wake = np.full(ready.keys, NEVER, np.int64)
        wake[whose[left]] = end[left]
        return Stepped(emit, wake, put={OPEN: kept}, delete={OPEN: gone})


@compiled
def _cut(
    key: Longs, time: Longs, rows: Longs, flags: NDArray[np.bool_], most: int, within: int, of: Longs, ends: Longs
) -> int:
    """Of each row its batch, and of each batch its end: by `within`, or the time of its last row; else never."""
    batch = -1
    held = 0
    begun = 0
    open_now = False
    for row in range(len(key)):
        other = row == 0 or key[row] != key[row - 1]
        if other or not open_now or (within >= 0 and time[row] >= begun + within):
            batch += 1
            held = 0
            begun = time[row]
            open_now = True
            if within >= 0:
                ends[batch] = begun + within
        of[row] = batch
        held += rows[row]
        if flags[row] or (most > 0 and held >= most):
            ends[batch] = time[row]
            open_now = False
    return batch + 1
