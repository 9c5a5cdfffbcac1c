"""`join_windows`: rows of two streams with one key in the same window.

Both sides are brought into one stream and go through one window, which collects the rows of each; what comes out are
their pairs. So a window of a join is as any other: how it closes, what is late, corrected or handed on, and what is
kept over a restart.
"""

from collections.abc import Mapping
from functools import reduce
from operator import and_
from typing import Any, Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as fn

from headrace.pipelines.operators import aggregates as agg
from headrace.pipelines.operators.aggregation.ordering import is_ordered
from headrace.pipelines.operators.errors import BadField, BadWindow, On
from headrace.pipelines.operators.frames import Transform, arrow_schema
from headrace.pipelines.operators.joins.interval import KINDS, LEFT, LONELY_LEFT, LONELY_RIGHT, ONLY_LEFT, RIGHT
from headrace.pipelines.operators.joins.sides import (
    Columns,
    check_sides,
    column_types,
    columns,
    distinct_key_pairs,
    side_times,
)
from headrace.pipelines.operators.stragglers import ASIDE, Stragglers
from headrace.pipelines.operators.time_marks import TimeMark, without_marks
from headrace.pipelines.operators.times import Interval
from headrace.pipelines.operators.windows.fixed import EDGES, hopping, per_window, tumbling, window_end_of
from headrace.pipelines.operators.windows.results import RETRACTED, REVISION
from headrace.pipelines.operators.windows.sessions import sessions

_TIME: Final = "_time"
_ALONE: Final = "_alone"
_NAMED: Final = 'size="10 minutes", size= and every=, or gap="5 minutes"'


def join_windows(
    right: DataFrame,
    *,
    on: On,
    size: Interval | None = None,
    every: Interval | None = None,
    gap: Interval | None = None,
    how: str = "inner",
    time: str | None = None,
    right_time: str | None = None,
    prefix: str = "right_",
    stragglers: Stragglers | None = None,
    buckets: int | None = None,
) -> Transform:
    """Pairs of a row and a row of `right` with equal keys in the same window, emitted when the window is over.

    `size="10 minutes"` are tumbling windows, with `every` hopping ones, in which a pair comes once for every window
    that both are in; `gap="5 minutes"` are sessions of a key over the rows of both sides. Without any of them the rows
    have windows already, as results of windows have: those of the same `window_start` and `window_end` are joined.

    `on` names columns that both have, or `{left: right}`; a null equals nothing. `how` is inner, left, right, full,
    semi or anti: what has no partner in its window comes out with nulls, or is what comes out. The columns of `on` come
    first, then `window_start` and `window_end`, then the left's and the right's, where one that both have is the left's
    by its name and the right's with `prefix`. Both sides need a watermark; `time` and `right_time` name its column
    where there are several. Late rows: `stragglers`, as with `tumbling`.
    """
    if how not in KINDS:
        raise BadField(f"how={how!r} in join_windows: write one of {', '.join(KINDS)}")
    if (gap is not None and size is not None) or (every is not None and size is None):
        raise BadWindow(f"join_windows has several kinds of windows, or half of one: write {_NAMED}, or none of them")
    pairs = distinct_key_pairs(on, "join_windows")
    placed = size is None and gap is None  # rows have a window already

    def window(**given: Any) -> Transform:
        if gap is not None:
            return sessions(gap, time=_TIME, **given)
        if size is not None and every is not None:
            return hopping(size, every, time=_TIME, **given)
        return per_window(**given) if size is None else tumbling(size, time=_TIME, **given)

    def apply(left: DataFrame) -> DataFrame:
        check_sides(left, right, "join_windows")
        if placed:
            sides = zip((left, right), ("left", "right"), strict=True)
            times = tuple(window_end_of(frame, f"the {side} side of join_windows") for frame, side in sides)
        else:
            times = side_times(left, right, time, right_time, "join_windows")
        types = [
            {
                name: kind
                for name, kind in column_types(frame, "join_windows").items()
                if not placed or name not in EDGES
            }
            for frame in (left, right)
        ]
        names = columns(pairs, *types, prefix=prefix, only_left=how in ONLY_LEFT, made=(*EDGES, REVISION, RETRACTED))
        left_time, its_time = (None if placed else each for each in times)
        ours = _side(left, left_time, [one for one, _ in pairs], types[0], 1, alone=how in LONELY_LEFT)
        theirs = _side(right, its_time, [other for _, other in pairs], types[1], 2, alone=how in LONELY_RIGHT)
        both = ours.unionByName(theirs, allowMissingColumns=True)
        _check_order(both)
        mark = TimeMark(*(("window_end", 1) if placed else (_TIME, 0)), max(each.lag_us for each in times))
        keys = [f"_k{place}" for place in range(len(pairs))]
        rows = {LEFT: agg.collect(LEFT), RIGHT: agg.collect(RIGHT)}
        windowed = window(by=[*keys, _ALONE], stragglers=stragglers, buckets=buckets, **rows)
        found = _pair(both.transform(mark.put).transform(windowed), names, how)
        return without_marks(found, set(found.columns) - {"window_end"})

    return apply


