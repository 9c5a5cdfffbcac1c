"""`join_streams`: rows of two streams with one key whose times lie near each other."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import TYPE_CHECKING

from headrace.pipelines.operators.errors import BadField, BadTime, BadWindow
from headrace.pipelines.operators.frames import Transform, event_time_of
from headrace.pipelines.operators.interval_join_bounds import Bounds, bounds
from headrace.pipelines.operators.interval_join_columns import Columns, On, columns, key_pairs
from headrace.pipelines.operators.interval_join_rows import KINDS, LONELY_LEFT, LONELY_RIGHT, ONLY_LEFT
from headrace.pipelines.operators.stragglers import ASIDE, Stragglers, drop
from headrace.pipelines.operators.time_marks import TimeMark, without_marks
from headrace.pipelines.operators.times import Interval
from headrace.pipelines.operators.windows.results import RETRACTED
from headrace.pipelines.watermarks import keeps_input_watermarks

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass(frozen=True)
class StreamJoin:
    """A join of two frames, once everything named is known to be there: what the two ways of doing it need."""

    left: "DataFrame"
    right: "DataFrame"
    how: str
    within: Bounds
    left_time: TimeMark
    right_time: TimeMark
    columns: Columns
    stragglers: Stragglers
    buckets: int | None


def join_streams(
    right: "DataFrame",
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
    inner, left, right, full, semi or anti; what has no partner is told once, when none can come any more. Both sides
    need a watermark; `time` and `right_time` name its column where there are several. A column that both have is the
    left's by its name and the right's with `prefix`. A row at or behind the watermark is late: `stragglers`.
    """
    if how not in KINDS:
        raise BadField(f"how={how!r} in join_streams: write one of {', '.join(KINDS)}")
    interval, pairs, choice = bounds(within), key_pairs(on, "join_streams"), stragglers or drop()

    def apply(left: "DataFrame") -> "DataFrame":
        from headrace.pipelines.operators.interval_join_keyed import keyed_join
        from headrace.pipelines.operators.interval_join_native import native_join

        check_sides(left, right, "join_streams")
        times = side_times(left, right, time, right_time, "join_streams")
        made = ((ASIDE,) if choice.hands_on else ()) + ((RETRACTED,) if choice.corrects else ())
        types = (column_types(left, "join_streams"), column_types(right, "join_streams"))
        names = columns(pairs, *types, prefix=prefix, only_left=how in ONLY_LEFT, made=made)
        join = StreamJoin(left, right, how, interval, *times, names, choice, buckets)
        # Spark's own join is fast, drops late rows and knows one watermark; the rest is for the one on keyed state.
        is_plain = not (choice.hands_on or choice.corrects or any(_is_held_up(mark, pairs) for mark in times))
        is_native = is_plain or not (left.isStreaming or choice.hands_on)
        found, marks = keeps_input_watermarks((native_join if is_native else keyed_join)(join)), _times(join)
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


def check_sides(left: "DataFrame", right: "DataFrame", what: str) -> None:
    """Refuse to join a stream with what is none."""
    if left.isStreaming == right.isStreaming:
        return
    which = "right" if left.isStreaming else "left"
    raise BadWindow(
        f"{what} joins two streams, and the {which} side is none: read it with readStream, or join "
        "a table that does not change with .join(…)"
    )


def side_times(
    left: "DataFrame", right: "DataFrame", time: str | None, right_time: str | None, what: str
) -> tuple[TimeMark, TimeMark]:
    """The time columns of both sides, which can be compared."""
    found = _time(left, time, "left", "time", what), _time(right, right_time, "right", "right_time", what)
    _check_times(left, right, *found)
    return found


def _time(frame: "DataFrame", named: str | None, side: str, keyword: str, what: str) -> TimeMark:
    """The time column of a side; the sentence says which side lacks it."""
    try:
        return event_time_of(frame, named, f"the {side} side of {what}")
    except BadWindow as error:
        raise BadWindow(str(error).replace("time=…", f"{keyword}=…")) from None


def _check_times(left: "DataFrame", right: "DataFrame", at_left: TimeMark, at_right: TimeMark) -> None:
    time, right_time = at_left.column, at_right.column
    one, other = left.schema[time].dataType.simpleString(), right.schema[right_time].dataType.simpleString()
    if one != other:
        raise BadTime(
            f"the left time {time!r} is {one} and the right time {right_time!r} is {other}, which cannot be "
            "compared without a time zone: make both with event_time(…)"
        )


def column_types(frame: "DataFrame", what: str) -> dict[str, str]:
    """The columns of a side and their types; each name once."""
    names = frame.columns
    for place, name in enumerate(names):
        if name in names[:place]:
            raise BadField(f"there are two columns {name!r} on one side of {what}: rename one of them")
    return {field.name: field.dataType.simpleString() for field in frame.schema.fields}
