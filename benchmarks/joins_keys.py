"""Joins over so many keys, from rows made in memory: how the cost of a change depends on how much state there is.

Each micro-batch has as many rows of one side as of the other. First each key has been there once, so that the state is
full; then each change replaces a row, which is taken back. Contenders: our operators, and the straightforward program,
a call for each key with `transformWithStateInPandas`, which gets fewer rows, for it does some hundred a second.
"""

import statistics
import time
from dataclasses import dataclass
from pathlib import Path

from pyspark import cloudpickle
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as fn

import joins_per_key
from headrace.pipelines.operators.tables.enrichment.enrich import enrich
from headrace.pipelines.operators.tables.form import TIME, VERSION, WEIGHT
from headrace.pipelines.operators.tables.joins.join import join_tables
from joins_events import SPAN_START_MS
from joins_per_key import AS_OF, AS_OF_OUTPUT, TABLES, TABLES_OUTPUT

BATCH_ROWS = 100_000  # of each side
PER_KEY_ROWS = 1_000
MEASURED = 8
_STRIDE = 7_919  # keys come in no order; prime to all sizes that are tens
_DELAY = "0 seconds"

cloudpickle.register_pickle_by_value(joins_per_key)  # Spark's workers do not have this folder on their path


@dataclass
class Keys:
    """A session, and a folder for the checkpoints of each run."""

    spark: SparkSession
    folder: Path
    measured: int = MEASURED
    runs: int = 0

    def ours(self, row: str, keys: int) -> float:
        """Changes a second, of both sides."""
        left, right = self._rows(BATCH_ROWS), self._rows(BATCH_ROWS)
        if row == "as-of":
            events = left.select(_key(keys).alias("k"), "timestamp", fn.col("value").alias("n"))
            events = events.withWatermark("timestamp", _DELAY)
            made = events.transform(enrich(_versions(right, keys), on="k", as_of="timestamp", delay=_DELAY))
        else:
            made = _table(left, keys, "l").transform(join_tables(_table(right, keys, "r"), on="k"))
        return self._run(made, keys, BATCH_ROWS)

    def per_key(self, row: str, keys: int) -> float:
        """Changes a second of a call for each key; its state is not filled before, which does it no harm."""
        sides = []
        for side in ("l", "r"):
            rows = self._rows(PER_KEY_ROWS)
            # Names with a low line in front do not get through to Python under this function.
            made = _table(rows, keys, side).drop(VERSION).withColumnsRenamed({TIME: "timestamp", WEIGHT: "weight"})
            if row == "as-of" and side == "l":
                made = rows.select(_key(keys).alias("k"), "timestamp", fn.lit(1).alias("weight"))
            sides.append(made.withColumn("is_left", fn.lit(side == "l")))
        both = sides[0].unionByName(sides[1], allowMissingColumns=True)
        processor, output, mode = TABLES, TABLES_OUTPUT, "none"
        if row == "as-of":
            both = both.withWatermark("timestamp", _DELAY)
            processor, output, mode = AS_OF, AS_OF_OUTPUT, "eventTime"
        told = both.groupBy("k").transformWithStateInPandas(processor(), output, "append", mode)
        return self._run(told, 0, PER_KEY_ROWS, measured=2)

    def _rows(self, rows: int) -> DataFrame:
        reader = self.spark.readStream.format("rate-micro-batch").option("numPartitions", 2)
        reader = reader.option("startTimestamp", SPAN_START_MS).option("advanceMillisPerBatch", 1000)
        # All rows of a batch have one time; here they are spread over the second until the next.
        at = fn.timestamp_millis(fn.unix_millis("timestamp") + fn.pmod(fn.col("value"), fn.lit(1000)))
        return reader.option("rowsPerBatch", rows).load().withColumn("timestamp", at)

    def _run(self, frame: DataFrame, keys: int, rows: int, *, measured: int | None = None) -> float:
        self.runs += 1
        filling = -(-keys // rows) + 2
        last = filling + (measured or self.measured)
        writer = frame.writeStream.format("noop").outputMode("append")
        query = writer.option("checkpointLocation", str(self.folder / str(self.runs))).start()
        try:
            while (query.lastProgress or {"batchId": -1})["batchId"] < last - 1:
                if not query.isActive:
                    raise RuntimeError(query.exception())
                time.sleep(0.05)
            done = [each for each in query.recentProgress if filling <= each["batchId"] < last and each["numInputRows"]]
        finally:
            query.stop()
        return statistics.median(each["numInputRows"] / each["durationMs"]["triggerExecution"] * 1000 for each in done)


def _key(keys: int) -> Column:
    return fn.pmod(fn.col("value") * _STRIDE, fn.lit(keys))


def _row(keys: int, side: str, turn: Column) -> list[Column]:
    """What a key's row says in a turn, beside the key."""
    number = (turn * 3 + _key(keys)).alias(f"{side}_number")
    return [number, fn.format_string("row %d", turn).alias(f"{side}_text")]


def _version(keys: int, side: str, turn: Column) -> Column:
    key = fn.format_string('{"k":%d}', _key(keys)).alias("key")
    none = fn.lit(None).cast("string").alias("lsn")
    return fn.struct(fn.lit(side).alias("table"), key, turn.alias("offset"), none).alias(VERSION)


def _turn(keys: int) -> Column:
    return fn.floor(fn.col("value") / keys)


def _table(rows: DataFrame, keys: int, side: str) -> DataFrame:
    """Change number n is of key n modulo all keys, and takes back what the turn before had said of it."""

    def row(turn: Column, weight: int) -> Column:
        about = (fn.lit(weight).alias(WEIGHT), _version(keys, side, turn), fn.col("timestamp").alias(TIME))
        return fn.struct(_key(keys).alias("k"), *_row(keys, side, turn), *about)

    turn = _turn(keys)
    changes = fn.array_compact(fn.array(fn.when(turn > 0, row(turn - 1, -1)), row(turn, 1)))
    return rows.select(fn.inline(changes))


def _versions(rows: DataFrame, keys: int) -> DataFrame:
    """The same changes as `row_versions` has them."""
    turn = _turn(keys)
    return rows.select(
        _key(keys).alias("k"),
        fn.struct(*_row(keys, "r", turn)).alias("row"),
        fn.lit(False).alias("gone"),
        fn.lit(0).alias("partition"),
        turn.alias("offset"),
        _version(keys, "r", turn),
        fn.col("timestamp").alias(TIME),
    )
