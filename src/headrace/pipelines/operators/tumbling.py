"""`tumbling`: windows of one length, one behind the other."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from headrace.pipelines.operators.frames import Transform
from headrace.pipelines.operators.hops import Hops
from headrace.pipelines.operators.intervals import Interval, microseconds, positive, spelt
from headrace.pipelines.operators.partials import Aggregate
from headrace.pipelines.operators.stragglers import Stragglers
from headrace.pipelines.operators.windowing import windowing

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def tumbling(
    size: Interval,
    *,
    by: str | Sequence[str] = (),
    time: str | None = None,
    offset: Interval = "0 seconds",
    stragglers: Stragglers | None = None,
    early: Interval | None = None,
    wall_clock: Interval | None = None,
    buckets: int | None = None,
    **aggregates: Aggregate,
) -> Transform:
    """Aggregates of the rows of each key in each window; a window without rows has no result.

    Windows begin at multiples of `size` since 1970 in UTC, `offset` later if given, and a result comes when the
    watermark has reached the window's end. `early` tells so often what there is so far, `wall_clock` ends a window so
    long after its end by the wall clock although the watermark stands still. Late rows: `stragglers`.
    """
    from headrace.pipelines.operators.paned import hop

    size_us = positive(size, "the size of tumbling windows")
    offset_us = microseconds(offset, "offset in tumbling") % size_us
    chosen = windowing("tumbling", by=by, time=time, stragglers=stragglers, early=early, wall_clock=wall_clock,
                       buckets=buckets, aggregates=aggregates)  # fmt: skip

    def apply(frame: "DataFrame") -> "DataFrame":
        from pyspark.sql import functions as fn

        rows, made, at = chosen.over(frame)
        if made.is_native(frame, at):
            length = spelt(size_us)
            return made.natively(rows, at, fn.window(f"`{at.column}`", length, length, spelt(offset_us)))
        return hop(rows, at, Hops(size_us, size_us, offset_us), made)

    return apply
