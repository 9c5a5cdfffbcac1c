"""Real-time mode: a stateless job through Spark's own connector, and a plain sentence where Spark cannot do it."""

import json
import time
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from headrace import Broker
from headrace.client.address import parse_bootstrap
from headrace.client.admin import create_topic
from headrace.client.cluster import Cluster
from headrace.client.offsets import bounds
from headrace.client.reader import read_records
from headrace.client.writer import NewRecord, Writer
from headrace.pipelines import Job, job, topic
from headrace.pipelines.clusters import close_clusters
from headrace.pipelines.jobs.build import prepare
from headrace.pipelines.jobs.place import Place
from headrace.pipelines.jobs.run import GaveUp, Runner

pytestmark = pytest.mark.java

NUMBERS = topic("numbers", format="json", schema="n long")


@job(inputs={"numbers": NUMBERS}, outputs=topic("doubled"), trigger="real-time")
def doubled(numbers):
    return numbers.selectExpr("cast(n as string) AS key", "cast(n * 2 as string) AS value")


@job(inputs={"numbers": NUMBERS}, outputs=topic("doubled"), trigger="real-time")
def counted(numbers):
    return numbers.groupBy("n").count().selectExpr("cast(n as string) AS key", "cast(count as string) AS value")


def run(spark: SparkSession, which: Job, folder: Path, servers: str) -> Runner:
    return Runner([prepare(which, spark, Place(folder, 1), bootstrap=servers)], restarts=10, say=lambda *_: None)


def read(cluster: Cluster) -> list[int]:
    held = bounds(cluster, cluster.partitions("doubled"))
    starts, ends = ({where: getattr(bound, end) for where, bound in held.items()} for end in ("start", "end"))
    return sorted(
        int(record.value or b"") for records in read_records(cluster, starts, until=ends) for _, record in records
    )


def tend_to_the_end(runner: Runner) -> None:
    while runner.tend():
        time.sleep(0.05)


def test_records_come_through_at_once_and_what_cannot_be_is_told(spark: SparkSession, tmp_path: Path) -> None:
    with Broker(tmp_path / "broker") as broker, Cluster(parse_bootstrap(broker.bootstrap_servers)) as cluster:
        for name in ("numbers", "doubled"):
            create_topic(cluster, name, partitions=1)
        writer = Writer(cluster, "numbers")

        runner = run(spark, doubled, tmp_path / "doubled", broker.bootstrap_servers)
        runner.begin()
        try:
            for number in range(20):
                writer.add(NewRecord(None, json.dumps({"n": number}).encode(), int(time.time() * 1000)))
                writer.flush()
            deadline = time.monotonic() + 60
            while read(cluster) != [2 * number for number in range(20)]:
                assert runner.tend()
                assert time.monotonic() < deadline, read(cluster)
                time.sleep(0.05)
        finally:
            runner.drain()

        runner = run(spark, counted, tmp_path / "counted", broker.bootstrap_servers)
        runner.begin()
        said = r"test_pipeline_realtime.py:\d+: job 'counted' failed: real-time mode cannot run .*HashAggregateExec"
        with pytest.raises(GaveUp, match=said):
            tend_to_the_end(runner)
        close_clusters()
