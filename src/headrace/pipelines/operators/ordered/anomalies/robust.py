"""`robust`: what is expected is the median of the last values, which a few wild ones do not move.

State: `last`, the values of each key that its next row may be judged by.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from headrace.jit import compiled
from headrace.pipelines.keyed.operator import NEVER, Keyed, Rows, State, Table
from headrace.pipelines.operators.errors import BadWindow
from headrace.pipelines.operators.grouping import Longs, highest, sort_rows
from headrace.pipelines.operators.ordered.anomalies.flags import Doubles, Judged, Points, check_way
from headrace.pipelines.operators.ordered.in_order import Stepped
from headrace.pipelines.operators.times import EARLIEST, Interval, in_words, positive

_MOST: Final = 100_000
LAST = "last"
_LAST = pa.schema([("at", pa.int64()), ("value", pa.float64())])


def robust(
    rows: int | None = None,
    *,
    within: Interval | None = None,
    threshold: float = 3.5,
    warm_up: int = 10,
    least_spread: float = 0.0,
) -> "Robust":
    """For `flag_anomalies`: expects the median of the last values, and measures by their median distance from it.

    They are the last `rows` values of the key before the row, or those not more than `within` before it, or both.
    The distance is multiplied by 1.4826, so that the score of normally distributed values is their z-score (the
    modified z-score of Iglewicz and Hoaglin). `warm_up` is how many of these values there have to be, `threshold` how
    many spreads off a value is an anomaly, `least_spread` what the spread is taken for at least.
    """
    check_way("robust", threshold, least_spread, warm_up)
    if rows is None and within is None:
        raise BadWindow("robust has no window: write how many rows, or within='1 hour'")
    if rows is not None and (isinstance(rows, bool) or not isinstance(rows, int) or not 2 <= rows <= _MOST):
        raise BadWindow(f"robust of rows={rows!r}: write a whole number from 2 to {_MOST:,}")
    if rows is not None and warm_up > rows:
        raise BadWindow(f"robust would never begin: warm_up={warm_up} is more than rows={rows}: write a lesser one")
    within_us = None if within is None else positive(within, "within in robust")
    return Robust(rows, within_us, float(threshold), warm_up, float(least_spread))


@dataclass(frozen=True)
class Robust:
    """The way: `within` in microseconds."""

    rows: int | None
    within: int | None
    threshold: float
    warm_up: int
    least_spread: float

    @property
    def parameters(self) -> Mapping[str, object]:
        return {"within": "ever" if self.within is None else in_words(self.within)}

    @property
    def tables(self) -> tuple[Table, ...]:
        return (Rows(LAST, _LAST, "at"),)

    def judge(self, points: Points, state: State) -> Judged:
        old = state.read(LAST)
        whose = np.concatenate([old.key, points.key])
        at = np.concatenate([np.asarray(old.rows.column(0)), points.time])
        value = np.concatenate([np.asarray(old.rows.column(1)), points.value])
        valid = np.concatenate([np.ones(len(old), np.bool_), points.valid])
        order = sort_rows(whose)  # both are in order, and all that is new is later
        key, time = whose[order], at[order]
        expected, spread = np.full(len(key), np.nan), np.full(len(key), np.nan)
        most, within = self.rows or 0, -1 if self.within is None else self.within
        _run(key, time, value[order], valid[order], order >= len(old), most, within, self.warm_up, expected, spread)
        place = np.empty(len(order), np.int64)
        place[order] = np.arange(len(order))
        new = place[len(old) :]
        append, delete = self._cut_back(points.keys, len(old), whose, at, value, valid, order)
        wake = np.full(points.keys, NEVER, np.int64)
        expire = {}
        if self.within is not None:
            latest = highest(points.keys, whose, at, EARLIEST)
            wake = np.where(latest + self.within >= points.reached, latest + self.within + 1, wake)
            expire[LAST] = points.reached - self.within
        kept = Stepped(None, wake, append={LAST: append}, delete={LAST: delete}, expire=expire)
        return Judged(expected[new] if len(new) else expected[:0], spread[new] if len(new) else spread[:0], kept)

    def _cut_back(
        self, count: int, old: int, whose: Longs, at: Longs, value: Doubles, valid: NDArray[np.bool_], order: Longs
    ) -> tuple[Keyed, Longs]:
        """What to add to what is kept, and the keys that have so much that they are written anew."""
        order = order[valid[order]]
        total = np.bincount(whose[order], minlength=count)
        crowded = total > 2 * self.rows if self.rows is not None else np.zeros(count, np.bool_)
        key = whose[order]
        again = order[crowded[key] & (np.arange(len(key)) >= np.cumsum(total)[key] - (self.rows or 0))]
        added = np.flatnonzero(valid[old:] & ~crowded[whose[old:]]) + old
        rows = np.concatenate([added, again])
        columns = [pa.array(at[rows]), pa.array(value[rows])]
        kept = Keyed(whose[rows], pa.RecordBatch.from_arrays(columns, schema=_LAST))
        return kept, np.flatnonzero(crowded).astype(np.int64)


@compiled
def _place(held: Doubles, size: int, value: float) -> int:
    low = 0
    high = size
    while low < high:
        middle = (low + high) // 2
        if held[middle] < value:
            low = middle + 1
        else:
            high = middle
    return low


@compiled
def _without(held: Doubles, size: int, value: float) -> int:
    for to in range(_place(held, size, value), size - 1):
        held[to] = held[to + 1]
    return size - 1


@compiled
def _median_distance(held: Doubles, size: int, median: float) -> float:
    """The median of the distances, which grow to both sides of the median."""
    right = _place(held, size, median)
    left = right - 1
    before = 0.0
    now = 0.0
    for _ in range(size // 2 + 1):
        before = now
        if right >= size or (left >= 0 and median - held[left] <= held[right] - median):
            now = median - held[left]
            left -= 1
        else:
            now = held[right] - median
            right += 1
    return now if size % 2 == 1 else before / 2 + now / 2


@compiled
def _run(
    key: Longs, time: Longs, value: Doubles, valid: NDArray[np.bool_], is_new: NDArray[np.bool_], most: int,
    within: int, warm_up: int, expected: Doubles, spread: Doubles,
) -> None:  # fmt: skip
    held = np.empty(len(key))
    row = 0
    size = 0
    oldest = 0  # of the values held the first; those that are not valid are passed over
    while row < len(key):
        of = key[row]
        now = time[row]
        if row == 0 or key[row - 1] != of:
            size = 0
            oldest = row
        end = row + 1
        while end < len(key) and key[end] == of and time[end] == now:
            end += 1
        while oldest < row and within >= 0 and time[oldest] < now - within:
            if valid[oldest]:
                size = _without(held, size, value[oldest])
            oldest += 1
        if is_new[end - 1] and size > 0:
            median = held[size // 2] if size % 2 == 1 else held[size // 2 - 1] / 2 + held[size // 2] / 2
            distance = _median_distance(held, size, median) if size >= warm_up else np.nan
            for each in range(row, end):
                expected[each] = median
                spread[each] = distance * 1.482602218505602  # the deviation, where values are normal
        for each in range(row, end):
            if valid[each]:
                at = _place(held, size, value[each])
                for to in range(size, at, -1):
                    held[to] = held[to - 1]
                held[at] = value[each]
                size += 1
        while most > 0 and size > most:
            if valid[oldest]:
                size = _without(held, size, value[oldest])
            oldest += 1
        row = end
