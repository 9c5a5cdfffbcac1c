"""What users say about the two sides of a join: keys, interval, names and times, checked before anything runs.

The columns of `on` come first and once, by their names on the left. Then all others of the left, then all others of
the right; where the left has a name too, the right one has a prefix.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta

from pyspark.sql import DataFrame

from headrace.pipelines.operators.errors import BadField, BadTime, BadWindow, On, key_pairs, require
from headrace.pipelines.operators.frames import event_time_of
from headrace.pipelines.operators.time_marks import TimeMark
from headrace.pipelines.operators.times import Interval, microseconds


@dataclass(frozen=True)
class Columns:
    """Names: pairs of keys (left, right), the left's others, and the right's others with what they are called."""

    keys: tuple[tuple[str, str], ...]
    left: tuple[str, ...]
    right: tuple[tuple[str, str], ...]


def distinct_key_pairs(on: On, what: str) -> tuple[tuple[str, str], ...]:
    """`on=` as pairs of a left and a right column, each named once."""
    pairs = key_pairs(on, what)
    for side, names in (("left", [one for one, _ in pairs]), ("right", [other for _, other in pairs])):
        for place, name in enumerate(names):
            if name in names[:place]:
                raise BadField(f"on names {name!r} of the {side} side twice: name it once")
    return pairs


def columns(
    keys: tuple[tuple[str, str], ...],
    left: Mapping[str, str],
    right: Mapping[str, str],
    *,
    prefix: str,
    only_left: bool,
    made: Collection[str] = (),
) -> Columns:
    """The columns that come out of sides with these columns and types, beside those `made` by the join itself."""
    require([one for one, _ in keys], left, "on, on the left side,")
    require([other for _, other in keys], right, "on, on the right side,")
    for one, other in keys:
        if left[one] != right[other]:
            raise BadField(
                f"the key {one!r} is {left[one]} on the left and {other!r} is {right[other]} on the right: "
                f'make them one type, for example with .withColumn("{other}", col("{other}").cast("{left[one]}"))'
            )
    ours = [name for name in left if name not in {one for one, _ in keys}]
    theirs = [] if only_left else [name for name in right if name not in {other for _, other in keys}]
    for name in made:
        if name in left:
            raise BadField(f"the left side has a column {name!r}, as the join makes one: rename it before the join")
    taken = {*left, *made}
    called = [f"{prefix}{name}" if name in taken else name for name in theirs]
    for place, name in enumerate(called):
        if name in taken or name in called[:place]:
            raise BadField(
                f"the right side's {theirs[place]!r} would be called {name!r}, as another column is: "
                'choose another prefix with prefix="…", or rename it before the join'
            )
    return Columns(keys, tuple(ours), tuple(zip(theirs, called, strict=True)))


_WRITE = 'write within=("-5 minutes", "10 minutes"), or within="10 minutes" for as much before as after'


@dataclass(frozen=True)
class Bounds:
    """A pair joins if the right time is in `left time + low_us … left time + high_us`, both ends included."""

    low_us: int
    high_us: int


def bounds(within: Interval | Sequence[Interval] | None) -> Bounds:
    """What `within=` says; a join that would have to keep its rows for ever is refused."""
    if within is None:
        raise BadWindow(f"join_streams without an interval would keep every row for ever: {_WRITE}")
    if isinstance(within, str | timedelta):
        reach = microseconds(within, "within in join_streams")
        if reach < 0:
            raise BadWindow(f"within={within!r} is less than nothing: {_WRITE}")
        return Bounds(-reach, reach)
    if len(within) != 2:
        raise BadWindow(f"within has {len(within)} ends: {_WRITE}")
    if None in within:
        raise BadWindow(f"within is open at one end, and would keep the rows of one side for ever: {_WRITE}")
    low, high = (signed(end, "within in join_streams") for end in within)
    if low > high:
        raise BadWindow(f"within begins at {within[0]!r}, behind its end {within[1]!r}: write the earlier end first")
    return Bounds(low, high)


def signed(given: Interval, what: str) -> int:
    """A length of time that may lie before (`-5 minutes`) or after (`10 minutes`, `+10 minutes`)."""
    if isinstance(given, timedelta):
        return microseconds(given, what)
    text = str(given).strip()
    length = microseconds(text[1:] if text.startswith(("+", "-")) else text, what)
    return -length if text.startswith("-") else length


def check_sides(left: DataFrame, right: DataFrame, what: str) -> None:
    """Refuse to join a stream with what is none."""
    if left.isStreaming == right.isStreaming:
        return
    which = "right" if left.isStreaming else "left"
    raise BadWindow(
        f"{what} joins two streams, and the {which} side is not one: read it with readStream, or join "
        "a table that does not change with .join(…)"
    )


def side_times(
    left: DataFrame, right: DataFrame, time: str | None, right_time: str | None, what: str
) -> tuple[TimeMark, TimeMark]:
    """The time columns of both sides, which can be compared."""
    found = _time(left, time, "left", "time", what), _time(right, right_time, "right", "right_time", what)
    _check_times(left, right, *found)
    return found


def _time(frame: DataFrame, named: str | None, side: str, keyword: str, what: str) -> TimeMark:
    """The time column of a side; the sentence says which side lacks it."""
    try:
        return event_time_of(frame, named, f"the {side} side of {what}")
    except BadWindow as error:
        raise BadWindow(str(error).replace("time=…", f"{keyword}=…")) from None


def _check_times(left: DataFrame, right: DataFrame, at_left: TimeMark, at_right: TimeMark) -> None:
    time, right_time = at_left.column, at_right.column
    one, other = left.schema[time].dataType.simpleString(), right.schema[right_time].dataType.simpleString()
    if one != other:
        raise BadTime(
            f"the left time {time!r} is {one} and the right time {right_time!r} is {other}, which cannot be "
            "compared without a time zone: make both with event_time(…)"
        )


def column_types(frame: DataFrame, what: str) -> dict[str, str]:
    """The columns of a side and their types; each name once."""
    names = frame.columns
    for place, name in enumerate(names):
        if name in names[:place]:
            raise BadField(f"there are two columns {name!r} on one side of {what}: rename one of them")
    return {field.name: field.dataType.simpleString() for field in frame.schema.fields}
