"""`compare`: a window's result beside the one before, the same hour yesterday, and what is usual.

State: `pending`, results that came in this micro-batch, and `history`, earlier ones as far back as any comparison
reaches. Comparisons are emitted when all results of a micro-batch are there, in the order of their windows.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import NamedTuple

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
from headrace.pipelines.operators.aggregation.cells import Moments
from headrace.pipelines.operators.errors import BadField, BadWindow, as_names, require
from headrace.pipelines.operators.frames import Transform, over_keys
from headrace.pipelines.operators.grouping import Longs, find, highest, sort_rows
from headrace.pipelines.operators.times import EARLIEST, Interval, positive, times_of
from headrace.pipelines.operators.windows.gathered import PENDING, Gathered
from headrace.pipelines.operators.windows.results import FINAL, RETRACTED

PREVIOUS = "previous"
USUAL = MappingProxyType({"previous": PREVIOUS, "yesterday": "1 day", "last_week": "7 days"})


def compare(
    value: str,
    *,
    by: str | Sequence[str] = (),
    against: Mapping[str, Interval] = USUAL,
    history: Interval = "7 days",
    rolling: Interval | None = None,
    buckets: int | None = None,
) -> Transform:
    """Results of windows compared with earlier results of the same key.

    For each name in `against`, the window so long before (or `"previous"`: the last one before, whatever the distance):
    `NAME_value`, `NAME_difference`, `NAME_ratio`; null where there was none, and a ratio to 0 is null. Besides,
    `z_score` against the windows in `history` before it (null of fewer than two, or if all were equal),
    `rate_per_second` (the value by the window's length), and with `rolling` the `rolling_average` of the windows that
    began within so long, this one included. It wants results that are emitted once: no corrections, no early ones.
    """
    comparisons = tuple(
        Comparison(name, None if back == PREVIOUS else positive(back, f"{name} in compare"))
        for name, back in against.items()
    )
    history_us = positive(history, "history in compare")
    rolling_us = None if rolling is None else positive(rolling, "rolling in compare")
    keys = as_names(by)

    def apply(frame: DataFrame) -> DataFrame:
        require([*keys, value, "window_start"], frame.columns, "compare")
        again = [name for name in (RETRACTED, FINAL) if name in frame.columns]
        if again:
            raise BadWindow(
                f"compare takes results that are emitted once, and these have {again[0]!r}: filter them, drop the "
                "column, and know that what was emitted before is not compared again"
            )
        kind = frame.schema[value].dataType.simpleString()
        if kind not in ("tinyint", "smallint", "int", "bigint", "float", "double") and not kind.startswith("decimal"):
            raise BadField(f"compare: {value!r} is {kind}, and only numbers can be compared so")
        carried = tuple(name for name in frame.columns if name not in keys)
        return over_keys(
            frame, keys, lambda rows: Comparing(value, comparisons, history_us, rolling_us, carried, rows), buckets
        )

    return apply


Doubles = NDArray[np.float64]
HISTORY = "history"
_PAST = pa.schema([("at", pa.int64()), ("value", pa.float64())])


@dataclass(frozen=True)
class Comparison:
    """One earlier window to compare with: `back` microseconds, or None for the one before, whatever its distance."""

    name: str
    back: int | None


@dataclass(frozen=True)
class Comparing:
    """The operator: `value` is the column compared."""

    value: str
    comparisons: tuple[Comparison, ...]
    history: int
    rolling: int | None
    carried: tuple[str, ...]
    rows: pa.Schema

    @property
    def output(self) -> pa.Schema:
        names = [f"{each.name}_{part}" for each in self.comparisons for part in ("value", "difference", "ratio")]
        names += ["z_score", "rate_per_second"] + (["rolling_average"] if self.rolling is not None else [])
        return pa.schema([*self._gathered.fields, *(pa.field(n, pa.float64()) for n in names)])

    @property
    def _gathered(self) -> Gathered:
        return Gathered(self.carried, self.rows)

    def plan(self, keys: pa.Schema, rows: pa.Schema) -> Plan:
        tables = (self._gathered.table, Values(HISTORY, _PAST, "at"))
        return Plan(self.output, tables, Clock.EVENT, parameters={"value": self.value})

    def on_rows(self, batch: Batch, state: State, times: Times) -> Changes:
        """Results are put down until all of the micro-batch are there."""
        return self._gathered.put_down(batch)

    def on_timers(self, due: Due, state: State, times: Times) -> Changes:
        pending, past = state.read(PENDING), state.read(HISTORY)
        values = self._gathered.column(pending, self.value).cast(pa.float64(), safe=False)
        has_value = np.asarray(values.is_valid())
        new = _New(pending.key, np.asarray(pending.rows.column(0)), np.asarray(values.fill_null(0.0)), has_value)
        key = np.concatenate([past.key, new.key[has_value]])
        at = np.concatenate([np.asarray(past.rows.column(0)), new.at[has_value]])
        known = np.concatenate([np.asarray(past.rows.column(1)), new.value[has_value]])
        order = sort_rows(key, at)
        all_of = _Known(key[order], at[order], known[order])
        key, at, known = all_of
        found = [column for each in self.comparisons for column in _compare(each, all_of, new)]
        moments = Moments(np.ones(len(key)), known, np.zeros(len(key)))
        found.append(self._z_score(moments, all_of, new))
        length = self._seconds(pending.rows)
        found.append(pa.array(new.value / np.where(length > 0, length, 1), mask=~has_value | (length <= 0)))
        if self.rolling is not None:
            lows = find(key, at, new.key, new.at - self.rolling, side="right")
            highs = find(key, at, new.key, new.at, side="right")
            found.append(_spread(moments, lows, highs)[1])
        emit = self._gathered.with_columns(pending, found, self.output)
        latest = highest(len(due), key, at, EARLIEST)
        kept = np.flatnonzero(at >= latest[key] - self.reach)
        history = pa.RecordBatch.from_arrays([pa.array(at[kept]), pa.array(known[kept])], schema=_PAST)
        every = np.arange(len(due), dtype=np.int64)
        return Changes(emit=emit, delete={PENDING: every}, put={HISTORY: Keyed(key[kept], history)})

    @property
    def reach(self) -> int:
        """How far back anything looks."""
        return max([self.history, self.rolling or 0, *(each.back or 0 for each in self.comparisons)])

    def _z_score(self, moments: Moments, known: "_Known", new: "_New") -> pa.Array:
        """How many standard deviations from the mean of the windows in `history` before."""
        lows, highs = (find(known.key, known.at, new.key, at, side="left") for at in (new.at - self.history, new.at))
        n, mean, deviation = _spread(moments, lows, highs)
        spread = np.asarray(deviation.fill_null(0.0))
        score = (new.value - np.asarray(mean.fill_null(0.0))) / np.where(spread > 0, spread, 1)
        return pa.array(score, mask=~new.has_value | (n < 2) | (spread <= 0))

    def _seconds(self, rows: pa.RecordBatch) -> Doubles:
        edges = [times_of(rows.column(name))[0] for name in ("window_start", "window_end") if name in rows.schema.names]
        return (edges[1] - edges[0]) / 1e6 if len(edges) == 2 else np.zeros(rows.num_rows)


class _Known(NamedTuple):
    """Values of windows in the order of key and time, the new ones among them."""

    key: Longs
    at: Longs
    value: Doubles


class _New(NamedTuple):
    """The results of a micro-batch, as they came."""

    key: Longs
    at: Longs
    value: Doubles
    has_value: NDArray[np.bool_]


def _compare(each: Comparison, known: _Known, new: _New) -> list[pa.Array]:
    """The earlier value, the difference and the ratio."""
    back = find(known.key, known.at, new.key, new.at if each.back is None else new.at - each.back, side="left")
    place = back - 1 if each.back is None else back
    inside = np.clip(place, 0, max(len(known.key) - 1, 0))
    there = (place >= 0) & (place < len(known.key))
    if len(known.key):
        there &= known.key[inside] == new.key
        there &= (known.at[inside] < new.at) if each.back is None else (known.at[inside] == new.at - each.back)
    earlier = known.value[inside] if len(known.key) else np.zeros(len(new.key))
    both = there & new.has_value
    by = np.where(earlier == 0, 1, earlier)
    return [
        pa.array(earlier, mask=~there),
        pa.array(new.value - earlier, mask=~both),
        pa.array(new.value / by, mask=~both | (earlier == 0)),
    ]


def _spread(moments: Moments, lows: Longs, highs: Longs) -> tuple[Doubles, pa.Array, pa.Array]:
    """Count, mean and standard deviation of stretches that may be empty."""
    some = highs > lows
    n, mean, deviation = (np.zeros(len(lows)) for _ in range(3))
    if some.any():
        found = moments.over(lows[some], highs[some])
        n[some], mean[some] = found.count, found.mean
        deviation[some] = np.sqrt(found.squares / np.maximum(found.count - 1, 1))
    return n, pa.array(mean, mask=n == 0), pa.array(deviation, mask=n < 2)
