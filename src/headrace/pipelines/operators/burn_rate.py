"""`burn_rate`: how fast results of windows use up an error budget, over long and short windows at once.

A burn of 1 uses up the budget exactly in the time that the objective is for; Google's SRE workbook alerts on 14.4 over
an hour, 6 over six hours and 1 over three days (2, 5 and 10 % of thirty days' budget), each only while a window of a
twelfth of that length burns as fast: so an alert ends soon after the errors do.

State: as with `compare`, `pending` and `history`, the good and the total of earlier windows as far back as the longest
reaches.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyspark.sql import DataFrame

from headrace.pipelines.keyed.operator import (
    Batch,
    Changes,
    Clock,
    Due,
    Keyed,
    Plan,
    State,
    Times,
    Values,
)
from headrace.pipelines.operators.errors import BadField, BadWindow, as_names, require
from headrace.pipelines.operators.frames import Transform, over_keys
from headrace.pipelines.operators.grouping import Longs, find, highest, sort_rows
from headrace.pipelines.operators.times import EARLIEST, Interval, positive, times_of
from headrace.pipelines.operators.windows.gathered import PENDING, Gathered
from headrace.pipelines.operators.windows.results import FINAL, RETRACTED

WORKBOOK: Final = (("5 minutes", "1 hour", 14.4), ("30 minutes", "6 hours", 6.0), ("6 hours", "3 days", 1.0))
_DAY_US: Final = 86_400_000_000
_THRESHOLDS: Final = {_DAY_US // 24: 14.4, _DAY_US // 4: 6.0, 3 * _DAY_US: 1.0}
Window = tuple[Interval, Interval] | tuple[Interval, Interval, float]


def burn_rate(
    *,
    good: str,
    total: str,
    by: str | Sequence[str] = (),
    objective: float = 0.999,
    windows: Sequence[Window] = WORKBOOK,
    buckets: int | None = None,
) -> Transform:
    """Results of windows with how fast their key burns its error budget, and whether that is an alert.

    `good` and `total` are columns of counts, `objective` is the share that has to be good. Each of `windows` is a short
    and a long one, and the burn above which both together are an alert (without it the workbook's, for an hour, six
    hours and three days). For each length there is a column such as `burn_5m`: the share of what was not good, by the
    share that may be; for each pair `alert_5m_1h`; and `alert`, whether any of them is one.

    A window of five minutes holds the results that begin in the five minutes before the result's own end, its own among
    them: whole results, so lengths should be multiples of theirs. Without traffic nothing burns: 0, and no alert.
    It wants results that are emitted once: no corrections, no early ones. A key that has gone silent has no results,
    and so no burn, unless windows without rows have results as well.
    """
    keys = as_names(by)
    pairs = tuple(_pair(window) for window in windows)
    if not pairs:
        raise BadWindow('burn_rate has no windows: write for example windows=[("5m", "1h", 14.4)]')
    if not 0 < objective < 1:
        raise BadField(f"burn_rate: objective is {objective}, and it is a share between 0 and 1, as 0.999 is")
    names = [name for name in _columns(pairs) if name in (*keys, good, total)]
    if names:
        raise BadField(f"burn_rate: {names[0]!r} is a column of the result: call the other one otherwise")

    def apply(frame: DataFrame) -> DataFrame:
        require([*keys, good, total, "window_start", "window_end"], frame.columns, "burn_rate")
        again = [name for name in (RETRACTED, FINAL) if name in frame.columns]
        if again:
            raise BadWindow(
                f"burn_rate takes results that are emitted once, and these have {again[0]!r}: leave out correct(…) and "
                "early=… in the window before it"
            )
        for name in (good, total):
            kind = frame.schema[name].dataType.simpleString()
            if kind not in ("tinyint", "smallint", "int", "bigint"):
                raise BadField(f"burn_rate: {name!r} is {kind}, and it counts: make it a whole number")
        taken = [name for name in _columns(pairs) if name in frame.columns]
        if taken:
            raise BadField(f"burn_rate: there is a column {taken[0]!r} already: rename or drop it")
        carried = tuple(name for name in frame.columns if name not in keys)
        allowed = 1 - Fraction(Decimal(str(objective)))
        return over_keys(frame, keys, lambda rows: Burning(good, total, allowed, pairs, carried, rows), buckets)

    return apply


class Pair(NamedTuple):
    """A short and a long window in microseconds, and the burn above which both are an alert."""

    short_us: int
    long_us: int
    threshold: Fraction


def _pair(window: Window) -> Pair:
    short, long = (positive(length, "a window of burn_rate") for length in window[:2])
    if short >= long:
        raise BadWindow(f"burn_rate: {window[0]!r} is not shorter than {window[1]!r}: name the short one first")
    threshold = window[2] if len(window) == 3 else _THRESHOLDS.get(long)
    if threshold is None or not threshold > 0:
        raise BadWindow(
            f"burn_rate: say above which burn {window[0]!r} and {window[1]!r} are an alert, as in "
            f"({window[0]!r}, {window[1]!r}, 6.0)"
        )
    return Pair(short, long, Fraction(Decimal(str(threshold))))


def _spelled(length_us: int) -> str:
    for size, unit in ((_DAY_US, "d"), (_DAY_US // 24, "h"), (60_000_000, "m"), (1_000_000, "s"), (1000, "ms")):
        if length_us % size == 0:
            return f"{length_us // size}{unit}"
    return f"{length_us}us"


def _lengths(pairs: Sequence[Pair]) -> list[int]:
    return sorted({length for pair in pairs for length in pair[:2]})


def _columns(pairs: Sequence[Pair]) -> list[str]:
    burns = [f"burn_{_spelled(length)}" for length in _lengths(pairs)]
    return [*burns, *(f"alert_{_spelled(pair.short_us)}_{_spelled(pair.long_us)}" for pair in pairs), "alert"]


HISTORY = "history"
_PAST = pa.schema([("at", pa.int64()), ("bad", pa.int64()), ("total", pa.int64())])


@dataclass(frozen=True)
class Burning:
    """The operator: `allowed` is the share that need not be good."""

    good: str
    total: str
    allowed: Fraction
    pairs: tuple[Pair, ...]
    carried: tuple[str, ...]
    rows: pa.Schema

    @property
    def output(self) -> pa.Schema:
        kinds = [pa.float64() if name.startswith("burn_") else pa.bool_() for name in _columns(self.pairs)]
        added = [pa.field(name, kind) for name, kind in zip(_columns(self.pairs), kinds, strict=True)]
        return pa.schema([*self._gathered.fields, *added])

    @property
    def _gathered(self) -> Gathered:
        return Gathered(self.carried, self.rows)

    def plan(self, keys: pa.Schema, rows: pa.Schema) -> Plan:
        tables = (self._gathered.table, Values(HISTORY, _PAST, "at"))
        return Plan(self.output, tables, Clock.EVENT, parameters={"good": self.good, "total": self.total})

    def on_rows(self, batch: Batch, state: State, times: Times) -> Changes:
        """Results are put down until all of the micro-batch are there."""
        return self._gathered.put_down(batch)

    def on_timers(self, due: Due, state: State, times: Times) -> Changes:
        pending, past = state.read(PENDING), state.read(HISTORY)
        at = np.asarray(pending.rows.column(0))
        end, _ = times_of(self._gathered.column(pending, "window_end"))
        good, total = (self._counts(pending, name) for name in (self.good, self.total))
        bad = np.maximum(total - good, 0)
        key = np.concatenate([past.key, pending.key])
        starts, bads, totals = (
            np.concatenate([np.asarray(past.rows.column(column)), new]) for column, new in enumerate((at, bad, total))
        )
        order = sort_rows(key, starts)
        key, starts, bads, totals = key[order], starts[order], bads[order], totals[order]
        sums = {
            length: _over(key, starts, bads, totals, pending.key, end - length, end) for length in _lengths(self.pairs)
        }
        found = [pa.array(self._burn(*sums[length])) for length in _lengths(self.pairs)]
        alerts = [
            self._exceeds(*sums[pair.short_us], pair.threshold) & self._exceeds(*sums[pair.long_us], pair.threshold)
            for pair in self.pairs
        ]
        found += [pa.array(alert) for alert in (*alerts, np.logical_or.reduce(alerts))]
        emit = self._gathered.with_columns(pending, found, self.output)
        reach = max(_lengths(self.pairs))
        latest = highest(len(due), key, starts, EARLIEST)
        kept = np.flatnonzero(starts >= latest[key] - reach)
        columns = [pa.array(each[kept]) for each in (starts, bads, totals)]
        history = Keyed(key[kept], pa.RecordBatch.from_arrays(columns, schema=_PAST))
        every = np.arange(len(due), dtype=np.int64)
        return Changes(emit=emit, delete={PENDING: every}, put={HISTORY: history})

    def _counts(self, pending: Keyed, name: str) -> Longs:
        return np.asarray(self._gathered.column(pending, name).cast(pa.int64()).fill_null(0))

    def _burn(self, bad: Longs, total: Longs) -> NDArray[np.float64]:
        return np.where(total > 0, bad / np.maximum(total, 1), 0.0) / float(self.allowed)

    def _exceeds(self, bad: Longs, total: Longs, threshold: Fraction) -> NDArray[np.bool_]:
        """Whether the burn is above, exactly: in whole numbers, of any size."""
        limit = threshold * self.allowed
        above = [b * limit.denominator > t * limit.numerator for b, t in zip(bad.tolist(), total.tolist(), strict=True)]
        return np.array(above, np.bool_)


def _over(
    key: Longs, starts: Longs, bads: Longs, totals: Longs, of: Longs, low: Longs, high: Longs
) -> tuple[Longs, Longs]:
    """What was bad, and how much there was, of each key from one time up to another."""
    first, last = (find(key, starts, of, at, side="left") for at in (low, high))
    sums = (np.concatenate([np.zeros(1, np.int64), np.cumsum(each)]) for each in (bads, totals))
    bad, total = (each[last] - each[first] for each in sums)
    return bad, total
