"""`correct_clock`: when things happened by our clock, reported by devices whose clocks are wrong.

A row left the device at `sent` by the device's clock and came at `received` by ours: the difference is how far the
clock is behind, plus how long the row was on its way. The way is sometimes long and never negative, so the least
difference of many is the closest: that of the last while, because clocks drift. How close, one cannot know from one
direction alone; if delays above the least one are exponential, their mean above it divided by the number of the others
is what the least one itself has too much, on average. That is the error that is reported.

State: `samples`, the differences of each device in stretches of time, put together within each.
"""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame

from headrace.pipelines.keyed.operator import Batch, Changes, Clock, Keyed, Plan, State, Times, Untimed, Values
from headrace.pipelines.operators.aggregation.cells import Extreme, Sum
from headrace.pipelines.operators.errors import BadField, BadTime, require
from headrace.pipelines.operators.frames import Transform, over_keys
from headrace.pipelines.operators.grouping import Longs, find, group_rows, highest, lowest, sort_rows
from headrace.pipelines.operators.times import TIMESTAMP, Interval, microseconds, positive, times_of, timestamps


def correct_clock(
    *,
    device: str,
    event: str,
    sent: str,
    received: str,
    window: Interval = "1 hour",
    least_delay: Interval = "0 seconds",
    buckets: int | None = None,
) -> Transform:
    """Adds `corrected_time`, `clock_offset_us` (what was added to `event`) and `clock_error_us` (about how far off).

    `event` and `sent` are by the device's clock, `received` by ours; all three are timestamps. The offset is the least
    `received - sent` of the device in the `window` up to the row, minus `least_delay`, the time that a row is known to
    be on its way at least. The error is null as long as there is only one row to go by. Rows of a device are taken as
    they are received; put `event_time("corrected_time", …)` behind it.
    """
    window_us = positive(window, "window in correct_clock")
    least_us = microseconds(least_delay, "least_delay in correct_clock")

    def apply(frame: DataFrame) -> DataFrame:
        require([device, event, sent, received], frame.columns, "correct_clock")
        for name in (event, sent, received):
            kind = frame.schema[name].dataType.simpleString()
            if kind not in ("timestamp", "timestamp_ntz"):
                raise BadTime(f"correct_clock: {name!r} is {kind}: cast it to a timestamp before")
        for name in (CORRECTED, OFFSET, ERROR):
            if name in frame.columns:
                raise BadField(f"correct_clock adds a column {name!r}, and there is one already: rename it before")
        carried = tuple(name for name in frame.columns if name != device)
        found = over_keys(
            frame,
            [device],
            lambda rows: ClockOffsets(event, sent, received, window_us, least_us, carried, rows),
            buckets,
        )
        return found.select(*(f"`{name}`" for name in frame.columns), CORRECTED, OFFSET, ERROR)

    return apply


SAMPLES = "samples"
CORRECTED, OFFSET, ERROR = "corrected_time", "clock_offset_us", "clock_error_us"
_STRETCHES = 16  # a window is remembered in about so many parts
_STATE = pa.schema(
    [("at", pa.int64()), ("least", pa.int64()), ("n", pa.int64()), ("base", pa.int64()), ("above", pa.float64())]
)


