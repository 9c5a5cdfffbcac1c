"""The engine under Spark: restarts, bucket counts, both clocks, and what the state reader shows."""

import os
import sys
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from headrace.pipelines.keyed.apply import keyed
from headrace.pipelines.keyed.inspect import keyed_counts, keyed_rows, keyed_sizes
from headrace.pipelines.keyed.operator import (
    NEVER,
    NOTHING,
    BadKey,
    Batch,
    Changes,
    Clock,
    Due,
    Keyed,
    Longs,
    Plan,
    State,
    Timers,
    Times,
    Values,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

COUNT = pa.schema([("n", pa.int64())])


def counted(batch: Batch, state: State) -> Keyed:
    """How many rows each key has had."""
    count: Longs = np.bincount(batch.key, minlength=batch.keys.num_rows).astype(np.int64)
    old = state.read("counts")
    count[old.key] += old.rows["n"].to_numpy()
    return Keyed(np.arange(len(count)), pa.record_batch([pa.array(count)], schema=COUNT))


@dataclass(frozen=True)
class Counting:
    """Counts, and emits the count of each key that has a row."""

    def plan(self, keys: pa.Schema, rows: pa.Schema) -> Plan:
        return Plan(COUNT, (Values("counts", COUNT),))

    def on_rows(self, batch: Batch, state: State, times: Times) -> Changes:
        now = counted(batch, state)
        return Changes(emit=now, put={"counts": now}, counts={"seen": len(batch)})

    def on_timers(self, due: Due, state: State, times: Times) -> Changes:
        return NOTHING


@dataclass(frozen=True)
class Quiet:
    """Emits a key's count when it has had no row for ten seconds of event time, and forgets it."""

    patience_us: int | None = None
    """How long on the wall it waits at most."""

    def plan(self, keys: pa.Schema, rows: pa.Schema) -> Plan:
        return Plan(COUNT, (Values("counts", COUNT),), Clock.EVENT if self.patience_us is None else Clock.WALL)

    def on_rows(self, batch: Batch, state: State, times: Times) -> Changes:
        now = counted(batch, state)
        latest = np.full(len(now), -(2**62), np.int64)
        held = state.timers(Clock.EVENT)
        np.maximum.at(latest, batch.key, batch.rows["time"].cast(pa.int64()).to_numpy() + 10_000_000)
        at_us = np.where(held < 2**62, np.maximum(latest, held), latest)
        wall = (
            None if self.patience_us is None else Timers(now.key, np.full(len(now), times.wall_us + self.patience_us))
        )
        return Changes(put={"counts": now}, event_timers=Timers(now.key, at_us), wall_timers=wall)

    def on_timers(self, due: Due, state: State, times: Times) -> Changes:
        everyone = np.arange(len(due))
        gone = Timers(everyone, np.full(len(due), NEVER))
        wall = None if self.patience_us is None else gone
        return Changes(emit=state.read("counts"), delete={"counts": everyone}, event_timers=gone, wall_timers=wall)


NAMES = [None, "a", "b", "c", "", "long name", "d", "e"]


class Fed:
    """A stream of files, one to a micro-batch, and the rows that come out."""

    def __init__(self, spark: "SparkSession", folder: Path, schema: str) -> None:
        self.spark = spark
        self.folder = folder
        self.schema = schema
        self.shape = to_arrow_schema(StructType.fromDDL(schema), timezone="UTC")
        self.given = 0
        (folder / "in").mkdir(parents=True)

    def give(self, *batches: list[tuple[Any, ...]]) -> None:
        for rows in batches:
            self.given += 1
            columns = [pa.array(values) for values in zip(*rows, strict=True)]
            part = self.folder / "part.parquet"
            pq.write_table(pa.table(columns, self.shape.names).cast(self.shape), part)
            part.rename(self.folder / "in" / f"{self.given:03}.parquet")

    def read(self) -> "DataFrame":
        reader = self.spark.readStream.schema(self.schema).option("maxFilesPerTrigger", 1).option("latestFirst", False)
        return reader.parquet(str(self.folder / "in"))

    def run(
        self, frame: "DataFrame", name: str, *, until: Callable[[int], bool] | None = None
    ) -> list[tuple[Any, ...]]:
        """All that is there now; what the run emitted. With `until`, which is told the batches that were read, it goes
        on till then, with a trigger of some time."""
        out: list[tuple[Any, ...]] = []
        writer = frame.writeStream.outputMode("append").option("checkpointLocation", self.checkpoint(name))
        query = writer.foreachBatch(lambda rows, _: out.extend(tuple(row) for row in rows.collect()))
        if until is None:
            running = query.trigger(availableNow=True).start()
            assert running.awaitTermination(120)
            return out
        running = query.trigger(processingTime="100 milliseconds").start()
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline and running.exception() is None:
            if until(sum(each["numInputRows"] > 0 for each in running.recentProgress)):
                break
            time.sleep(0.1)
        running.stop()
        assert running.exception() is None
        return out

    def checkpoint(self, name: str) -> str:
        return str(self.folder / f"checkpoint-{name}")


def rows_of(batch: int) -> list[tuple[Any, ...]]:
    return [(NAMES[(batch + step * step) % 8], float("nan") if step % 5 == 0 else -0.0, step) for step in range(60)]


def test_counts_go_on_after_a_restart_and_buckets_make_no_difference(spark: "SparkSession", tmp_path: Path) -> None:
    fed = Fed(spark, tmp_path, "name string, real double, n long")
    told: dict[int, list[Any]] = {1: [], 5: []}
    expected: Counter[tuple[Any, ...]] = Counter()
    for batches in ((1, 2), (3,)):
        fed.give(*(rows_of(batch) for batch in batches))
        expected.update((name, str(real + 0.0)) for batch in batches for name, real, _ in rows_of(batch))
        for buckets, out in told.items():
            operator = keyed(Counting(), by=["name", "real"], buckets=buckets)
            out += fed.run(fed.read().transform(operator), str(buckets))
    for buckets, out in told.items():
        last = {(name, str(real + 0.0)): n for name, real, n in sorted(out, key=lambda row: row[2])}
        assert last == dict(expected)
        held = keyed_rows(spark, fed.checkpoint(str(buckets)), "counts").collect()
        assert {(name, str(real)): n for name, real, n in held} == dict(expected)
        sizes = keyed_sizes(spark, fed.checkpoint(str(buckets))).where("table = 'counts'").collect()
        assert len(sizes) <= buckets
        assert sum(row["rows"] for row in sizes) >= len(expected)
        assert all(row["size_bytes"] > 0 for row in sizes)
        assert keyed_counts(spark, fed.checkpoint(str(buckets))).agg({"count": "sum"}).first()[0] == 180

    fed.give(rows_of(4))
    with pytest.raises(Exception, match="the stored state has 5 buckets and the query asks for 6"):
        fed.run(fed.read().transform(keyed(Counting(), by=["name", "real"], buckets=6)), "5")


@pytest.mark.skipif(sys.platform != "linux", reason="open files are counted in /proc")
def test_micro_batches_leave_no_socket_open(spark: "SparkSession", tmp_path: Path) -> None:
    fed = Fed(spark, tmp_path, "name string, real double, n long")
    counts = fed.read().transform(keyed(Counting(), by=["name", "real"], buckets=4))
    jvm: Any = spark._jvm
    pid = jvm.java.lang.ProcessHandle.current().pid()
    open_files = Path(f"/proc/{pid}/fd")

    def sockets() -> int:
        found = 0
        for file in open_files.iterdir():
            with suppress(OSError):  # closed meanwhile
                found += "socket:" in os.readlink(file)
        return found

    fed.give(rows_of(0))
    fed.run(counts, "sockets")  # starts the workers
    before = sockets()
    fed.give(*(rows_of(batch) for batch in range(12)))
    fed.run(counts, "sockets")
    tasks = 12 * int(spark.conf.get("spark.sql.shuffle.partitions") or 1)
    assert sockets() < before + tasks / 2


def at(*rows: tuple[str, float]) -> list[tuple[Any, ...]]:
    return [(name, datetime.fromtimestamp(second, UTC)) for name, second in rows]


def test_a_key_that_is_quiet_is_told_once(spark: "SparkSession", tmp_path: Path) -> None:
    fed = Fed(spark, tmp_path, "name string, time timestamp_ltz")
    told = fed.read().withWatermark("time", "0 seconds").transform(keyed(Quiet(), by=["name"], buckets=2))
    fed.give(at(("a", 100), ("b", 100)), at(("a", 105), ("b", 101)))
    assert fed.run(told, "quiet") == []
    # A row behind the watermark is not dropped: what it is worth is the operator's business.
    fed.give(at(("c", 50)), at(("z", 200)))
    assert sorted(fed.run(told, "quiet")) == [("a", 2), ("b", 2), ("c", 1)]
    assert fed.run(told, "quiet") == []
    left = keyed_rows(spark, fed.checkpoint("quiet"), "counts").collect()
    assert [tuple(row) for row in left] == [("z", 1)]


def test_timers_before_1970_and_to_the_millisecond(spark: "SparkSession", tmp_path: Path) -> None:
    fed = Fed(spark, tmp_path, "name string, time timestamp_ltz")
    told = fed.read().withWatermark("time", "0 seconds").transform(keyed(Quiet(), by=["name"], buckets=1))
    # The watermark is a millisecond before a timer, and then at it.
    fed.give(at(("old", -100), ("a", -10), ("b", -5)), at(("c", 4.999)))
    assert sorted(fed.run(told, "old")) == [("a", 1), ("old", 1)]
    fed.give(at(("c", 5)))
    assert fed.run(told, "old") == [("b", 1)]


def test_both_clocks_wake_in_one_query(spark: "SparkSession", tmp_path: Path) -> None:
    fed = Fed(spark, tmp_path, "name string, time timestamp_ltz")
    operator = keyed(Quiet(patience_us=300_000), by=["name"], buckets=2)
    told = fed.read().withWatermark("time", "0 seconds").transform(operator)
    fed.give(at(("a", 100)), at(("z", 200)))
    # Each once, by whichever clock is first: the watermark never comes to `z`, so that is by the wall.
    waited: list[float] = []

    def long_enough(batches: int) -> bool:
        waited.extend([time.monotonic()] if batches == 2 else [])
        return batches == 2 and waited[-1] - waited[0] > 3

    assert sorted(fed.run(told, "both", until=long_enough)) == [("a", 1), ("z", 1)]
    assert keyed_rows(spark, fed.checkpoint("both"), "counts").collect() == []


def test_an_available_now_run_does_not_wait_for_the_wall_clock(spark: "SparkSession", tmp_path: Path) -> None:
    fed = Fed(spark, tmp_path, "name string, time timestamp_ltz")
    operator = keyed(Quiet(patience_us=10**12), by=["name"], buckets=2)
    told = fed.read().withWatermark("time", "0 seconds").transform(operator)
    # What the last watermark has closed is told, and the rest is there for the next run.
    fed.give(at(("a", 100)), at(("b", 200)))
    assert fed.run(told, "now") == [("a", 1)]
    fed.give(at(("c", 300)))
    assert fed.run(told, "now") == [("b", 1)]


def test_a_key_that_is_not_there_is_refused(spark: "SparkSession") -> None:
    frame = spark.range(1)
    with pytest.raises(BadKey, match="did you mean 'id'"):
        frame.transform(keyed(Counting(), by=["idd"]))
