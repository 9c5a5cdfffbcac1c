"""`sliding`: for every row, what happened in the interval up to it."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from headrace.pipelines.operators.fields import as_names, require
from headrace.pipelines.operators.frames import Transform
from headrace.pipelines.operators.intervals import Interval, positive
from headrace.pipelines.operators.partials import Aggregate
from headrace.pipelines.operators.sliding_rows import SlidingRows
from headrace.pipelines.operators.stragglers import Stragglers
from headrace.pipelines.operators.telling import RETRACTED
from headrace.pipelines.operators.time_marks import TimeMark
from headrace.pipelines.operators.windowing import windowing

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def sliding(
    size: Interval,
    *,
    by: str | Sequence[str] = (),
    keep: str | Sequence[str] = (),
    time: str | None = None,
    stragglers: Stragglers | None = None,
    wall_clock: Interval | None = None,
    buckets: int | None = None,
    **aggregates: Aggregate,
) -> Transform:
    """For every row, aggregates of the rows of its key from `size` before it up to its own time, itself included.

    One row comes out for each that goes in, with the columns `keep` of it; `window_end` is its time. It comes when the
    watermark has reached it. With stragglers that correct, a late row is answered when it comes, and the rows up to
    `size` after it, which have one more in their interval now, are taken back and told again. What was told is kept as
    long as it can be corrected: with `collect` and `count_distinct` that is a list for every row.
    """
    size_us = positive(size, "the size of sliding windows")
    chosen = windowing("sliding", by=by, time=time, stragglers=stragglers, early=None, wall_clock=wall_clock,
                       buckets=buckets, aggregates=aggregates)  # fmt: skip
    kept = tuple(name for name in as_names(keep) if name not in chosen.by)  # keys come out anyway

    def apply(frame: "DataFrame") -> "DataFrame":
        require(kept, frame.columns, "keep")
        timed, made, at = chosen.over(frame)
        fields = [each.field for each in made.aggregates.values() if each.field is not None]
        columns = dict.fromkeys([*made.by, at.column, *kept, *fields])
        found = made.on_state(
            timed if made.stragglers.hands_on else timed.select(*(f"`{name}`" for name in columns)),
            lambda schema: SlidingRows(
                at.column, size_us, kept, made.aggregates, made.stragglers, made.closing, schema
            ),
            at.lag_us,
        )
        again = (RETRACTED,) if made.stragglers.corrects else ()
        # A row's interval ends with the row, and has its time.
        return found.transform(TimeMark("window_end", lag_us=at.lag_us + made.stragglers.allowed_us, again=again).put)

    return apply