def _side(
    frame: DataFrame, time: TimeMark | None, keys: list[str], carried: Mapping[str, str], side: int, *, alone: bool
) -> DataFrame:
    """Key and window or time, and the row in a struct; the union adds the other side's, null."""
    known = reduce(and_, (fn.col(f"`{key}`").isNotNull() for key in keys))
    if not alone:
        frame = frame.where(known)  # without a key it has no part in any result
    return frame.select(
        *(fn.col(f"`{key}`").alias(f"_k{place}") for place, key in enumerate(keys)),
        # A null equals nothing, and in a group null equals null: so the sides do not meet there.
        fn.when(known, fn.lit(0)).otherwise(fn.lit(side)).alias(_ALONE),
        *(map(fn.col, EDGES) if time is None else [time.value().alias(_TIME)]),
        fn.struct(*(fn.col(f"`{name}`") for name in carried)).alias(LEFT if side == 1 else RIGHT),
    )


def _pair(found: DataFrame, names: Columns, how: str) -> DataFrame:
    """The pairs of the rows that each window has of both sides."""
    has_left, has_right = (fn.size(side) > 0 for side in (LEFT, RIGHT))
    wanted = {"inner": has_left & has_right, "left": has_left, "right": has_right, "full": has_left | has_right,
              "semi": has_left & has_right, "anti": has_left & ~has_right}[how]  # fmt: skip
    about = [name for name in (REVISION, RETRACTED, ASIDE) if name in found.columns]
    kept = found.where(wanted | fn.col(ASIDE).isNotNull() if ASIDE in about else wanted)
    others = [name for name in found.columns if name not in (LEFT, RIGHT)]
    pairs = kept.select(*others, RIGHT, fn.explode_outer(LEFT).alias(LEFT))
    if how not in ONLY_LEFT:
        pairs = pairs.select(*others, LEFT, fn.explode_outer(RIGHT).alias(RIGHT))
    out = [fn.col(f"_k{place}").alias(name) for place, (name, _) in enumerate(names.keys)]
    out += [fn.col(name) for name in EDGES]
    out += [fn.col(LEFT)[name].alias(name) for name in names.left]
    if how not in ONLY_LEFT:
        out += [fn.col(RIGHT)[name].alias(called) for name, called in names.right]
    return pairs.select(*out, *about)


def _check_order(both: DataFrame) -> None:
    rows = arrow_schema(both)
    for side, name in (("left", LEFT), ("right", RIGHT)):
        for field in rows.field(name).type:
            if not is_ordered(field.type):
                raise BadField(
                    f"the {side} side of join_windows has a column {field.name!r} of type {field.type}, which has no "
                    f"order: drop it, or write .withColumn({field.name!r}, to_json({field.name!r})) before the join"
                )
