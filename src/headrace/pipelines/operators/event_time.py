"""`event_time`: the time that a row speaks of, with a watermark that a broken clock cannot run away with."""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as fn

from headrace.pipelines.observed import EVENT_TIMES
from headrace.pipelines.operators.errors import BadField, BadTime, require
from headrace.pipelines.operators.frames import Transform
from headrace.pipelines.operators.stragglers import next_number
from headrace.pipelines.operators.time_marks import TimeMark, time_marks, without_marks
from headrace.pipelines.operators.times import Interval, microseconds, spell
from headrace.pipelines.spark.plan import has_watermark, lost_watermark, stateful_step

COLUMN = "event_time"
IDLE = "_idle"
_UNITS = {"s": 1_000_000, "ms": 1_000, "us": 1}
_NUMBERS = ("tinyint", "smallint", "int", "bigint", "float", "double")


def event_time(
    field: str,
    *,
    delay: Interval,
    ahead: Interval | None = None,
    unit: str | None = None,
    into: str = COLUMN,
) -> Transform:
    """Adds the column `into` with the time of each row, and a watermark that stays `delay` behind the latest.

    The field is a timestamp, a date, ISO 8601 text, or a number with its `unit` (s, ms, us). Where it is null or cannot
    be read, and with `ahead` where it is further than that before the wall clock, the time is null: such a row does not
    move the watermark, and windows count it and set it aside. How many were ahead is in the query's progress as well.

    A query has one watermark. Behind a step that waits for it (a window, a join) another time can be named, and goes by
    the same watermark: `delay` is then how far these times may lie behind it.
    """
    delay_us = microseconds(delay, "delay in event_time")
    ahead_us = None if ahead is None else microseconds(ahead, "ahead in event_time")
    if unit is not None and unit not in _UNITS:
        raise BadTime(f"unit in event_time is {unit!r}: write one of {', '.join(_UNITS)}")

    def apply(frame: DataFrame) -> DataFrame:
        require([field], frame.columns, "event_time")
        if into in frame.columns and into != field:
            raise BadField(f"there is a column {into!r} already: name another with into=…, or read the time from it")
        held_up = frame.isStreaming and has_watermark(frame) and stateful_step(frame) is not None
        marks = [mark.column for mark in time_marks(frame) if not held_up or mark.column == field]
        if marks:
            raise BadTime(f"{marks[0]!r} carries a watermark already: leave out event_time here")
        if held_up and (reason := lost_watermark(frame)):
            raise BadTime(f"event_time would wait for ever: {reason}")
        read = _read(field, frame.schema[field].dataType.simpleString(), unit)
        limit = fn.current_timestamp() + fn.expr(f"INTERVAL {ahead_us} MICROSECOND") if ahead_us is not None else None
        if limit is None:
            timed = frame.withColumn(into, read)
        else:
            # Windows count all rows without a time; this says how many of them are so for being ahead.
            rows = ~fn.coalesce(fn.col(IDLE), fn.lit(False)) if IDLE in frame.columns else fn.lit(True)
            far = fn.count_if((read > limit) & rows).alias("ahead")
            timed = frame.observe(f"{EVENT_TIMES}.{field}.{next_number()}", far)
            timed = timed.withColumn(into, fn.when(read <= limit, read))
        if held_up:
            marked = timed.transform(TimeMark(into, lag_us=delay_us).put)
            return without_marks(marked, set(marked.columns) - {into})
        # Spark takes a watermark away where nothing streams; operators then know the time by its mark.
        timed = timed.withWatermark(into, spell(delay_us)) if frame.isStreaming else TimeMark(into).put(timed)
        if IDLE in frame.columns:
            # It names the time so that Spark does not take the row out before the watermark has seen it; and is true
            # without a time too, which a stamp has that is too far ahead of a clock that was put back.
            any_time = f"coalesce(`{into}` > TIMESTAMP '0001-01-01 00:00:00', true)"
            timed = timed.where(f"NOT (coalesce({IDLE}, false) AND {any_time})").drop(IDLE)
        return timed

    return apply


def _read(field: str, kind: str, unit: str | None) -> Column:
    column = fn.col(f"`{field}`")
    if kind == "timestamp":
        return column
    if kind in ("date", "timestamp_ntz"):
        return column.cast("timestamp")
    if kind == "string":
        return fn.try_to_timestamp(column)
    if kind in _NUMBERS or kind.startswith("decimal"):
        if unit is None:
            raise BadTime(f'event_time("{field}"): it is a number, and of what? Write unit="ms" (or s, us)')
        # A number beyond what a timestamp holds is no time.
        micros = fn.expr(f"try_multiply(try_cast(`{field}` AS DECIMAL(30, 6)), {_UNITS[unit]})")
        fits = micros.between(-62_135_596_800_000_000, 253_402_300_799_999_999)
        return fn.when(fits, fn.timestamp_micros(fn.when(fits, micros).cast("bigint")))
    raise BadTime(
        f"event_time: {field!r} is {kind}, and no time can be read from it: name a timestamp, text or a number"
    )
