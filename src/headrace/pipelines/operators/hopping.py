"""`hopping`: windows of one length that begin more often than that, and so overlap."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from headrace.pipelines.operators.errors import BadWindow
from headrace.pipelines.operators.frames import Transform
from headrace.pipelines.operators.hops import Hops
from headrace.pipelines.operators.intervals import Interval, microseconds, positive, spelt
from headrace.pipelines.operators.paned import hop
from headrace.pipelines.operators.partials import Aggregate
from headrace.pipelines.operators.stragglers import Stragglers
from headrace.pipelines.operators.windowing import windowing

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def hopping(
    size: Interval,
    every: Interval,
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
    """Aggregates of the rows of each key in windows of `size`, of which one begins `every` so often.

    A row is added to one pane, and windows are put together from panes: a row costs the same however many windows it is
    in. The rest is as with `tumbling`. A row can be late for some of its windows and not for others: it is in those
    that are open, and counted as late (or handed on) for the others.
    """
    size_us, slide_us = positive(size, "the size of hopping windows"), positive(every, "every in hopping")
    if slide_us > size_us:
        raise BadWindow(
            f"hopping windows of {size!r} every {every!r} leave out what lies between them: write every no longer than "
            "the size, or use tumbling"
        )
    offset_us = microseconds(offset, "offset in hopping") % slide_us
    chosen = windowing("hopping", by=by, time=time, stragglers=stragglers, early=early, wall_clock=wall_clock,
                       buckets=buckets, aggregates=aggregates)  # fmt: skip

    def apply(frame: "DataFrame") -> "DataFrame":
        from pyspark.sql import functions as fn

        rows, made, at = chosen.over(frame)
        if not frame.isStreaming and made.is_native(frame, at):
            window = fn.window(f"`{at.column}`", spelt(size_us), spelt(slide_us), spelt(offset_us))
            return made.natively(rows, at, window)
        return hop(rows, at, Hops(size_us, slide_us, offset_us), made)

    return apply
