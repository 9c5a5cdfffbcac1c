"""`correct_clock`: when things happened by our clock, told by devices whose clocks are wrong."""

from typing import TYPE_CHECKING

from headrace.pipelines.operators.clock_offsets import CORRECTED, ERROR, OFFSET, ClockOffsets
from headrace.pipelines.operators.errors import BadField, BadTime
from headrace.pipelines.operators.fields import require
from headrace.pipelines.operators.frames import Transform, over_keys
from headrace.pipelines.operators.intervals import Interval, microseconds, positive

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


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

    def apply(frame: "DataFrame") -> "DataFrame":
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
