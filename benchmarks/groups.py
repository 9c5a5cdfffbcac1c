"""`group_changes` against the same question asked of a window: counts and different values of a thousand groups.

    python benchmarks/groups.py [--sizes 50000,150000,450000] [--batch 50000] [--rounds 3]

Events of a file stream, so that what is measured is the operators. The sides alternate within a round, and the figure
is the median of events a second; the ratio is of `group_changes` to the window on keyed state.
"""

import argparse
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession

from harness import OURS, Figure, keep
from headrace.pipelines import session
from headrace.pipelines.operators import aggregates as agg
from headrace.pipelines.operators import appended, event_time, group_changes, hopping, tumbling

AGGREGATES: dict[str, Any] = {"n": agg.count(), "total": agg.sum("price"), "bidders": agg.count_distinct("bidder")}
SHAPE = "auction long, bidder long, price long, at timestamp"


def written(folder: Path, size: int, batch: int) -> Path:
    """Files of a batch each: a thousand auctions, bidders of whom few bid often, a second for a thousand events."""
    random = np.random.default_rng(size)
    folder.mkdir(parents=True)
    for number, first in enumerate(range(0, size, batch)):
        count = min(batch, size - first)
        at = 1_767_225_600_000_000 + (first + np.arange(count)) * 1000
        columns = {
            "auction": random.integers(0, 1000, count),
            "bidder": random.zipf(1.3, count) % 5000,
            "price": random.integers(1, 1000, count),
            "at": pa.array(at).view(pa.timestamp("us")).cast(pa.timestamp("us", "UTC")),
        }
        pq.write_table(pa.table(columns), folder / f"{number:05d}.parquet")
    return folder


def keyed(frame: DataFrame) -> DataFrame:
    """The window on keyed state, of ten minutes: a row is in one."""
    return frame.transform(event_time("at", delay="0 seconds")).transform(
        hopping("10 minutes", "10 minutes", by="auction", **AGGREGATES)
    )


def native(frame: DataFrame) -> DataFrame:
    """Spark's own window."""
    return frame.transform(event_time("at", delay="0 seconds")).transform(
        tumbling("10 minutes", by="auction", **AGGREGATES)
    )


def grouped(frame: DataFrame) -> DataFrame:
    """The groups, kept up to date with every micro-batch."""
    return frame.transform(appended()).transform(group_changes(by="auction", **AGGREGATES))


SIDES: dict[str, Callable[[DataFrame], DataFrame]] = {
    "group_changes": grouped, "window on keyed state": keyed, "Spark's own window": native
}  # fmt: skip


def measured(spark: SparkSession, source: Path, make: Callable[[DataFrame], DataFrame], size: int) -> float:
    """Events a second."""
    checkpoint = tempfile.mkdtemp(prefix="groups-")
    frame = spark.readStream.schema(SHAPE).option("maxFilesPerTrigger", 1).parquet(str(source))
    started = time.perf_counter()
    writer = make(frame).writeStream.format("noop").option("checkpointLocation", checkpoint)
    query = writer.trigger(availableNow=True).start()
    query.awaitTermination()
    seconds = time.perf_counter() - started
    shutil.rmtree(checkpoint)
    return size / seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", default="50000,150000,450000")
    parser.add_argument("--batch", type=int, default=50_000)
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    spark = session("bench-groups", master="local[2]")
    kept: list[Figure] = []
    with tempfile.TemporaryDirectory() as folder:
        for size in map(int, given.sizes.split(",")):
            source = written(Path(folder) / str(size), size, given.batch)
            for make in SIDES.values():  # warm
                measured(spark, source, make, size)
            found: dict[str, list[float]] = {name: [] for name in SIDES}
            for _ in range(given.rounds):
                for name, make in SIDES.items():
                    found[name].append(measured(spark, source, make, size))
            medians = {name: statistics.median(each) for name, each in found.items()}
            ratio = medians["group_changes"] / medians["window on keyed state"]
            shown = ", ".join(f"{name} {each / 1000:.1f} k/s" for name, each in medians.items())
            rounds = {
                OURS if name == "group_changes" else name: [rate / 1000 for rate in each]
                for name, each in found.items()
            }
            kept.append(Figure.of(f"group_changes with distinct counts, {size:,} events", "k events/s", rounds))
            print(f"{size} events: {shown}; ratio {ratio:.2f}", flush=True)
    spark.stop()
    keep("groups", kept, given.rounds)


if __name__ == "__main__":
    main()
