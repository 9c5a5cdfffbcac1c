"""`seasonal`: what is expected is the mean of the same slot of earlier periods: of this hour on other Mondays.

State: `slots`, count, mean and spread of the values of each slot, as far back as any row reaches.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from headrace.pipelines.keyed.operator import NEVER, Keyed, Rows, State, Table
from headrace.pipelines.operators.aggregation.cells import Moments
from headrace.pipelines.operators.errors import BadWindow
from headrace.pipelines.operators.grouping import Longs, find, group_rows, highest
from headrace.pipelines.operators.ordered.anomalies.flags import Judged, Points, check_way
from headrace.pipelines.operators.ordered.in_order import Stepped
from headrace.pipelines.operators.times import EARLIEST, Interval, in_words, microseconds, positive

_MOST = 10_000
SLOTS = "slots"
_SLOTS = pa.schema([("at", pa.int64()), ("n", pa.float64()), ("mean", pa.float64()), ("squares", pa.float64())])


def seasonal(
    period: Interval,
    slot: Interval,
    *,
    periods: int = 4,
    offset: Interval = "0 seconds",
    threshold: float = 3.0,
    warm_up: int = 2,
    least_spread: float = 0.0,
) -> "Seasonal":
    """For `flag_anomalies`: expects the mean of the same slot in the `periods` before, and measures by the deviation.

    `seasonal("7 days", "1 hour")` holds a value against those of the same hour of the week in the last four weeks.
    Slots begin at multiples of `slot` since 1970 in UTC, `offset` later if given. `warm_up` is how many values there
    have to be in them, 2 at least for there to be a spread. Behind `tumbling` each slot has a value for each window; a
    window is in the slot of its last moment. `threshold` is how many spreads off a value is an anomaly, `least_spread`
    what the spread is taken for at least.
    """
    check_way("seasonal", threshold, least_spread, warm_up)
    period_us, slot_us = positive(period, "period in seasonal"), positive(slot, "slot in seasonal")
    if period_us % slot_us:
        raise BadWindow(f"seasonal: slots of {slot!r} do not fit into a period of {period!r}: write a part of it")
    if isinstance(periods, bool) or not isinstance(periods, int) or not 1 <= periods <= _MOST:
        raise BadWindow(f"seasonal of periods={periods!r}: write a whole number from 1 to {_MOST:,}")
    shift = microseconds(offset, "offset in seasonal") % slot_us
    return Seasonal(period_us, slot_us, periods, shift, float(threshold), max(warm_up, 2), float(least_spread))


@dataclass(frozen=True)
class Seasonal:
    """The way: times in microseconds."""

    period: int
    slot: int
    periods: int
    offset: int
    threshold: float
    warm_up: int
    least_spread: float

    @property
    def parameters(self) -> Mapping[str, object]:
        return {"period": in_words(self.period), "slot": in_words(self.slot), "offset": in_words(self.offset)}

    @property
    def tables(self) -> tuple[Table, ...]:
        return (Rows(SLOTS, _SLOTS, "at"),)

    def judge(self, points: Points, state: State) -> Judged:
        old = state.read(SLOTS)
        slot = (points.time - self.offset) // self.slot * self.slot + self.offset
        counted = np.flatnonzero(points.valid)
        fresh = Moments(np.ones(len(counted)), points.value[counted], np.zeros(len(counted)))
        groups = group_rows(points.key[counted], slot[counted])
        fresh = fresh.reduce(groups)
        added_key, added_at = points.key[counted][groups.firsts], slot[counted][groups.firsts]
        key = np.concatenate([old.key, added_key])
        at = np.concatenate([np.asarray(old.rows.column(0)), added_at])
        parts = zip(old.rows.columns[1:], (fresh.count, fresh.mean, fresh.squares), strict=True)
        moments = Moments(*(np.concatenate([np.asarray(one), other]) for one, other in parts))
        rows = np.bincount(key, minlength=points.keys)
        groups = group_rows(key, at)
        moments, key, at = moments.reduce(groups), key[groups.firsts], at[groups.firsts]
        # A key with many rows a slot gets them put together, so that reading does not grow with batches.
        crowded = rows > 2 * np.bincount(key, minlength=points.keys)
        nothing = np.zeros(len(points.key))
        found = Moments(nothing, nothing, nothing)
        if len(key):
            for back in range(self.periods, 0, -1):
                found = found.merge(_at(moments, key, at, points.key, slot - back * self.period))
        expected = np.where(found.count > 0, found.mean, np.nan)
        variance = found.squares / np.maximum(found.count - 1, 1)
        spread = np.where(found.count >= self.warm_up, np.sqrt(variance), np.nan)
        reach = self.periods * self.period + self.slot
        latest = highest(points.keys, key, at, EARLIEST)
        wake = np.where(latest + reach >= points.reached, latest + reach + 1, NEVER)
        single, whole = np.flatnonzero(~crowded[added_key]), np.flatnonzero(crowded[key])
        columns = [
            pa.array(np.concatenate([one[single], all_of[whole]]))
            for one, all_of in (
                (added_at, at), (fresh.count, moments.count), (fresh.mean, moments.mean),
                (fresh.squares, moments.squares),
            )
        ]  # fmt: skip
        added = Keyed(
            np.concatenate([added_key[single], key[whole]]), pa.RecordBatch.from_arrays(columns, schema=_SLOTS)
        )
        kept = Stepped(None, wake, append={SLOTS: added}, delete={SLOTS: np.flatnonzero(crowded).astype(np.int64)},
                       expire={SLOTS: points.reached - reach})  # fmt: skip
        return Judged(expected, spread, kept)


def _at(moments: Moments, key: Longs, at: Longs, wanted_key: Longs, wanted_at: Longs) -> Moments:
    """Those of one slot each, or of nothing."""
    place = np.minimum(find(key, at, wanted_key, wanted_at, side="left"), len(key) - 1)
    there = (key[place] == wanted_key) & (at[place] == wanted_at)
    return Moments(*(np.where(there, column[place], 0.0) for column in (moments.count, moments.mean, moments.squares)))
