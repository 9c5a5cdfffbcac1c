"""`headrace pipeline` as a user calls it, and what it says to mistakes."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
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

pytestmark = pytest.mark.java

PIPELINE = """
from headrace.pipelines import job, topic
from headrace.pipelines.sink import sqlite

NUMBERS = topic("numbers", format="json", schema="n long", maxRecordsPerTrigger=100)

@job(inputs={"numbers": NUMBERS}, outputs=topic("doubled"), trigger="100 ms")
def doubled(numbers):
    return numbers.selectExpr("cast(n as string) AS key", "cast(n * 2 as string) AS value")

@job(inputs={"numbers": NUMBERS}, outputs=sqlite("TABLE", "sums", keys=["rest"]), mode="update", trigger="100 ms")
def sums(numbers):
    return numbers.selectExpr("n % 3 AS rest", "n * FACTOR AS n").groupBy("rest").sum("n").toDF("rest", "total")
"""


class Place:
    """A folder with a pipeline file, a broker with its topics, and the command."""

    def __init__(self, folder: Path, broker: Broker) -> None:
        self.folder, self.servers = folder, broker.bootstrap_servers
        self.cluster = Cluster(parse_bootstrap(self.servers))
        for name in ("numbers", "doubled"):
            create_topic(self.cluster, name, partitions=2)
        self.write_file()

    def write_file(self, factor: int = 1, text: str = PIPELINE) -> None:
        made = text.replace("TABLE", str(self.folder / "t.sqlite")).replace("FACTOR", str(factor))
        (self.folder / "doubling.py").write_text(made)

    def produce(self, numbers: range) -> None:
        writer = Writer(self.cluster, "numbers")
        for number in numbers:
            writer.add(NewRecord(str(number).encode(), json.dumps({"n": number}).encode(), int(time.time() * 1000)))
        writer.flush()

    def started(self, *arguments: str) -> subprocess.Popen[str]:
        environment = os.environ | {"HEADRACE_BOOTSTRAP": self.servers, "HEADRACE_SPARK_MASTER": "local[2]"}
        return subprocess.Popen(
            [sys.executable, "-m", "headrace.cli.main", "pipeline", *arguments],
            cwd=self.folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            start_new_session=True,
        )  # fmt: skip

    def run(self, *arguments: str, code: int = 0) -> str:
        done = self.started(*arguments)
        out, err = done.communicate(timeout=240)
        assert done.returncode == code, out + err
        return out if code == 0 else err

    def doubled(self, topic: str = "doubled") -> list[int]:
        held = bounds(self.cluster, self.cluster.partitions(topic), committed=True)
        starts, ends = ({where: getattr(bound, end) for where, bound in held.items()} for end in ("start", "end"))
        return sorted(
            int(record.value or b"")
            for records in read_records(self.cluster, starts, until=ends, options=FetchOptions(committed=True))
            for _, record in records
        )


@pytest.fixture
def place(tmp_path: Path, headrace_broker: Broker) -> Iterator[Place]:
    made = Place(tmp_path, headrace_broker)
    yield made
    made.cluster.close()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (("def doubled(numbers):", "def doubled(numbers:"), "doubling.py:8:"),
        (('topic("numbers"', 'topic("nubmers"'), "topic 'nubmers' does not exist"),
        (("n * 2 as", "m * 2 as"), "job 'doubled': [UNRESOLVED_COLUMN"),
        (("AS key", "AS kee"), "column 'kee' is none that a record has"),
        (('outputs=topic("doubled")', 'outputs=topic("nowhere")'), "topic 'nowhere' does not exist"),
    ],
)
def test_mistakes_are_one_sentence_before_anything_is_written(place: Place, change: tuple[str, str], said: str) -> None:
    place.write_file(text=PIPELINE.replace(*change))
    err = place.run("run", "doubling.py", "--job", "doubled", "--trigger", "available-now", code=1)
    last = err.strip().splitlines()[-1]
    assert last.startswith("headrace: ")
    assert said in last
    assert not (place.folder / ".headrace" / "pipelines" / "doubled" / "job.json").exists()
    assert place.doubled() == []


def test_a_strangers_checkpoint_is_refused(place: Place) -> None:
    other = place.folder / ".headrace" / "pipelines" / "doubled"
    other.mkdir(parents=True)
    (other / "job.json").write_text(
        json.dumps({"name": "other", "inputs": {}, "outputs": [], "version": 1, "started": True, "format": 1})
    )
    err = place.run("run", "doubling.py", "--job", "doubled", code=1)
    assert "is the checkpoint of job 'other', not of 'doubled'" in err
