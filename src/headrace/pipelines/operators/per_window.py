"""`per_window`: rows that have a window already, as results of windows have, grouped by it."""

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from headrace.pipelines.operators.errors import BadField
from headrace.pipelines.operators.fields import as_names, nearest
from headrace.pipelines.operators.frames import Transform, event_time_of
from headrace.pipelines.operators.hops import Hops
from headrace.pipelines.operators.paned import hop
from headrace.pipelines.operators.partials import PREPARED, Aggregate
from headrace.pipelines.operators.stragglers import Stragglers
from headrace.pipelines.operators.time_marks import TimeMark
from headrace.pipelines.operators.windowing import windowing

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

EDGES = ("window_start", "window_end")
_LAST, _START = f"{PREPARED}last", f"{PREPARED}start"


def per_window(
    *,
    by: str | Sequence[str] = (),
    stragglers: Stragglers | None = None,
    buckets: int | None = None,
    **aggregates: Aggregate,
) -> Transform:
    """Aggregates of rows with the same `window_start` and `window_end`: results of windows, grouped once more.

    `hopping(…, by="auction", bids=agg.count())` and behind it `per_window(most=agg.max("bids"))` give the most bids
    that any auction had in each window. It comes when the watermark has reached the window's end, and is as with
    `tumbling` otherwise. Rows that were corrected or told early are refused: told again, they would be counted again.
    """
    keys = tuple(name for name in as_names(by) if name not in EDGES)
    chosen = windowing("per_window", by=keys, time="window_end", stragglers=stragglers, early=None,
                       wall_clock=None, buckets=buckets, aggregates=aggregates)  # fmt: skip

    def apply(frame: "DataFrame") -> "DataFrame":
        from pyspark.sql import functions as fn

        end = window_end_of(frame, "per_window")
        made, settings = chosen.computed(frame)
        if not frame.isStreaming and settings.is_native(frame, end):
            window = fn.struct(fn.col("window_start").alias("start"), fn.col("window_end").alias("end"))
            return settings.natively(made, end, window)
        # A window of its last microsecond alone, for each start: what ends together is told together.
        last = fn.col("window_end") - fn.expr("INTERVAL 1 MICROSECOND")
        timed = made.withColumn(_LAST, last).withColumn(_START, fn.col("window_start"))
        at = replace(end, column=_LAST, back_us=0)
        found = hop(timed, at, Hops(1, 1), replace(settings, by=(*keys, _START)))
        return found.withColumn("window_start", fn.col(f"`{_START}`")).drop(_START)

    return apply


def window_end_of(frame: "DataFrame", what: str) -> TimeMark:
    """What carries the time of rows that have a window, told once: its last microsecond."""
    for name in EDGES:
        if name not in frame.columns:
            raise BadField(f"{what} stands behind a window, and there is no {name!r}: {nearest(name, frame.columns)}")
    found = event_time_of(frame, "window_end", what)
    return replace(found, back_us=1, lag_us=found.lag_us + max(1 - found.back_us, 0))
