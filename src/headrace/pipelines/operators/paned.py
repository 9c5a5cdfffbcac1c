"""Tumbling and hopping windows of a DataFrame, on keyed state."""

from typing import TYPE_CHECKING

from headrace.pipelines.operators.frames import needed
from headrace.pipelines.operators.hops import Hops
from headrace.pipelines.operators.paned_windows import PanedWindows
from headrace.pipelines.operators.time_marks import TimeMark
from headrace.pipelines.operators.windowing import Windowing

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def hop(frame: "DataFrame", at: TimeMark, hops: Hops, chosen: Windowing) -> "DataFrame":
    """The windows of a frame."""
    rows = frame if chosen.stragglers.hands_on else needed(frame, chosen.by, at.column, chosen.aggregates)
    found = chosen.on_state(
        rows,
        lambda schema: PanedWindows(at.column, hops, chosen.aggregates, chosen.stragglers, chosen.closing, schema),
        at.ends_lag_us,
    )
    return chosen.results(found, at)
