"""`sessions`: windows that last as long as there is something going on."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from headrace.pipelines.operators.errors import BadWindow
from headrace.pipelines.operators.frames import Transform, needed
from headrace.pipelines.operators.intervals import Interval, microseconds, spelt
from headrace.pipelines.operators.partials import Aggregate
from headrace.pipelines.operators.session_windows import SessionWindows
from headrace.pipelines.operators.stragglers import Stragglers
from headrace.pipelines.operators.windowing import windowing

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def sessions(
    gap: Interval,
    *,
    by: str | Sequence[str] = (),
    maximum: Interval | None = None,
    time: str | None = None,
    stragglers: Stragglers | None = None,
    early: Interval | None = None,
    wall_clock: Interval | None = None,
    buckets: int | None = None,
    **aggregates: Aggregate,
) -> Transform:
    """Aggregates of rows of a key that follow each other within `gap`: from the first to `gap` after the last.

    With `maximum` a session ends so long after its first row at the latest, and the next row begins another one. With
    `early`, and with stragglers that correct, what was told of a session is taken back when it is told again, because
    a session that has grown is another window. The rest is as with `tumbling`.
    """
    gap_us = microseconds(gap, "the gap of sessions")
    if gap_us <= 0:
        raise BadWindow(
            f"sessions have a gap of {gap!r}, so every row would be a session: write for example '10 minutes'"
        )
    maximum_us = None if maximum is None else microseconds(maximum, "maximum in sessions")
    if maximum_us is not None and maximum_us <= 0:
        raise BadWindow(f"sessions have a maximum of {maximum!r}: leave it out, or write for example '4 hours'")
    chosen = windowing("sessions", by=by, time=time, stragglers=stragglers, early=early, wall_clock=wall_clock,
                       buckets=buckets, aggregates=aggregates)  # fmt: skip

    def apply(frame: "DataFrame") -> "DataFrame":
        from pyspark.sql import functions as fn

        rows, made, at = chosen.over(frame)
        if maximum_us is None and made.by and made.is_native(frame, at):
            return made.natively(rows, at, fn.session_window(f"`{at.column}`", spelt(gap_us)))
        found = made.on_state(
            rows if made.stragglers.hands_on else needed(rows, made.by, at.column, made.aggregates),
            lambda schema: SessionWindows(
                at.column, gap_us, maximum_us, made.aggregates, made.stragglers, made.closing, schema
            ),
            at.ends_lag_us,
        )
        return made.results(found, at)

    return apply
