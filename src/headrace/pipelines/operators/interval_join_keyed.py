"""A join of two streams on keyed state: both sides brought into one stream, and taken apart again."""

from collections.abc import Sequence
from functools import reduce
from operator import and_
from typing import TYPE_CHECKING

from headrace.pipelines.operators.frames import arrow_schema, over_keys
from headrace.pipelines.operators.interval_join_rows import (
    IS_LEFT,
    LEFT,
    LONELY_LEFT,
    LONELY_RIGHT,
    ONLY_LEFT,
    RIGHT,
    TIME,
    IntervalJoin,
)
from headrace.pipelines.operators.stragglers import ASIDE, counted
from headrace.pipelines.operators.time_marks import TimeMark
from headrace.pipelines.operators.windows.results import RETRACTED

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from headrace.pipelines.operators.interval_join import StreamJoin


def keyed_join(join: "StreamJoin") -> "DataFrame":
    """The join with late rows handed on or corrected."""
    from pyspark.sql import functions as fn

    names = [f"_k{place}" for place in range(len(join.columns.keys))]
    whole = join.stragglers.hands_on
    # A struct has to have a column, also where nothing of a side comes out, as in a semi join.
    left = _keyed_side(
        join.left.columns if whole else join.columns.left or [join.left_time.column],
        join.left,
        [one for one, _ in join.columns.keys],
        join.left_time,
        is_left=True,
        lonely=whole or join.how in LONELY_LEFT,
    )
    right = _keyed_side(
        join.right.columns if whole else [name for name, _ in join.columns.right] or [join.right_time.column],
        join.right,
        [other for _, other in join.columns.keys],
        join.right_time,
        is_left=False,
        lonely=whole or join.how in LONELY_RIGHT,
    )
    both = left.unionByName(right, allowMissingColumns=True)
    rows = arrow_schema(both)
    operator = IntervalJoin(join.how, join.within, join.stragglers, rows.field(LEFT).type, rows.field(RIGHT).type)
    behind = max(join.left_time.lag_us, join.right_time.lag_us)
    found = counted(over_keys(both, names, lambda _: operator, join.buckets, behind), join.stragglers)
    out = [fn.col(key).alias(name) for key, (name, _) in zip(names, join.columns.keys, strict=True)]
    out += [fn.col(LEFT)[name].alias(name) for name in join.columns.left]
    if join.how not in ONLY_LEFT:
        out += [fn.col(RIGHT)[name].alias(called) for name, called in join.columns.right]
    return found.select(*out, *(name for name in (RETRACTED, ASIDE) if name in found.columns))


def _keyed_side(
    carried: Sequence[str], frame: "DataFrame", keys: list[str], time: TimeMark, *, is_left: bool, lonely: bool
) -> "DataFrame":
    """Key, time and which side, and the row in a struct; the union adds the other side's, null."""
    from pyspark.sql import functions as fn

    if not lonely:
        # Without a key it has no part in any result.
        frame = frame.where(reduce(and_, (fn.col(f"`{key}`").isNotNull() for key in keys)))
    return frame.select(
        *(fn.col(f"`{key}`").alias(f"_k{place}") for place, key in enumerate(keys)),
        time.value().alias(TIME),
        fn.lit(is_left).alias(IS_LEFT),
        fn.struct(*(fn.col(f"`{name}`") for name in carried)).alias(LEFT if is_left else RIGHT),
    )
