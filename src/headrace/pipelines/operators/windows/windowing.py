"""What the window functions share: reading their keywords, and choosing between Spark's own windows and keyed state."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as fn

from headrace.pipelines.keyed.operator import Operator
from headrace.pipelines.operators.aggregation.algebra import Aggregate
from headrace.pipelines.operators.aggregation.fold import fold
from headrace.pipelines.operators.errors import BadAggregate, as_names
from headrace.pipelines.operators.frames import arrow_schema, check_names, event_time_of, over_keys, prepare
from headrace.pipelines.operators.stragglers import ASIDE, Stragglers, count_late_rows, count_without_time, drop
from headrace.pipelines.operators.time_marks import WINDOW_TIME, TimeMark
from headrace.pipelines.operators.times import Interval, microseconds, positive
from headrace.pipelines.operators.windows.results import FINAL, RETRACTED, REVISION, Closing
from headrace.pipelines.spark.watermarks import keep_input_watermarks

_TAKEN = ("window_start", "window_end", REVISION, RETRACTED, FINAL, ASIDE, WINDOW_TIME)


@dataclass(frozen=True)
class Windowing:
    """The settings that all windows have."""

    what: str
    by: tuple[str, ...]
    time: str | None
    stragglers: Stragglers
    closing: Closing
    buckets: int | None
    aggregates: Mapping[str, Aggregate]
    empty_us: int | None = None
    """How long a silent key has results of windows without rows."""

    def over(self, frame: DataFrame) -> "tuple[DataFrame, Windowing, TimeMark]":
        """The frame with its time and what aggregates are computed of at hand, and the settings for it.

        By then everything named is known to be there and of a fitting type.
        """
        made, settings = self.computed(frame)
        rows, at = event_time_of(frame, self.time, self.what).at_hand(made)
        return rows, settings, at

    def computed(self, frame: DataFrame) -> "tuple[DataFrame, Windowing]":
        """The frame with what aggregates are computed of, and the settings for it."""
        check_names(frame, self.by, self.aggregates, _TAKEN)
        made, aggregates = prepare(frame, self.aggregates)
        fold(aggregates, arrow_schema(made))
        return made, replace(self, aggregates=aggregates)

    def on_state(self, frame: DataFrame, make: "Callable[[pa.Schema], Operator]", lag_us: int) -> DataFrame:
        """An operator of windows on keyed state; late rows are counted."""
        return count_late_rows(over_keys(frame, self.by, make, self.buckets, lag_us), self.stragglers)

    def results(self, found: DataFrame, at: TimeMark) -> DataFrame:
        """The windows of rows that went by a time, marked with theirs: the last moment before the window's end.

        It is at or behind the watermark before the one that has reached the end; a window that is corrected is as late
        as its latest row may be.
        """
        again = tuple(name for name in (RETRACTED, FINAL) if name in found.columns)
        lag = max(at.lag_us, 1) + self.stragglers.allowed_us
        return found.transform(TimeMark("window_end", back_us=1, lag_us=lag, again=again).put)

    def is_native(self, frame: DataFrame, at: TimeMark) -> bool:
        """Whether Spark does it by itself, which has one watermark for all rows and not all aggregates."""
        sparks = all(each.is_native for each in self.aggregates.values()) and self.empty_us is None
        # What is emitted again or handed on has columns that say so, also of a frame that does not stream.
        once = not (self.stragglers.corrects or self.stragglers.hands_on or self.closing.early_us is not None)
        by_watermark = not at.ends_lag_us and self.closing == Closing()
        return sparks and once and (by_watermark or not frame.isStreaming)

    def natively(self, frame: DataFrame, mark: TimeMark, window: Column) -> DataFrame:
        """Spark's own aggregation, with the columns that keyed state would give; late rows are counted by Spark."""
        at = fn.col(f"`{mark.column}`")
        frame = mark.for_spark(keep_input_watermarks(frame))
        noticed = count_without_time(frame, at)
        columns = [each.native(at).alias(name) for name, each in self.aggregates.items()]
        grouped = noticed.groupBy(window.alias("_window"), *(fn.col(f"`{name}`") for name in self.by)).agg(*columns)
        edges = [fn.col("_window.start").alias("window_start"), fn.col("_window.end").alias("window_end")]
        found = grouped.select(*(f"`{name}`" for name in self.by), *edges, *(f"`{name}`" for name in self.aggregates))
        return self.results(found, mark)


def read_keywords(
    what: str,
    *,
    by: str | Sequence[str],
    time: str | None,
    stragglers: Stragglers | None,
    early: Interval | None,
    wall_clock: Interval | None,
    buckets: int | None,
    aggregates: Mapping[str, Aggregate],
) -> Windowing:
    """The keywords of a window function, checked as far as that needs no data."""
    if not aggregates:
        raise BadAggregate(f"{what} computes nothing: name an aggregate, for example n=agg.count()")
    for name, each in aggregates.items():
        if not isinstance(each, Aggregate):
            raise BadAggregate(f"{what}: {name}={each!r} is not an aggregate: write for example {name}=agg.count()")
    closing = Closing(
        None if wall_clock is None else microseconds(wall_clock, f"wall_clock in {what}"),
        None if early is None else positive(early, f"early in {what}"),
    )
    return Windowing(what, as_names(by), time, stragglers or drop(), closing, buckets, dict(aggregates))
