"""Functions, classes and helper modules of a pipeline's folder on a cluster: processes in other working directories."""

import os
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from headrace import Broker
from headrace.client.address import parse_bootstrap
from headrace.client.admin import create_topic
from headrace.client.cluster import Cluster
from headrace.client.fetch import FetchOptions
from headrace.client.offsets import bounds
from headrace.client.reader import read_records
from headrace.client.writer import NewRecord, Writer
from tests.integration.test_up_cluster import HERE, spark_cluster

pytestmark = [pytest.mark.java, pytest.mark.long]

FILES = {
    "sums.py": """
        from dataclasses import dataclass
        from functools import lru_cache

        import pyarrow as pa
        from pyspark.sql import functions as F

        import pricing
        from headrace.pipelines import job, topic
        from headrace.pipelines.operators import aggregates as agg
        from headrace.pipelines.operators import event_time, hopping
        from plain.inner import plus
        from shapes.round import SIDES

        SMALL = {"spark.driver.memory": "512m", "spark.executor.memory": "512m", "spark.cores.max": 2}
        SMALL |= {"spark.sql.shuffle.partitions": 2}
        NUMBERS = topic("numbers", format="json", schema="n long, at timestamp")
        RATE = 3

        @dataclass
        class Rate:
            times: int

        def rated(n):
            return Rate(RATE).times * n

        @lru_cache
        def cached(n):
            return n + 1

        @F.udf("long")
        def all_of_it(n):
            import later
            return later.one() + cached(plus(pricing.locked(rated(n)))) + SIDES

        def in_arrow(batches):
            for batch in batches:
                yield pa.record_batch([pa.array([str(rated(n)) for n in batch["value"].to_pylist()])], ["value"])

        def lifted(values):
            return pa.array([rated(value) for value in values.to_pylist()], pa.int64())

        def merged(states):
            return sum(states.to_pylist())

        @job(inputs={"numbers": NUMBERS}, outputs=topic("rows"), conf=SMALL)
        def rows(numbers):
            return numbers.select(all_of_it("n").cast("string").alias("value"))

        @job(inputs={"numbers": NUMBERS}, outputs=topic("arrow"), conf=SMALL)
        def arrow(numbers):
            return numbers.selectExpr("n AS value").mapInArrow(in_arrow, "value string")

        @job(inputs={"numbers": NUMBERS}, outputs=topic("windows"), conf=SMALL)
        def windows(numbers):
            total = agg.custom("n", state=pa.int64(), result=pa.int64(), lift=lifted, merge=merged, finish=lambda s: s)
            found = numbers.transform(event_time("at", delay="0 seconds")).transform(
                hopping("10 seconds", "10 seconds", total=total))
            return found.selectExpr("cast(total AS string) AS value")
        """,
    "pricing.py": """
        import threading
        from deeper import one

        LOCK = threading.Lock()

        def locked(n):
            with LOCK:
                return n + one()
        """,
    "deeper.py": "def one():\n    return 1\n",
    "later.py": "def one():\n    return 1\n",
    "shapes/__init__.py": "",
    "shapes/round.py": "SIDES = 100\n",
    "plain/inner.py": "def plus(n):\n    return n + 1\n",
}


def records(cluster: Cluster, topic: str) -> list[int]:
    held = bounds(cluster, cluster.partitions(topic))
    starts, ends = ({where: getattr(bound, end) for where, bound in held.items()} for end in ("start", "end"))
    groups = read_records(cluster, starts, until=ends, options=FetchOptions(committed=True))
    return sorted(int(record.value or b"") for records in groups for _, record in records)


def test_functions_of_a_pipelines_folder_work_on_a_cluster(tmp_path: Path) -> None:
    folder, elsewhere = tmp_path / "pipeline", tmp_path / "elsewhere"
    elsewhere.mkdir()
    for name, text in FILES.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(textwrap.dedent(text))
    with Broker(tmp_path / "log") as broker, Cluster(parse_bootstrap(broker.bootstrap_servers)) as cluster:
        for name in ("numbers", "rows", "arrow", "windows"):
            create_topic(cluster, name, partitions=2)
        writer = Writer(cluster, "numbers")
        for n in range(40):
            value = b'{"n": %d, "at": "2026-01-01T00:00:%02dZ"}' % (n, n)
            writer.add(NewRecord(str(n).encode(), value, int(time.time() * 1000)))
        writer.flush()
        with spark_cluster(tmp_path) as master:
            command = [sys.executable, "-m", "headrace.cli.main", "pipeline", "run", str(folder / "sums.py"), "--json"]
            command += ["--trigger", "available-now", "--restarts", "0", "--master", master]
            command += ["--bootstrap", broker.bootstrap_servers, "--state-dir", str(tmp_path / "state")]
            ran = subprocess.run(
                command, cwd=elsewhere, env=os.environ | HERE, capture_output=True, text=True, check=False, timeout=400
            )
            assert ran.returncode == 0, ran.stdout + ran.stderr
        assert list((tmp_path / "work").glob("app-*/0")), "no executor of the cluster did it"
        assert records(cluster, "rows") == [3 * n + 104 for n in range(40)]
        assert records(cluster, "arrow") == [3 * n for n in range(40)]
        assert records(cluster, "windows")[:3] == [3 * sum(range(10 * w, 10 * w + 10)) for w in range(3)]
