"""`ewma`: what is expected is the mean of the values before, of which older ones count less and less."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from headrace.jit import compiled
from headrace.pipelines.keyed.operator import NEVER, Keyed, State, Table, Values
from headrace.pipelines.operators.grouping import Longs
from headrace.pipelines.operators.ordered.anomalies.flags import Doubles, Judged, Points, check_way
from headrace.pipelines.operators.ordered.in_order import Stepped
from headrace.pipelines.operators.times import Interval, in_words, positive

_FORGOTTEN: Final = 64
"""After so many half-lives of silence a key begins anew: what was before counts less than a double can tell."""
USUAL = "usual"
_USUAL = pa.schema([("at", pa.int64()), ("n", pa.int64()), ("weight", pa.float64()), ("mean", pa.float64()),
                    ("squares", pa.float64())])  # fmt: skip


def ewma(half_life: Interval, *, threshold: float = 3.0, warm_up: int = 10, least_spread: float = 0.0) -> "Ewma":
    """For `flag_anomalies`: expects the exponentially weighted mean, and measures by the standard deviation around it.

    A value counts half as much as one that is `half_life` younger, by event time. `warm_up` is how many values a key
    has to have had; one that was silent for 64 half-lives begins anew, and is forgotten. Anomalies count like all
    values: after a step of the level the new one is expected before long. `threshold` is how many spreads off a value
    is an anomaly, `least_spread` what the spread is taken for at least.
    """
    check_way("ewma", threshold, least_spread, warm_up)
    return Ewma(positive(half_life, "half_life in ewma"), float(threshold), warm_up, float(least_spread))


@dataclass(frozen=True)
class Ewma:
    """The way: `half_life` in microseconds."""

    half_life: int
    threshold: float
    warm_up: int
    least_spread: float

    @property
    def parameters(self) -> Mapping[str, object]:
        return {"half_life": in_words(self.half_life)}

    @property
    def tables(self) -> tuple[Table, ...]:
        return (Values(USUAL, _USUAL),)

    def judge(self, points: Points, state: State) -> Judged:
        old = state.read(USUAL)
        count = points.keys
        at, n = np.full(count, NEVER), np.zeros(count, np.int64)
        weight, mean, squares = (np.zeros(count) for _ in range(3))
        for into, column in zip((at, n, weight, mean, squares), old.rows.columns, strict=True):
            into[old.key] = np.asarray(column)
        expected, spread = np.full(len(points.key), np.nan), np.full(len(points.key), np.nan)
        _run(points.key, points.time, points.value, points.valid, float(self.half_life), self.half_life * _FORGOTTEN,
             self.warm_up, at, n, weight, mean, squares, expected, spread)  # fmt: skip
        known = (at != NEVER) & (at >= points.reached - self.half_life * _FORGOTTEN)
        kept = np.flatnonzero(known)
        columns = [pa.array(column[kept]) for column in (at, n, weight, mean, squares)]
        wake = np.where(known, at + self.half_life * _FORGOTTEN + 1, NEVER)
        put = {USUAL: Keyed(kept, pa.RecordBatch.from_arrays(columns, schema=_USUAL))}
        return Judged(expected, spread, Stepped(None, wake, put=put, delete={USUAL: np.flatnonzero(~known)}))


@compiled
def _run(
    key: Longs, time: Longs, value: Doubles, valid: NDArray[np.bool_], half_life: float, forgotten: int, warm_up: int,
    at: Longs, n: Longs, weight: Doubles, mean: Doubles, squares: Doubles, expected: Doubles, spread: Doubles,
) -> None:  # fmt: skip
    row = 0
    while row < len(key):
        of = key[row]
        now = time[row]
        end = row + 1
        while end < len(key) and key[end] == of and time[end] == now:
            end += 1
        if n[of] > 0 and now - at[of] > forgotten:
            n[of] = 0
            weight[of] = 0.0
            mean[of] = 0.0
            squares[of] = 0.0
        # Nothing fades for a row without a value: the time of the last one stands.
        fade = 0.5 ** ((now - at[of]) / half_life) if n[of] > 0 else 1.0
        faded = weight[of] * fade
        around = squares[of] * fade
        for each in range(row, end):
            if n[of] > 0:
                expected[each] = mean[of]
            if n[of] >= warm_up:
                spread[each] = np.sqrt(around / faded) if around > 0.0 else 0.0
        for each in range(row, end):
            if valid[each]:
                faded += 1.0
                off = value[each] - mean[of]
                mean[of] += off / faded
                around += off * (value[each] - mean[of])
                weight[of] = faded
                squares[of] = around
                n[of] += 1
                at[of] = now
        row = end
