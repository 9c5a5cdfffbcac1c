"""A checkpoint that an earlier version wrote goes on: its files are read, and nothing is lost or emitted twice.

`old_checkpoints/joined.tar.gz` is the state folder of the job below after a first run over `FIRST`, by the version of
16 November 2026 on Spark 4.2.0. `python -m tests.integration.test_old_checkpoints` makes one with the code at hand.
"""

import json
import os
import subprocess
import sys
import tarfile
import tempfile
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

KEPT = Path(__file__).with_name("old_checkpoints") / "joined.tar.gz"
PIPELINE = """
from pyspark.sql import functions as fn
from headrace.pipelines import job, topic

def side(name):
    return topic(name, format="json", schema="k string, at timestamp", watermark=("at", "5 seconds"))

@job(inputs={"left": side("left"), "right": side("right")}, outputs=topic("joined"), trigger="available-now",
     conf={"spark.sql.shuffle.partitions": 1})
def joined(left, right):
    near = fn.expr("l.k = r.k AND r.at BETWEEN l.at AND l.at + INTERVAL 3 SECONDS")
    pairs = left.alias("l").join(right.alias("r"), near, "left")
    return pairs.selectExpr("l.k AS key", "concat_ws(' ', unix_seconds(l.at), unix_seconds(r.at)) AS value")
"""
# The left side is far behind the right: what it has waits for its own time to go on, also after the restart.
FIRST = {"left": [("a", 8), ("b", 10)], "right": [("a", 9), ("z", 200)]}
# The right side has no row any more, so it is known only from what was written down how far it is.
SECOND = {"left": [("c", 198), ("y", 100)]}


class Run:
    """A broker with the job's topics, and a folder with its file and its state."""

    def __init__(self, folder: Path, broker: Broker) -> None:
        self.folder, self.servers = folder, broker.bootstrap_servers
        self.cluster = Cluster(parse_bootstrap(self.servers))
        for name in ("left", "right", "joined"):
            create_topic(self.cluster, name, partitions=1)
        (folder / "joining.py").write_text(PIPELINE)

    def produce(self, rows: dict[str, list[tuple[str, int]]]) -> None:
        for topic, given in rows.items():
            writer = Writer(self.cluster, topic)
            for key, seconds in given:
                at = f"1970-01-01T00:{seconds // 60:02d}:{seconds % 60:02d}Z"
                writer.add(NewRecord(None, json.dumps({"k": key, "at": at}).encode(), seconds * 1000))
            writer.flush()

    def run(self) -> None:
        command = [sys.executable, "-m", "headrace.cli.main", "pipeline", "run", "joining.py", "--state-dir", "state"]
        environment = os.environ | {"HEADRACE_BOOTSTRAP": self.servers, "HEADRACE_SPARK_MASTER": "local[1]"}
        done = subprocess.run(command, cwd=self.folder, env=environment, capture_output=True, text=True, timeout=240)
        assert done.returncode == 0, done.stdout + done.stderr

    def joined(self) -> set[str]:
        held = bounds(self.cluster, self.cluster.partitions("joined"))
        starts, ends = ({where: getattr(bound, end) for where, bound in held.items()} for end in ("start", "end"))
        read = read_records(self.cluster, starts, until=ends, options=FetchOptions(committed=True))
        found = [f"{record.key.decode()} {record.value.decode()}" for records in read for _, record in records]
        assert len(found) == len(set(found)), found
        return set(found)

    def ids(self) -> dict[str, str]:
        return {topic: self.cluster.topic(topic).id_text for topic in ("left", "right")}


def test_a_join_goes_on_from_a_checkpoint_of_an_earlier_version(tmp_path: Path, headrace_broker: Broker) -> None:
    run = Run(tmp_path, headrace_broker)
    with tarfile.open(KEPT) as archive:
        archive.extractall(tmp_path, filter="data")
    was = json.loads((tmp_path / "ids.json").read_text())
    # The topics are made again for the test, and the checkpoint knows a topic by its id.
    for entry in (tmp_path / "state").rglob("offsets/*"):
        text = entry.read_text()
        for topic, id_ in run.ids().items():
            text = text.replace(was[topic], id_)
        entry.write_text(text)
    run.produce(FIRST)
    run.produce(SECOND)
    run.run()
    # "a 8 9" was written before; what waited at 8 and 10 for want of the left side's time comes out now.
    assert run.joined() == {"b 10", "y 100"}
    run.cluster.close()


def _make(folder: Path) -> None:
    with Broker(folder / "broker") as broker:
        run = Run(folder, broker)
        run.produce(FIRST)
        run.run()
        assert run.joined() == {"a 8 9"}
        (folder / "ids.json").write_text(json.dumps(run.ids()))
        KEPT.parent.mkdir(exist_ok=True)
        with tarfile.open(KEPT, "w:gz") as archive:
            for name in ("state", "ids.json"):
                archive.add(folder / name, name)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as made:
        _make(Path(made))
