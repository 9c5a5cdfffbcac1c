"""Windows at fixed places in time: `tumbling`, `hopping`, and `per_window` for rows that have a window already."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta

from pyspark.sql import DataFrame
from pyspark.sql import functions as fn

from headrace.pipelines.operators.aggregation.algebra import PREPARED, Aggregate
from headrace.pipelines.operators.errors import BadField, BadWindow, as_names, nearest
from headrace.pipelines.operators.frames import Transform, event_time_of
from headrace.pipelines.operators.stragglers import Stragglers
from headrace.pipelines.operators.time_marks import TimeMark
from headrace.pipelines.operators.times import Interval, microseconds, positive, spell
from headrace.pipelines.operators.windows.empty import read_empty
from headrace.pipelines.operators.windows.listed import Listed, check_listed, fill_listed
from headrace.pipelines.operators.windows.panes import Hops, hop
from headrace.pipelines.operators.windows.windowing import Windowing, read_keywords


def tumbling(
    size: Interval,
    *,
    by: str | Sequence[str] = (),
    time: str | None = None,
    offset: Interval = "0 seconds",
    stragglers: Stragglers | None = None,
    early: Interval | None = None,
    wall_clock: Interval | None = None,
    empty: Interval | Listed | None = None,
    buckets: int | None = None,
    **aggregates: Aggregate,
) -> Transform:
    """Aggregates of the rows of each key in each window.

    Windows begin at multiples of `size` since 1970 in UTC, `offset` later if given, and a result comes when the
    watermark has reached the window's end. `early` emits so often what there is so far, `wall_clock` ends a window so
    long after its end by the wall clock although the watermark stands still. Late rows: `stragglers`.

    A window without rows has no result. With `empty="1 hour"` it has one, a count of 0 and a sum of null, for a key
    that is alive: from its first window with rows on, in windows that begin less than an hour after the last one ended.
    It comes when the watermark reaches the window's end, as others do, and is corrected as others are. With a list of
    keys, or a DataFrame that has the columns `by`, each of these has a result in every window from the first with any
    row on: `empty=["north", "south"]`, tuples where `by` is several columns. They are read once, when the query is
    built, and the results of all keys then go through one task.
    """
    size_us = positive(size, "the size of tumbling windows")
    offset_us = microseconds(offset, "offset in tumbling") % size_us
    chosen = read_keywords("tumbling", by=by, time=time, stragglers=stragglers, early=early, wall_clock=wall_clock,
                       buckets=buckets, aggregates=aggregates)  # fmt: skip
    chosen, listed = _with_empty(chosen, empty, size_us)

    def apply(frame: DataFrame) -> DataFrame:
        rows, made, at = chosen.over(frame)
        if listed is None and made.is_native(frame, at):
            length = spell(size_us)
            return made.natively(rows, at, fn.window(f"`{at.column}`", length, length, spell(offset_us)))
        return _hopped(rows, at, Hops(size_us, size_us, offset_us), made, listed)

    return apply


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
    empty: Interval | Listed | None = None,
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
    chosen = read_keywords("hopping", by=by, time=time, stragglers=stragglers, early=early, wall_clock=wall_clock,
                       buckets=buckets, aggregates=aggregates)  # fmt: skip
    chosen, listed = _with_empty(chosen, empty, slide_us)

    def apply(frame: DataFrame) -> DataFrame:
        rows, made, at = chosen.over(frame)
        if listed is None and not frame.isStreaming and made.is_native(frame, at):
            window = fn.window(f"`{at.column}`", spell(size_us), spell(slide_us), spell(offset_us))
            return made.natively(rows, at, window)
        return _hopped(rows, at, Hops(size_us, slide_us, offset_us), made, listed)

    return apply


def _with_empty(chosen: Windowing, empty: Interval | Listed | None, slide_us: int) -> tuple[Windowing, Listed | None]:
    """The settings, and the keys that are listed."""
    if empty is None or isinstance(empty, str | timedelta):
        return replace(chosen, empty_us=read_empty(empty, slide_us, chosen.what)), None
    check_listed(chosen)
    return chosen, empty


def _hopped(rows: DataFrame, at: TimeMark, hops: Hops, chosen: Windowing, listed: Listed | None) -> DataFrame:
    found = hop(rows, at, hops, chosen)
    return found if listed is None else fill_listed(found, rows, listed, hops, chosen, at)


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
    `tumbling` otherwise. Rows that were corrected or emitted early are refused: they would be counted twice.
    """
    keys = tuple(name for name in as_names(by) if name not in EDGES)
    chosen = read_keywords("per_window", by=keys, time="window_end", stragglers=stragglers, early=None,
                       wall_clock=None, buckets=buckets, aggregates=aggregates)  # fmt: skip

    def apply(frame: DataFrame) -> DataFrame:
        end = window_end_of(frame, "per_window")
        made, settings = chosen.computed(frame)
        if not frame.isStreaming and settings.is_native(frame, end):
            window = fn.struct(fn.col("window_start").alias("start"), fn.col("window_end").alias("end"))
            return settings.natively(made, end, window)
        # A window of its last microsecond alone, for each start: what ends together is emitted together.
        last = fn.col("window_end") - fn.expr("INTERVAL 1 MICROSECOND")
        timed = made.withColumn(_LAST, last).withColumn(_START, fn.col("window_start"))
        at = replace(end, column=_LAST, back_us=0)
        found = hop(timed, at, Hops(1, 1), replace(settings, by=(*keys, _START)))
        return found.withColumn("window_start", fn.col(f"`{_START}`")).drop(_START)

    return apply


def window_end_of(frame: DataFrame, what: str) -> TimeMark:
    """What carries the time of rows that have a window, emitted once: its last microsecond."""
    for name in EDGES:
        if name not in frame.columns:
            raise BadField(f"{what} stands behind a window, and there is no {name!r}: {nearest(name, frame.columns)}")
    found = event_time_of(frame, "window_end", what)
    return replace(found, back_us=1, lag_us=found.lag_us + max(1 - found.back_us, 0))
