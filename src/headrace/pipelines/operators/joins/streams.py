"""`join_streams`: rows of two streams with one key whose times lie near each other."""

from collections.abc import Sequence
from dataclasses import replace
from functools import reduce

from pyspark.sql import DataFrame

from headrace.pipelines.operators.errors import BadField, On
from headrace.pipelines.operators.frames import Transform
from headrace.pipelines.operators.joins.interval import KINDS, LONELY_LEFT, LONELY_RIGHT, ONLY_LEFT
from headrace.pipelines.operators.joins.sides import (
    bounds,
    check_sides,
    column_types,
    columns,
    distinct_key_pairs,
    side_times,
)
from headrace.pipelines.operators.joins.spark import StreamJoin, keyed_join, native_join
from headrace.pipelines.operators.stragglers import ASIDE, Stragglers, drop
from headrace.pipelines.operators.time_marks import TimeMark, without_marks
from headrace.pipelines.operators.times import Interval
from headrace.pipelines.operators.windows.results import RETRACTED
from headrace.pipelines.spark.watermarks import keep_input_watermarks


def join_streams(
    right: DataFrame,
    *,
    on: On,
    within: Interval | Sequence[Interval] | None = None,
    how: str = "inner",
    time: str | None = None,
    right_time: str | None = None,
    prefix: str = "right_",
    stragglers: Stragglers | None = None,
    buckets: int | None = None,
) -> Transform:
    """Pairs of a row and a row of `right` with equal keys, the right time `within` an interval around the left one.

    `within=("-5 minutes", "10 minutes")` is from five minutes before the left row to ten behind it, ends included;
    `within="10 minutes"` is as much before as after. `on` names columns that both have, or `{left: right}`. `how` is
    inner, left, right, full, semi or anti; what has no partner is emitted once, when none can come any more. Both sides
    need a watermark; `time` and `right_time` name its column where there are several. A column that both have is the
    left's by its name and the right's with `prefix`. A row at or behind the watermark is late: `stragglers`.
    """
    if how not in KINDS:
        raise BadField(f"how={how!r} in join_streams: write one of {', '.join(KINDS)}")
    interval, pairs, choice = bounds(within), distinct_key_pairs(on, "join_streams"), stragglers or drop()

    def apply(left: DataFrame) -> DataFrame:
        check_sides(left, right, "join_streams")
        times = side_times(left, right, time, right_time, "join_streams")
        made = ((ASIDE,) if choice.hands_on else ()) + ((RETRACTED,) if choice.corrects else ())
        types = (column_types(left, "join_streams"), column_types(right, "join_streams"))
        names = columns(pairs, *types, prefix=prefix, only_left=how in ONLY_LEFT, made=made)
        join = StreamJoin(left, right, how, interval, *times, names, choice, buckets)
        # Spark's own join is fast, drops late rows and knows one watermark; the rest is for the one on keyed state.
        is_plain = not (choice.hands_on or choice.corrects or any(_is_held_up(mark, pairs) for mark in times))
        is_native = is_plain or not (left.isStreaming or choice.hands_on)
        found, marks = keep_input_watermarks((native_join if is_native else keyed_join)(join)), _times(join)
        found = without_marks(found, set(found.columns) - {mark.column for mark in marks})
        # Spark's join lowers the watermark for what stands behind it by itself.
        return found if is_native else reduce(lambda frame, mark: mark.put(frame), marks, found)

    return apply


def _is_held_up(mark: TimeMark, keys: tuple[tuple[str, str], ...]) -> bool:
    """Whether rows come further behind the watermark than Spark's join can be made to take them.

    Events that were enriched as of their time come a microsecond behind it.
    """
    is_key = any(mark.column in pair for pair in keys)
    return bool(mark.back_us or mark.lag_us > 1 or (mark.lag_us and is_key))


def _times(join: StreamJoin) -> list[TimeMark]:
    """What carries the time of pairs: that of a side which is in every row, or a key.

    A pair is there when its later row is, and the earlier one has waited as long as the interval reaches.
    """
    behind = max(join.left_time.lag_us, join.right_time.lag_us) + join.stragglers.allowed_us
    # Only what was said to have no partner is ever taken back.
    again = (RETRACTED,) if join.stragglers.corrects and join.how in LONELY_LEFT + LONELY_RIGHT else ()
    reaches = max(join.within.high_us, 0), max(-join.within.low_us, 0)
    left, right = replace(join.left_time, again=again), replace(join.right_time, again=again)
    if left.column in (one for one, _ in join.columns.keys):
        return [replace(left, lag_us=behind + max(reaches))]
    found = [] if join.how in LONELY_RIGHT else [replace(left, lag_us=behind + reaches[0])]
    called = dict(join.columns.right).get(right.column)
    if called is not None and join.how not in LONELY_LEFT:
        found.append(replace(right, column=called, lag_us=behind + reaches[1]))
    return found
