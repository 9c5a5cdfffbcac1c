"""Spark's side: the same queries over its own connector and over ours, which differ in how a topic is read and written.

Plain means plain: a session with the connector's jars and no other setting.
"""

import time
from collections.abc import Mapping
from itertools import count
from pathlib import Path
from types import MappingProxyType
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as fn
from pyspark.sql.streaming import DataStreamWriter, StreamingQuery

import harness  # noqa: F401  puts `peers` on the path
from peers.java import jars_of
from pipelines_events import COMPRESSION, FIELDS, FLUSH, LEAST_AMOUNT, WANTED_EVENT, WINDOW_S, digest_windows

MASTER = "local[2]"
SCHEMA = ", ".join(f"`{name}` {kind}" for name, kind in FIELDS)
_LATENESS = "10 minutes"  # more than the events span: nothing is late, in whatever order partitions are read
_RUNNING_TIMEOUT_S = 120


class Spark:
    """The queries; see the subclasses for the topics."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._numbers = count()
        self._running: StreamingQuery | None = None
        self.spark = self.session()

    def close(self) -> None:
        self.spark.stop()

    # --- orders: bounded

    def query(self, row: str, mode: str, bootstrap: str, topic: str) -> dict[str, Any]:
        """Read all there is into nothing; how long it took."""
        made = self._made(row, mode == "stream", bootstrap, topic)
        started = time.perf_counter()
        if mode == "batch":
            made.write.format("noop").mode("overwrite").save()
            return {"seconds": time.perf_counter() - started}
        query = self._to_the_end(made.writeStream.format("noop"))
        seconds = time.perf_counter() - started
        rows = sum(max(0, progress.sink.numOutputRows) for progress in query.recentProgress)
        return {"seconds": seconds, "rows": rows, "batches": len(query.recentProgress)}

    def verify(self, row: str, mode: str, bootstrap: str, topic: str) -> dict[str, Any]:
        """Read all there is and say what came out."""
        made = self._made(row, mode == "stream", bootstrap, topic)
        if row == "tumbling":
            rows = made.select(fn.unix_millis("window.start"), "user", "count")
            # Not in the query: Spark would take the flushes out before they have moved the watermark.
            found = [tuple(each) for each in self._collected(rows, mode, "append") if each.user != FLUSH]
            return {"windows": len(found), "windows_digest": digest_windows(found)}
        if row == "filter":
            cents = fn.sum(fn.round(fn.col("amount") * 100).cast("bigint"))
            ((passing, total),) = self._collected(made.agg(fn.count("*"), cents), mode, "complete")
            return {"passing": passing, "passing_cents": total}
        sums = made.agg(fn.count("*"), fn.sum(fn.length("value")))
        ((records, size),) = self._collected(sums, mode, "complete")
        return {"records": records, "value_bytes": size}

    def copy(self, mode: str, bootstrap: str, topic: str, sink: str) -> dict[str, Any]:
        """All there is in one topic into another."""
        made = self.raw(mode == "stream", bootstrap, topic).select("key", "value")
        started = time.perf_counter()
        if mode == "batch":
            self.to_topic(made.write, bootstrap, sink).mode("append").save()
        else:
            self._to_the_end(self.to_topic(made.writeStream, bootstrap, sink))
        return {"seconds": time.perf_counter() - started}

    # --- orders: unbounded

    def start_copy(self, bootstrap: str, topic: str, sink: str) -> dict[str, Any]:
        """Have a topic copied until `stop`; returns when the first batch has been through."""
        made = self.raw(True, bootstrap, topic).select("key", "value")
        return self._start(self.triggered(self.to_topic(made.writeStream, bootstrap, sink)))

    def start_filter(self, bootstrap: str, topic: str) -> dict[str, Any]:
        """Have a topic filtered into nothing until `stop`."""
        return self._start(self._made("filter", True, bootstrap, topic).writeStream.format("noop"))

    def batches(self, least: int, skipped: int) -> dict[str, Any]:
        """Wait until the running query has had so many batches with input; how long each took, from `skipped` on."""
        query = self._running
        assert query is not None
        durations: dict[int, dict[str, int]] = {}
        deadline = time.monotonic() + _RUNNING_TIMEOUT_S
        while len(durations) < least + skipped:
            self._check(query, deadline)
            time.sleep(0.5)
            for progress in query.recentProgress:
                if progress.numInputRows:
                    durations[progress.batchId] = dict(progress.durationMs)
        return {"durations": [durations[each] for each in sorted(durations)][skipped:]}

    def stop(self) -> dict[str, Any]:
        query, self._running = self._running, None
        if query is not None:
            query.stop()
        return {}

    # --- how

    def session(self) -> SparkSession:
        raise NotImplementedError

    def raw(self, stream: bool, bootstrap: str, topic: str) -> DataFrame:
        raise NotImplementedError

    def events(self, stream: bool, bootstrap: str, topic: str) -> DataFrame:
        raise NotImplementedError

    def to_topic(self, writer: Any, bootstrap: str, topic: str) -> Any:
        raise NotImplementedError

    def triggered(self, writer: DataStreamWriter) -> DataStreamWriter:
        """As soon as the batch before is done."""
        return writer

    def reader(self, stream: bool) -> Any:
        return self.spark.readStream if stream else self.spark.read

    def _made(self, row: str, stream: bool, bootstrap: str, topic: str) -> DataFrame:
        if row == "raw":
            return self.raw(stream, bootstrap, topic)
        events = self.events(stream, bootstrap, topic)
        time_ = fn.timestamp_millis("ts").alias("time")
        if row == "filter":
            passing = events.where((fn.col("event") == WANTED_EVENT) & (fn.col("amount") > LEAST_AMOUNT))
            return passing.select("id", "user", "amount", (fn.col("amount") * 1.25).alias("gross"), time_)
        timed = events.select("user", time_).withWatermark("time", _LATENESS)
        return timed.groupBy(fn.window("time", f"{WINDOW_S} seconds"), "user").count()

    def _to_the_end(self, writer: DataStreamWriter) -> StreamingQuery:
        query = writer.option("checkpointLocation", self._checkpoint()).trigger(availableNow=True).start()
        query.awaitTermination()
        return query

    def _collected(self, made: DataFrame, mode: str, output_mode: str) -> list[Any]:
        if mode == "batch":
            return made.collect()
        name = f"verified_{next(self._numbers)}"
        self._to_the_end(made.writeStream.format("memory").queryName(name).outputMode(output_mode))
        found = self.spark.table(name).collect()
        self.spark.catalog.dropTempView(name)
        return found

    def _start(self, writer: DataStreamWriter) -> dict[str, Any]:
        self._running = query = writer.option("checkpointLocation", self._checkpoint()).start()
        deadline = time.monotonic() + _RUNNING_TIMEOUT_S
        while not self._has_begun(query):
            self._check(query, deadline)
            time.sleep(0.05)
        return {}

    def _has_begun(self, query: StreamingQuery) -> bool:
        return bool(query.recentProgress)

    def _check(self, query: StreamingQuery, deadline: float) -> None:
        if (error := query.exception()) is not None:
            raise error
        if time.monotonic() > deadline:
            raise TimeoutError(f"the query has not come so far: {query.status}")

    def _checkpoint(self) -> str:
        return str(self._folder / f"checkpoint-{next(self._numbers)}")


class PlainSpark(Spark):
    """As Spark comes, with its own connector."""

    settings: Mapping[str, str] = MappingProxyType({})

    def session(self) -> SparkSession:
        jars = ",".join(str(each) for each in sorted(jars_of("spark").glob("*.jar")))
        builder = SparkSession.builder.appName("bench").master(MASTER).config("spark.jars", jars)
        for name, value in self.settings.items():
            builder = builder.config(name, value)
        return builder.getOrCreate()

    def raw(self, stream: bool, bootstrap: str, topic: str) -> DataFrame:
        reader = self.reader(stream).format("kafka").option("kafka.bootstrap.servers", bootstrap)
        return reader.option("subscribe", topic).option("startingOffsets", "earliest").load()

    def events(self, stream: bool, bootstrap: str, topic: str) -> DataFrame:
        value = fn.col("value").cast("string")
        return self.raw(stream, bootstrap, topic).select(fn.from_json(value, SCHEMA).alias("event")).select("event.*")

    def to_topic(self, writer: Any, bootstrap: str, topic: str) -> Any:
        writer = writer.format("kafka").option("kafka.bootstrap.servers", bootstrap)
        return writer.option("kafka.compression.type", COMPRESSION).option("topic", topic)


class TwoPartitionSpark(PlainSpark):
    """As Spark comes but for the one setting that everybody changes on a small machine: its 200 shuffle partitions."""

    settings = MappingProxyType({"spark.sql.shuffle.partitions": "2"})


class RealTimeSpark(PlainSpark):
    """Spark's own connector in real-time mode, which needs a free slot for each partition."""

    def triggered(self, writer: DataStreamWriter) -> DataStreamWriter:
        return writer.outputMode("update").trigger(realTime="5 seconds")


class Headrace(Spark):
    """Our session, source and sink."""

    def session(self) -> SparkSession:
        from headrace.pipelines import session

        return session("bench", master=MASTER)

    def raw(self, stream: bool, bootstrap: str, topic: str) -> DataFrame:
        return self._reader(stream, bootstrap, topic).option("format", "raw").load()

    def events(self, stream: bool, bootstrap: str, topic: str) -> DataFrame:
        return self._reader(stream, bootstrap, topic).option("format", "json").schema(SCHEMA).load()

    def to_topic(self, writer: Any, bootstrap: str, topic: str) -> Any:
        writer = writer.format("headrace").option("bootstrap", bootstrap)
        return writer.option("compression", COMPRESSION).option("topic", topic)

    def _reader(self, stream: bool, bootstrap: str, topic: str) -> Any:
        reader = self.reader(stream).format("headrace").option("bootstrap", bootstrap)
        return reader.option("subscribe", topic).option("startingOffsets", "earliest")
