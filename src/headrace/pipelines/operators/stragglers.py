"""What becomes of rows that come after their window was closed, and of rows without a usable time.

Chosen per operator: `drop()` counts them, `side_output()` hands them on beside the results, `correct("1 hour")` takes
the result back and gives it again with the row in it, for so long, and counts what comes later still. Whatever is
chosen, each such row is counted, and the count is in the query's progress.
"""

from dataclasses import dataclass
from itertools import count
from typing import TYPE_CHECKING

from headrace.pipelines.observed import LATE_ROWS
from headrace.pipelines.operators.errors import BadWindow
from headrace.pipelines.operators.intervals import Interval, positive

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

ASIDE = "_aside"
LATE, NO_TIME = "late", "no time"
_numbers = count(1)


@dataclass(frozen=True)
class Stragglers:
    """A choice: how long results are corrected, and whether rows are handed on."""

    allowed_us: int = 0
    corrects: bool = False
    hands_on: bool = False


def drop() -> Stragglers:
    """Late rows are counted and left out."""
    return Stragglers()


def side_output() -> Stragglers:
    """Late rows come out beside the results; `on_time` and `late_rows` tell the two apart."""
    return Stragglers(hands_on=True)


def correct(allowed: Interval, *, then: Stragglers | None = None) -> Stragglers:
    """For so long after a window's end a late row takes its result back and gives it again, with its revision.

    What comes later still is treated as `then` says: by default dropped and counted.
    """
    if then is not None and then.corrects:
        raise BadWindow("correct(…, then=correct(…)) corrects twice: write one correct(…) with the longer time")
    return Stragglers(positive(allowed, "the time allowed in correct"), True, then is not None and then.hands_on)


def on_time(frame: "DataFrame") -> "DataFrame":
    """The results of an operator with `side_output()`."""
    return frame.where(f"{_marked(frame)} IS NULL").drop(ASIDE)


def late_rows(frame: "DataFrame") -> "DataFrame":
    """The late rows of an operator with `side_output()`.

    Columns: `reason` (late, no time), `window_start`, `window_end` (of the latest window that was missed),
    `lateness_ms` (how long that window had been closed, by the watermark), and the row's own columns as `row`.
    """
    from pyspark.sql import functions as fn

    aside = fn.col(_marked(frame))
    names = ("reason", "window_start", "window_end", "lateness_ms", "row")
    return frame.where(aside.isNotNull()).select(*(aside[name].alias(name) for name in names))


def routed(frame: "DataFrame", *, results: str, late: str) -> "DataFrame":
    """Results and late rows as JSON for two topics, in the columns `topic` and `value`: one query writes both.

    Two frames in a union would run the operator twice.
    """
    from pyspark.sql import functions as fn

    aside = fn.col(_marked(frame))
    names = ("reason", "window_start", "window_end", "lateness_ms", "row")
    result = fn.to_json(fn.struct(*(fn.col(f"`{name}`") for name in frame.columns if name != ASIDE)))
    handed_on = fn.to_json(fn.struct(*(aside[name].alias(name) for name in names)))
    return frame.select(
        fn.when(aside.isNull(), results).otherwise(late).alias("topic"),
        fn.when(aside.isNull(), result).otherwise(handed_on).alias("value"),
    )


def counted(frame: "DataFrame", choice: Stragglers) -> "DataFrame":
    """What an operator emitted, with what was set aside counted, and left out if nobody asked for it."""
    from pyspark.sql import functions as fn

    rows, reason = fn.col(f"{ASIDE}.rows"), fn.col(f"{ASIDE}.reason")
    observed = frame.observe(
        f"{LATE_ROWS}.{next(_numbers)}",
        fn.coalesce(fn.sum(fn.when(reason == LATE, rows)), fn.lit(0)).alias("late"),
        fn.coalesce(fn.sum(fn.when(reason == NO_TIME, rows)), fn.lit(0)).alias("no_time"),
    )
    return observed if choice.hands_on else observed.where(f"{ASIDE} IS NULL").drop(ASIDE)


def _marked(frame: "DataFrame") -> str:
    if ASIDE not in frame.columns:
        raise BadWindow("there are no late rows to tell apart: give the operator stragglers=side_output()")
    return ASIDE