@dataclass(frozen=True)
class ClockOffsets(Untimed):
    """The operator: the columns of times, the window, and the least time that a row is known to be on its way."""

    event: str
    sent: str
    received: str
    window: int
    least_delay: int
    carried: tuple[str, ...]
    rows: pa.Schema

    @property
    def output(self) -> pa.Schema:
        """All columns but the device, then what is estimated."""
        added = [pa.field(CORRECTED, TIMESTAMP), pa.field(OFFSET, pa.int64()), pa.field(ERROR, pa.int64())]
        return pa.schema([*(self.rows.field(name) for name in self.carried), *added])

    def plan(self, keys: pa.Schema, rows: pa.Schema) -> Plan:
        parameters = {"sent": self.sent, "received": self.received}
        return Plan(self.output, (Values(SAMPLES, _STATE),), Clock.NONE, parameters=parameters)

    def on_rows(self, batch: Batch, state: State, times: Times) -> Changes:
        """Each row with the best that is known at its arrival."""
        received, has_received = times_of(batch.rows.column(self.received))
        sent, has_sent = times_of(batch.rows.column(self.sent))
        event, has_event = times_of(batch.rows.column(self.event))
        new = np.flatnonzero(has_received & has_sent)
        held = state.read(SAMPLES)
        old_at, old_least, old_n, old_base = (np.asarray(held.rows.column(at)) for at in range(4))
        key = np.concatenate([held.key, batch.key[new]])
        at = np.concatenate([old_at, received[new]])
        delay = (received - sent)[new]
        least = Extreme(np.concatenate([old_least, delay]), np.ones(len(key), np.bool_), greatest=False)
        count = Sum(np.concatenate([old_n, np.ones(len(new), np.int64)]))
        # Sums are kept above the least of their key, so that days of difference do not eat up microseconds.
        base = self._bases(batch.keys.num_rows, held.key, old_base, batch.key[new], delay)
        above = np.asarray(held.rows.column(4)) + old_n * (old_base - base[held.key])
        total = Sum(np.concatenate([above, (delay - base[batch.key[new]]).astype(np.float64)]))
        order = sort_rows(key, at)
        key_in_order, at_in_order = key[order], at[order]
        asked = has_received
        of, until = batch.key[asked], received[asked]
        lows = find(key_in_order, at_in_order, of, until - self.window, side="left")
        highs = find(key_in_order, at_in_order, of, until, side="right")
        some = highs > lows
        offset, error = np.zeros(len(batch), np.int64), np.zeros(len(batch), np.int64)
        known, sure = np.zeros(len(batch), np.bool_), np.zeros(len(batch), np.bool_)
        rows = np.flatnonzero(asked)[some]
        if len(rows):
            best = least.take(order).over(lows[some], highs[some]).values
            n = count.take(order).over(lows[some], highs[some]).values
            mean = total.take(order).over(lows[some], highs[some]).values / n + base[of[some]]
            offset[rows], known[rows] = best - self.least_delay, True
            error[rows], sure[rows] = np.ceil((mean - best) / np.maximum(n - 1, 1)), n > 1
        kept = self._kept(batch.keys.num_rows, key, at, least, count, total, base)
        corrected = timestamps(event + offset, ~(known & has_event))
        columns = [batch.rows.column(name) for name in self.carried]
        columns += [corrected, pa.array(offset, mask=~known), pa.array(error, mask=~sure)]
        emit = Keyed(batch.key, pa.RecordBatch.from_arrays(columns, schema=self.output))
        return Changes(emit=emit, put={SAMPLES: kept} if len(kept) else {})

    def _bases(self, count: int, held_key: Longs, held_base: Longs, key: Longs, delay: Longs) -> Longs:
        far = 2**62
        base, least = lowest(count, held_key, held_base, far), lowest(count, key, delay, far)
        return np.where(base == far, np.where(least == far, 0, least), base)

    def _kept(self, count: int, key: Longs, at: Longs, least: Extreme, samples: Sum, total: Sum, base: Longs) -> Keyed:
        """What the window of the next row can reach, put together by stretches of time."""
        latest = highest(count, key, at, -(2**62))
        recent = np.flatnonzero(at >= latest[key] - self.window)
        stretch = max(self.window // _STRETCHES, 1)
        groups = group_rows(key[recent], at[recent] // stretch)
        if not len(groups.starts):
            return Keyed(np.zeros(0, np.int64), pa.RecordBatch.from_pylist([], schema=_STATE))
        of = key[recent][groups.firsts]
        ends = np.maximum.reduceat(at[recent][groups.order], groups.starts)
        parts = [
            least.take(recent).reduce(groups).values,
            samples.take(recent).reduce(groups).values,
            total.take(recent).reduce(groups).values,
        ]
        columns = [ends, parts[0], parts[1], base[of], parts[2]]
        return Keyed(of, pa.RecordBatch.from_arrays([pa.array(each) for each in columns], schema=_STATE))
