"""A join of two streams as Spark runs it: by its own operator, where late rows are dropped, or on keyed state."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import reduce
from operator import and_

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as fn

from headrace.pipelines.operators.frames import arrow_schema, over_keys
from headrace.pipelines.operators.joins.interval import (
    IS_LEFT,
    LEFT,
    LONELY_LEFT,
    LONELY_RIGHT,
    ONLY_LEFT,
    RIGHT,
    TIME,
    IntervalJoin,
)
from headrace.pipelines.operators.joins.sides import Bounds, Columns
from headrace.pipelines.operators.stragglers import ASIDE, Stragglers, count_late_rows, count_without_time
from headrace.pipelines.operators.time_marks import TimeMark
from headrace.pipelines.operators.windows.results import RETRACTED


@dataclass(frozen=True)
class StreamJoin:
    """A join of two frames, once everything named is known to be there: what the two ways of doing it need."""

    left: DataFrame
    right: DataFrame
    how: str
    within: Bounds
    left_time: TimeMark
    right_time: TimeMark
    columns: Columns
    stragglers: Stragglers
    buckets: int | None


def keyed_join(join: StreamJoin) -> DataFrame:
    """The join with late rows handed on or corrected."""
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
    found = count_late_rows(over_keys(both, names, lambda _: operator, join.buckets, behind), join.stragglers)
    out = [fn.col(key).alias(name) for key, (name, _) in zip(names, join.columns.keys, strict=True)]
    out += [fn.col(LEFT)[name].alias(name) for name in join.columns.left]
    if join.how not in ONLY_LEFT:
        out += [fn.col(RIGHT)[name].alias(called) for name, called in join.columns.right]
    return found.select(*out, *(name for name in (RETRACTED, ASIDE) if name in found.columns))


def _keyed_side(
    carried: Sequence[str], frame: DataFrame, keys: list[str], time: TimeMark, *, is_left: bool, lonely: bool
) -> DataFrame:
    """Key, time and which side, and the row in a struct; the union adds the other side's, null."""
    if not lonely:
        # Without a key it has no part in any result.
        frame = frame.where(reduce(and_, (fn.col(f"`{key}`").isNotNull() for key in keys)))
    return frame.select(
        *(fn.col(f"`{key}`").alias(f"_k{place}") for place, key in enumerate(keys)),
        time.value().alias(TIME),
        fn.lit(is_left).alias(IS_LEFT),
        fn.struct(*(fn.col(f"`{name}`") for name in carried)).alias(LEFT if is_left else RIGHT),
    )


# Spark has no anti join of streams: it is an outer join of which only the rows without a partner remain.
_SPARKS = {"inner": "inner", "left": "left", "right": "right", "full": "full", "semi": "leftsemi", "anti": "left"}


def native_join(join: StreamJoin) -> DataFrame:
    """The join with Spark's own operator, and the columns that keyed state would give.

    Spark knows one watermark, so a side that may be behind it is moved ahead by so much, and back in what comes out.
    """
    if not join.left.isStreaming or not (join.left_time.lag_us or join.right_time.lag_us):
        return _join_natively(join)
    apart = join.right_time.lag_us - join.left_time.lag_us
    within = Bounds(join.within.low_us + apart, join.within.high_us + apart)
    left, right = _move_ahead(join.left, join.left_time), _move_ahead(join.right, join.right_time)
    found = _join_natively(replace(join, left=left, right=right, within=within))
    called = dict(join.columns.right).get(join.right_time.column, "")
    for mark in (join.left_time, replace(join.right_time, column=called)):
        if mark.lag_us and mark.column in found.columns:
            found = mark.put(found.withColumn(mark.column, mark.value() + _interval(-mark.lag_us)))
    return found


def _move_ahead(frame: DataFrame, mark: TimeMark) -> DataFrame:
    return mark.for_spark(frame.withColumn(mark.column, mark.value() + _interval(mark.lag_us)))


def _join_natively(join: StreamJoin) -> DataFrame:
    # Names of our own on both sides, so that a stream can be joined with itself.
    left, right = (
        _native_side(time.for_spark(frame), time.column, list(keys), mark, join.how in lonely)
        for frame, time, keys, mark, lonely in zip(
            (join.left, join.right),
            (join.left_time, join.right_time),
            zip(*join.columns.keys, strict=True),
            ("_l", "_r"),
            (LONELY_LEFT, LONELY_RIGHT),
            strict=True,
        )
    )
    # Times that are not columns as they stand are of results; here they are of frames that are no streams.
    at_left = replace(join.left_time, column=f"_l{join.left.columns.index(join.left_time.column)}").value()
    at_right = replace(join.right_time, column=f"_r{join.right.columns.index(join.right_time.column)}").value()
    keys = [
        (fn.col(f"_l{join.left.columns.index(one)}"), fn.col(f"_r{join.right.columns.index(other)}"))
        for one, other in join.columns.keys
    ]
    wanted = [one == other for one, other in keys]
    if join.how == "full":
        # Neither side may lose its rows without a key, and in Spark's state null equals null: so they differ in side.
        wanted.append(_keyless([one for one, _ in keys], 1) == _keyless([other for _, other in keys], 2))
    wanted += [
        at_right >= at_left + _interval(join.within.low_us),
        at_right <= at_left + _interval(join.within.high_us),
    ]
    joined = left.join(right, reduce(and_, wanted), _SPARKS[join.how])
    if join.how == "anti":
        joined = joined.where(at_right.isNull())
    found = [
        (fn.coalesce(one, other) if join.how in LONELY_RIGHT else one).alias(name)
        for (one, other), (name, _) in zip(keys, join.columns.keys, strict=True)
    ]
    found += [fn.col(f"_l{join.left.columns.index(name)}").alias(name) for name in join.columns.left]
    if join.how not in ONLY_LEFT:
        found += [fn.col(f"_r{join.right.columns.index(name)}").alias(called) for name, called in join.columns.right]
    if join.stragglers.corrects:
        found.append(fn.lit(False).alias(RETRACTED))  # of a frame that is no stream, where nothing is late
    return joined.select(*found)


def _native_side(frame: DataFrame, time: str, keys: list[str], mark: str, lonely: bool) -> DataFrame:
    """A side by names of our own, without rows that can have no part in any result."""
    at = fn.col(f"`{time}`")
    frame = count_without_time(frame, at)
    # Without a time a row would stay in Spark's state for ever.
    kept = frame.where(at.isNotNull())
    if not lonely:
        kept = kept.where(reduce(and_, (fn.col(f"`{name}`").isNotNull() for name in keys)))
    return kept.select(*(fn.col(f"`{name}`").alias(f"{mark}{place}") for place, name in enumerate(frame.columns)))


def _keyless(keys: list[Column], side: int) -> Column:
    return fn.when(reduce(and_, (key.isNotNull() for key in keys)), fn.lit(0)).otherwise(fn.lit(side))


def _interval(length_us: int) -> Column:
    seconds, rest = divmod(abs(length_us), 1_000_000)
    sign = "-" if length_us < 0 else ""
    return fn.expr(f"INTERVAL '{sign}{seconds}.{rest:06d}' SECOND")
