"""Nexmark from end to end: events are written, each query runs over them, and DuckDB says whether it is right.

python examples/nexmark/run.py [EVENTS [QUERY …]]
"""

import os
import sys
import tempfile
import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from answers import Oracle, Row
from events import Event, events, write
from pyspark.sql import SparkSession

from headrace import Broker
from headrace.pipelines import session
from headrace.pipelines.jobs.build import prepare
from headrace.pipelines.jobs.declare import Job
from headrace.pipelines.jobs.load import load
from headrace.pipelines.jobs.place import open_place
from headrace.pipelines.jobs.run import Runner

QUERIES = Path(__file__).with_name("queries.py")


@dataclass(frozen=True)
class Outcome:
    """How a query fared: rows that its result should not have, and rows that are missing in it."""

    query: str
    seconds: float
    rows: int
    wrong: list[Row]
    missing: list[Row]

    def __str__(self) -> str:
        if not self.wrong and not self.missing:
            return "right"
        return f"{len(self.wrong)} rows wrong, {len(self.missing)} missing"


@contextmanager
def house(folder: Path, made: list[Event], batch: int) -> Iterator[str]:
    """A broker with the events in it, and queries told to read so many of them in a batch."""
    os.environ |= {"NEXMARK_RESULTS": str(folder / "results"), "NEXMARK_BATCH": str(batch)}
    with Broker(folder / "log", own_process=True) as broker:
        write(broker.bootstrap_servers, made)
        yield broker.bootstrap_servers


def run(spark: SparkSession, folder: Path, count: int, batch: int, only: Collection[str] = ()) -> Iterator[Outcome]:
    """Run queries over so many events, one after the other."""
    made = events(count)
    oracle = Oracle(made, folder / "results")
    with house(folder, made, batch) as bootstrap:
        for job in load(QUERIES, only):
            began = time.perf_counter()
            run_job(spark, folder, job, bootstrap)
            yield compared(oracle, job.name, time.perf_counter() - began)


def run_job(spark: SparkSession, folder: Path, job: Job, bootstrap: str) -> None:
    """Read what is there, and end with the last windows."""
    place = open_place(job, folder)
    ready = prepare(job, spark, place, bootstrap=bootstrap, trigger="available-now", drain=True)
    runner = Runner([ready], restarts=0, say=print)
    runner.begin()
    while runner.tend():
        runner.wait(0.05)


def compared(oracle: Oracle, query: str, seconds: float = 0.0) -> Outcome:
    """A result beside DuckDB's answer."""
    expected, found = oracle.expected(query), oracle.found(query)
    wrong, missing = (list(each.elements()) for each in (found - expected, expected - found))
    return Outcome(query, seconds, found.total(), wrong, missing)


def main() -> None:
    """Run all queries, or those that are named."""
    count, *only = sys.argv[1:] or ["50000"]
    right = True
    with tempfile.TemporaryDirectory(prefix="nexmark-") as folder:
        spark = session("nexmark", master="local[2]", state_dir=folder)
        for outcome in run(spark, Path(folder), int(count), int(os.environ.get("NEXMARK_BATCH", "20000")), only):
            speed = f"{int(count) / outcome.seconds:,.0f} events/s"
            print(f"{outcome.query:4} {outcome.rows:>8,} rows {speed:>20}  {outcome}", flush=True)
            right &= str(outcome) == "right"
        spark.stop()
    sys.exit(not right)


if __name__ == "__main__":
    main()
