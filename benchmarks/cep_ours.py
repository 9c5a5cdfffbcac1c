"""Our sides: `match_pattern` on Spark, and the plain matcher."""

import os
import time
from pathlib import Path
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as fn

from cep_events import FACTORS, FLUSH, PRIME, QUESTIONS, SCHEMA, Events, as_found, number_of
from pipelines_spark import Headrace

_RECORDS_PER_BATCH = 500_000


class Ours(Headrace):
    """Our session, source and operator; matches go nowhere, and are counted."""

    def query(self, question: str, bootstrap: str, topic: str, keys: int, count: int) -> dict[str, Any]:  # type: ignore[override]
        """What Flink adds up in its sink, a query of ours observes."""
        made = self._numbered(question, bootstrap, topic, Events(keys, count).lateness_ms)
        counted = made.observe("found", fn.count(fn.lit(1)).alias("matches"), fn.sum("number").alias("checksum"))
        started = time.perf_counter()
        query = self._to_the_end(counted.writeStream.format("noop"))
        seconds = time.perf_counter() - started
        observed = [progress.observedMetrics["found"] for progress in query.recentProgress]
        found = as_found(sum(row.matches for row in observed), sum(row.checksum or 0 for row in observed))
        return {**found, "seconds": seconds, "batches": len(observed)}

    def _numbered(self, question: str, bootstrap: str, topic: str, lateness_ms: int) -> DataFrame:
        from headrace.pipelines.operators import event_time, match_pattern

        events = self.reader(True).format("headrace").option("bootstrap", bootstrap).option("subscribe", topic)
        events = events.option("startingOffsets", "earliest").option("maxRecordsPerTrigger", _RECORDS_PER_BATCH)
        rows = events.option("format", "json").schema(SCHEMA).load()
        timed = rows.select("id", "k", "x", fn.timestamp_millis("ts").alias("at"))
        timed = timed.transform(event_time("at", delay=f"{lateness_ms} milliseconds"))
        pattern = QUESTIONS[question].ours
        found = timed.transform(match_pattern(pattern, by="k")).where(f"k <> {FLUSH}")
        return found.select(_number(list(pattern.compile(bounded=True).variables)).alias("number"))


def _number(variables: list[str]) -> Column:
    """A match's share in the checksum, as `cep_events.number_of` has it."""
    ids = fn.concat(*(fn.col(f"{variable}.id") for variable in variables))
    parts = (fn.col("k"), fn.array_min(ids), fn.array_max(ids), fn.size(ids))
    total = sum((factor * part for factor, part in zip(FACTORS, parts, strict=True)), fn.lit(0))
    return fn.pow(total % PRIME, fn.lit(2)).cast("bigint")


class Plain:
    """The plain matcher, on one core."""

    def __init__(self, folder: Path) -> None:
        del folder
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})

    def plain(self, question: str, keys: int, count: int, file: str) -> dict[str, Any]:
        """Events from memory, in this process."""
        del file
        names = ("id", "k", "x", "ts")
        rows = [dict(zip(names, row, strict=True)) for row in Events(keys, count).rows()]
        pattern = QUESTIONS[question].ours
        started = time.perf_counter()
        found = pattern.matches(rows, key="k", time="ts", bounded=True)
        matches = [(match.key[0], [event.values["id"] for _, event in match.rows]) for match in found]
        seconds = time.perf_counter() - started
        return {**as_found(len(matches), sum(number_of(*match) for match in matches)), "seconds": seconds}

    def close(self) -> None:
        """There is nothing to end."""
