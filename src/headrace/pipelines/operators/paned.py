"""Tumbling and hopping windows of a DataFrame, on keyed state."""

from typing import TYPE_CHECKING

from headrace.pipelines.operators.frames import needed, over_keys
from headrace.pipelines.operators.hops import Hops
from headrace.pipelines.operators.paned_windows import PanedWindows
from headrace.pipelines.operators.stragglers import counted
from headrace.pipelines.operators.windowing import Windowing

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def hop(frame: "DataFrame", time: str, hops: Hops, chosen: Windowing) -> "DataFrame":
    """The windows of a frame."""
    rows = frame if chosen.stragglers.hands_on else needed(frame, chosen.by, time, chosen.aggregates)
    found = over_keys(
        rows,
        chosen.by,
        lambda schema: PanedWindows(time, hops, chosen.aggregates, chosen.stragglers, chosen.closing, schema),
        chosen.buckets,
    )
    return counted(found, chosen.stragglers)
