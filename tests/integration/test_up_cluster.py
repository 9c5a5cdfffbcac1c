"""The same `headrace.toml` on a real Kafka and on a Spark standalone cluster: two keys differ."""

import contextlib
import re
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pyspark
import pytest

from headrace.client.address import parse_bootstrap
from headrace.client.cluster import Cluster
from headrace.client.fetch import FetchOptions
from headrace.client.offsets import bounds
from headrace.client.reader import read_records
from headrace.client.writer import NewRecord, Writer
from peers.process import Guarded
from tests.conformance.shared_kafka import shared_kafka
from tests.integration.running_stack import RunningStack
from tests.integration.waiting import wait_until

pytestmark = [pytest.mark.java, pytest.mark.long]

FILE = """
[broker]
port = 0

[topics.up-numbers]
partitions = 2
configs = { "retention.ms" = 3600000 }

[topics.up-doubled]

[spark]
master = "local[2]"

[pipelines.doubling]
file = "doubling.py"
"""
JOBS = """
from headrace.pipelines import job, topic

SMALL = {"spark.driver.memory": "512m", "spark.executor.memory": "512m", "spark.cores.max": 2}

@job(inputs={"numbers": topic("up-numbers", format="json", schema="n long")}, outputs=topic("up-doubled"), conf=SMALL)
def doubled(numbers):
    return numbers.selectExpr("cast(n as string) AS key", "cast(n * 2 as string) AS value")
"""
HERE = {"SPARK_LOCAL_IP": "127.0.0.1", "HEADRACE_SPARK_ARCHIVE": "0"}


@contextlib.contextmanager
def spark_cluster(folder: Path) -> Iterator[str]:
    """A master and a worker of Spark's own standalone cluster, from the pyspark that pip installed."""
    start = ["env", *(f"{name}={value}" for name, value in HERE.items()), "SPARK_DAEMON_MEMORY=256m"]
    start += [f"PYSPARK_PYTHON={sys.executable}", f"{pyspark.__path__[0]}/bin/spark-class"]
    nowhere = ["--host", "127.0.0.1", "--port", "0", "--webui-port", "0"]
    with contextlib.ExitStack() as ending:

        def started(name: str, *arguments: str, word: str) -> str:
            log = folder / f"{name}.log"
            log.touch()
            ending.callback(Guarded([*start, f"org.apache.spark.deploy.{name}", *nowhere, *arguments], output=log).kill)
            wait_until(lambda: bool(re.search(word, log.read_text())), f"Spark's {name} does not start: {log}")
            found = re.search(word, log.read_text())
            assert found is not None
            return found[0]

        master = started("master.Master", word=r"spark://127\.0\.0\.1:\d+")
        size = ["--cores", "2", "--memory", "1g", "--work-dir", str(folder / "work")]
        started("worker.Worker", *size, master, word="Successfully registered with master")
        yield master


@pytest.fixture
def stack(tmp_path: Path, run_folder: Path, kafka_jars: Path) -> Iterator[RunningStack]:
    (tmp_path / "doubling.py").write_text(JOBS)
    with shared_kafka(run_folder / "pipelines-kafka", {}) as bootstrap, spark_cluster(tmp_path) as master:
        text = FILE.replace("port = 0", f'bootstrap = "{bootstrap}"').replace("local[2]", master)
        made = RunningStack(tmp_path, text, HERE)
        yield made
        made.end(signal.SIGKILL)


def produce(cluster: Cluster, numbers: range) -> None:
    writer = Writer(cluster, "up-numbers")
    for number in numbers:
        writer.add(NewRecord(str(number).encode(), b'{"n": %d}' % number, int(time.time() * 1000)))
    writer.flush()


def doubled(cluster: Cluster) -> list[int]:
    held = bounds(cluster, cluster.partitions("up-doubled"), committed=True)
    starts, ends = ({where: getattr(bound, end) for where, bound in held.items()} for end in ("start", "end"))
    groups = read_records(cluster, starts, until=ends, options=FetchOptions(committed=True))
    return sorted(int(record.value or b"") for records in groups for _, record in records)


def test_two_keys_lead_to_a_kafka_and_to_a_cluster(stack: RunningStack) -> None:
    stack.start()
    stack.wait_until_fine()
    assert set(stack.members()) == {"topics", "pipelines.doubling"}
    with Cluster(parse_bootstrap(stack.state()["bootstrap"])) as cluster:
        produce(cluster, range(500))
        wait_until(
            lambda: doubled(cluster) == [2 * number for number in range(500)],
            f"not everything arrives: {stack.log.read_text()[-2000:]}",
            patience_s=60,
        )
    assert list((stack.folder / "work").glob("app-*/0"))  # it was an executor of the cluster that did it
    wait_until(lambda: stack.members()["pipelines.doubling"]["facts"] != {}, "the pipeline tells nothing")
    assert stack.run("status").returncode == 0
    assert stack.end() == 0
