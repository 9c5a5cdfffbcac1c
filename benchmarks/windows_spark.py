"""The Spark sides: our operators; Spark's own functions over our source; and all of it as Spark comes.

Sliding windows Spark does not have: the best of plain PySpark is a join of the stream with itself and a count of pairs.
"""

import time
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as fn

from pipelines_spark import Headrace, TwoPartitionSpark
from windows_queries import (
    BACK_S,
    CHECKED,
    FLUSH_USER,
    GAP_S,
    HOP_S,
    LATENESS_S,
    RECORDS_PER_BATCH,
    SIZE_S,
    TUMBLE_S,
)

_LATENESS = f"{LATENESS_S} seconds"


class _Windows:
    """Queries over `events(True, …)`, which the other base has."""

    def query(self, row: str, bootstrap: str, topic: str) -> dict[str, Any]:
        made = self.made(row, self.events(True, bootstrap, topic))
        started = time.perf_counter()
        query = self._to_the_end(made.writeStream.format("noop"))
        seconds = time.perf_counter() - started
        rows = sum(max(0, progress.sink.numOutputRows) for progress in query.recentProgress)
        return {"seconds": seconds, "rows": rows, "batches": len(query.recentProgress)}

    def verify(self, row: str, bootstrap: str, topic: str) -> dict[str, Any]:
        made = self.made(row, self.events(True, bootstrap, topic))
        name = f"verified_{next(self._numbers)}"
        named = made.toDF(*map(str, range(5)))
        self._to_the_end(named.writeStream.format("memory").queryName(name).outputMode("append"))
        found = self.spark.table(name).where(f"`0` <> '{FLUSH_USER}'").selectExpr("count(*)", CHECKED).collect()
        self.spark.catalog.dropTempView(name)
        ((results, total),) = found
        return {"results": results, "checksum": int(total or 0)}


class SparkWindows(_Windows):
    """Spark's own functions."""

    def made(self, row: str, events: DataFrame) -> DataFrame:
        timed = events.select("user", "id", fn.timestamp_millis("ts").alias("at")).withWatermark("at", _LATENESS)
        if row.startswith("sliding"):
            return _joined(timed)
        window = {
            "tumbling": lambda: fn.window("at", f"{TUMBLE_S} seconds"),
            "hopping": lambda: fn.window("at", f"{SIZE_S} seconds", f"{HOP_S} seconds"),
            "session": lambda: fn.session_window("at", f"{GAP_S} seconds"),
            "session-corrected": lambda: fn.session_window("at", f"{GAP_S} seconds"),
        }[row]()
        grouped = timed.groupBy("user", window.alias("w")).agg(
            fn.count(fn.lit(1)).alias("n"), fn.sum("id").alias("ids")
        )
        return grouped.select("user", fn.unix_millis("w.start"), fn.unix_millis("w.end"), "n", "ids")


def _joined(timed: DataFrame) -> DataFrame:
    """Each row with all rows of its user up to `BACK_S` before it."""
    ours = timed.select(fn.col("user"), fn.col("id"), fn.col("at")).alias("one")
    theirs = timed.select(fn.col("user").alias("its"), fn.col("id").alias("other"), fn.col("at").alias("then")).alias(
        "two"
    )
    near = (
        (fn.col("user") == fn.col("its"))
        & (fn.col("then") <= fn.col("at"))
        & (fn.col("then") >= fn.col("at") - fn.expr(f"INTERVAL {BACK_S} SECONDS"))
    )
    pairs = ours.join(theirs, near).groupBy("user", "id", "at")
    counted = pairs.agg(fn.count(fn.lit(1)).alias("n"), fn.sum("other").alias("ids"))
    return counted.select("user", "id", fn.unix_millis("at"), "n", "ids")


class Ours(_Windows, Headrace):
    """Our operators on our session and source."""

    def made(self, row: str, events: DataFrame) -> DataFrame:
        from headrace.pipelines.operators import aggregates as agg
        from headrace.pipelines.operators import correct, event_time, hopping, sessions, sliding, tumbling

        timed = events.select("user", "id", fn.timestamp_millis("ts").alias("at"))
        timed = timed.transform(event_time("at", delay=_LATENESS))
        wanted = {"by": "user", "n": agg.count(), "ids": agg.sum("id")}
        if row.startswith("sliding"):
            found = timed.transform(sliding(f"{BACK_S} seconds", keep="id", **wanted))
            return found.select("user", "id", fn.unix_millis("window_end"), "n", "ids")
        found = timed.transform(
            {
                "tumbling": lambda: tumbling(f"{TUMBLE_S} seconds", **wanted),
                "hopping": lambda: hopping(f"{SIZE_S} seconds", f"{HOP_S} seconds", **wanted),
                "session": lambda: sessions(f"{GAP_S} seconds", **wanted),
                "session-corrected": lambda: sessions(f"{GAP_S} seconds", stragglers=correct("1 second"), **wanted),
            }[row]()
        )
        return found.select("user", fn.unix_millis("window_start"), fn.unix_millis("window_end"), "n", "ids")

    def _reader(self, stream: bool, bootstrap: str, topic: str) -> Any:
        return super()._reader(stream, bootstrap, topic).option("maxRecordsPerTrigger", RECORDS_PER_BATCH)


class Native(SparkWindows, Headrace):
    """Spark's own functions on our session and source: what remains is the difference of the operators."""

    def _reader(self, stream: bool, bootstrap: str, topic: str) -> Any:
        return super()._reader(stream, bootstrap, topic).option("maxRecordsPerTrigger", RECORDS_PER_BATCH)


class Plain(SparkWindows, TwoPartitionSpark):
    """Spark with its own connector and two shuffle partitions."""

    def raw(self, stream: bool, bootstrap: str, topic: str) -> DataFrame:
        reader = self.reader(stream).format("kafka").option("kafka.bootstrap.servers", bootstrap)
        reader = reader.option("maxOffsetsPerTrigger", RECORDS_PER_BATCH)
        return reader.option("subscribe", topic).option("startingOffsets", "earliest").load()
