"""`appended`: a stream of events as a table that only grows."""

from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as fn

from headrace.pipelines.operators.errors import BadField, require
from headrace.pipelines.operators.event_time import IDLE
from headrace.pipelines.operators.frames import Transform
from headrace.pipelines.operators.stragglers import ASIDE
from headrace.pipelines.operators.tables.form import INSERTS, TIME, VERSION, WEIGHT, check_row_names
from headrace.pipelines.operators.time_marks import given_again, time_marks
from headrace.pipelines.operators.windows.results import FINAL, RETRACTED

EVENTS = "events"
"""What versions call the table, if nothing else is known of it."""


def appended(*, time: str | None = None, table: str | None = None) -> Transform:
    """Events as rows that appear and never disappear: a table as changes, for joins, groups and views.

    For a topic without a key, each record of which is a row of its own: `bids.transform(appended())`. `_weight` is 1.
    `_time` is the column `time`, or else the one that has a watermark, or else `_timestamp`, or null. `_version` names
    the `table`, by default the topic if there is a column `_topic`; and the record, if `_partition` and `_offset` are
    among the columns, which it does not need: rows that are equal count as often as they are there.

    Results that are corrected, which have a column `retracted`, are rows that disappear again: `_weight` -1 instead.

    Groups of such a table keep only what they show, because nothing is ever taken back: `max`, `top_n` and `latest` no
    more rows than they give.
    """

    def apply(frame: DataFrame) -> DataFrame:
        if WEIGHT in frame.columns:
            raise BadField(f"appended makes a table of events, and this is one already ({WEIGHT}): leave it out")
        check_row_names(frame.columns, "the stream before appended")
        if IDLE in frame.columns:
            frame = frame.where(~fn.col(IDLE).eqNullSafe(True)).drop(IDLE)
        again = given_again(frame)
        retracted = next((name for name, called in again.items() if called == RETRACTED), None)
        if ASIDE in frame.columns or (again and retracted is None):
            raise BadField(
                "appended stands behind results with late rows beside them: write .transform(on_time) before it"
                if ASIDE in frame.columns
                else f"appended counts each row once, and these are given more than once (see {next(iter(again))!r}): "
                f'take the last of each, as in .where("{FINAL}").drop("{FINAL}")'
            )
        weight = fn.lit(1).cast("int").alias(WEIGHT, metadata={INSERTS: True})
        if retracted is not None:
            weight = fn.when(fn.col(f"`{retracted}`"), -1).otherwise(1).cast("int").alias(WEIGHT)
        own = [fn.col(f"`{name}`") for name in frame.columns if name != retracted]
        return frame.select(*own, weight, _version(frame, table).alias(VERSION), _time(frame, time).alias(TIME))

    return apply


def _time(frame: DataFrame, named: str | None) -> Column:
    if named is not None:
        require([named], frame.columns, "time in appended")
    marked = time_marks(frame)
    if named is None and len(marked) == 1:
        return marked[0].value().cast("timestamp")
    found = named or ("_timestamp" if "_timestamp" in frame.columns else None)
    if found is None:
        return fn.lit(None).cast("timestamp")
    kind = frame.schema[found].dataType.simpleString()
    if kind not in ("timestamp", "timestamp_ntz", "date"):
        raise BadField(f"time in appended names {found!r}, which is {kind} and not a time: name a timestamp")
    return fn.col(f"`{found}`").cast("timestamp")


def _version(frame: DataFrame, table: str | None) -> Column:
    def known(name: str, otherwise: Any) -> Column:
        return fn.col(name) if name in frame.columns else otherwise

    place = {"partition", "offset"} <= {name.removeprefix("_") for name in frame.columns if name.startswith("_")}
    record = fn.struct(fn.col("_partition").alias("partition"), fn.col("_offset").alias("offset")) if place else None
    return fn.struct(
        (known("_topic", fn.lit(EVENTS)) if table is None else fn.lit(table)).cast("string").alias("table"),
        (fn.lit("{}") if record is None else fn.to_json(record)).alias("key"),
        known("_offset", fn.lit(None)).cast("bigint").alias("offset"),
        fn.lit(None).cast("string").alias("lsn"),
    )
