"""`headrace pipeline`: run, watched, killed, reset and rebuilt, as a user does it.

What is killed or interrupted, and what must not find anything by chance, is a process of its own; all other commands
run here, in the session that all tests share, because Spark takes longer to start than they take.
"""

import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from headrace import Broker
from headrace.client.address import parse_bootstrap
from headrace.client.admin import create_topic
from headrace.client.cluster import Cluster
from headrace.client.fetch import FetchOptions
from headrace.client.offsets import bounds
from headrace.client.reader import read_records
from headrace.client.writer import NewRecord, Writer
from headrace.status import PIPELINES, read_statuses
from tests.integration.cli_runs import run_cli

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

    def produce(self, numbers: range, later_ms: int = 0) -> None:
        writer = Writer(self.cluster, "numbers")
        for number in numbers:
            writer.add(
                NewRecord(str(number).encode(), json.dumps({"n": number}).encode(), int(time.time() * 1000) + later_ms)
            )
        writer.flush()

    def started(self, *arguments: str) -> subprocess.Popen[str]:
        environment = os.environ | {"HEADRACE_SPARK_MASTER": "local[2]"}
        return subprocess.Popen(
            [sys.executable, "-m", "headrace.cli.main", "pipeline", *arguments],
            cwd=self.folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            start_new_session=True,
        )  # fmt: skip

    def run_apart(self, *arguments: str, code: int = 0) -> str:
        """In a process of its own."""
        done = self.started(*arguments)
        out, err = done.communicate(timeout=240)
        assert done.returncode == code, out + err
        return out if code == 0 else err

    def run(self, *arguments: str, code: int = 0) -> str:
        """In this process, in the session that all tests share."""
        done = run_cli("pipeline", *arguments)
        assert done.code == code, done.out + done.err
        return done.out if code == 0 else done.err

    def doubled(self, topic: str = "doubled") -> list[int]:
        held = bounds(self.cluster, self.cluster.partitions(topic))
        starts, ends = ({where: getattr(bound, end) for where, bound in held.items()} for end in ("start", "end"))
        return sorted(
            int(record.value or b"")
            for records in read_records(self.cluster, starts, until=ends, options=FetchOptions(committed=True))
            for _, record in records
        )

    def sums(self, table: str = "sums") -> dict[int, int]:
        with closing(sqlite3.connect(self.folder / "t.sqlite")) as db:
            return dict(db.execute(f"SELECT rest, total FROM {table}").fetchall())


@pytest.fixture
def place(
    tmp_path: Path, headrace_broker: Broker, shared_session: None, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Place]:
    made = Place(tmp_path, headrace_broker)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HEADRACE_BOOTSTRAP", made.servers)
    yield made
    made.cluster.close()


def expected_sums(count: int, factor: int = 1) -> dict[int, int]:
    return {rest: sum(range(rest, count, 3)) * factor for rest in range(3)}


def test_a_pipeline_from_start_to_rebuild(place: Place) -> None:
    place.produce(range(1000))
    listed = json.loads(place.run("list", "doubling.py", "--json"))
    assert [(job["job"], job["inputs"], job["trigger"]) for job in listed] == [
        ("doubled", {"numbers": "numbers"}, "100 ms"),
        ("sums", {"numbers": "numbers"}, "100 ms"),
    ]

    # Runs until killed; what was done stays done.
    running = place.started("run", "doubling.py", "--json")
    assert running.stdout is not None
    batches = 0
    while batches < 5:
        batches += "batch" in json.loads(running.stdout.readline())
    (status, _) = json.loads(place.run("status", "doubling.py", "--json"))
    assert status["running"] is True
    os.killpg(running.pid, signal.SIGKILL)
    running.communicate()

    # Goes on; a first Ctrl-C lets it finish. New numbers, so that each job has a batch to tell of.
    place.produce(range(1000, 1200))
    running = place.started("run", "doubling.py", "--json", "--metrics-port", "0")
    reports = read_until_caught_up(running)
    os.kill(running.pid, signal.SIGINT)
    _, err = running.communicate(timeout=120)
    assert running.returncode == 0, err
    assert place.doubled() == [2 * number for number in range(1200)]
    assert place.sums() == expected_sums(1200)
    assert {"job", "batch", "rows", "input_rate", "processing_rate", "lag_records", "lag_ms", "state_rows"} <= set(
        reports[-1]
    )
    assert any(report["state_rows"] == 3 for report in reports)
    assert "__headrace_progress" in [topic.name for topic in place.cluster.topics()]
    reported = read_statuses(place.cluster, PIPELINES)
    assert {name: status.state for name, status in reported.items()} == {"doubled": "stopped", "sums": "stopped"}

    statuses = json.loads(place.run("status", "doubling.py", "--json"))
    assert [(job["running"], job["version"], job["outputs"][0]["lag_records"]) for job in statuses] == [
        (False, 1, 0)
    ] * 2

    # A new version beside the old one, from the start of the input, and the switch.
    place.write_file(factor=10)
    place.run("rebuild", "doubling.py", "sums", "--json")
    assert place.sums() == expected_sums(1200, 10)
    assert place.sums("sums__v1") == expected_sums(1200)

    # One goes on in its new version; the other begins anew at the end: what lies before is left alone.
    place.produce(range(1200, 1300))
    out = place.run("reset", "doubling.py", "doubled", "--to", "latest", "--yes")
    assert "job doubled begins in numbers" in out
    place.produce(range(1300, 1310))
    place.run("run", "doubling.py", "--trigger", "available-now", "--json")
    assert place.sums() == expected_sums(1310, 10)
    assert place.doubled() == [2 * number for number in [*range(1200), *range(1300, 1310)]]


def read_until_caught_up(running: subprocess.Popen[str]) -> list[dict[str, Any]]:
    assert running.stdout is not None
    reports: list[dict[str, Any]] = []
    behind = {"doubled", "sums"}
    while behind:
        found = json.loads(running.stdout.readline())
        if "batch" in found:
            reports.append(found)
            if found["lag_records"] == 0:
                behind.discard(found["job"])
    return reports


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (("def doubled(numbers):", "def doubled(numbers:"), "doubling.py:8:"),
        (('topic("numbers"', 'topic("nubmers"'), "topic 'nubmers' does not exist"),
        (("n * 2 as", "m * 2 as"), "job 'doubled': [UNRESOLVED_COLUMN"),
        (("AS key", "AS kee"), "column 'kee' is not one that a record has"),
        (('outputs=topic("doubled")', 'outputs=topic("nowhere")'), "topic 'nowhere' does not exist"),
        (('format="json"', 'fromat="json"'), "did you mean 'format'?"),
    ],
)
@pytest.mark.parametrize("apart", [False, pytest.param(True, marks=pytest.mark.long)], ids=["here", "apart"])
def test_mistakes_are_one_sentence_before_anything_is_written(
    place: Place, change: tuple[str, str], said: str, apart: bool
) -> None:
    place.write_file(text=PIPELINE.replace(*change))
    run = place.run_apart if apart else place.run
    err = run("run", "doubling.py", "--job", "doubled", "--trigger", "available-now", code=1)
    last = err.strip().splitlines()[-1]
    assert last.startswith("headrace: ")
    assert said in last
    assert len(err) < 4000, "the sentence is to be found"
    assert not (place.folder / ".headrace" / "pipelines" / "doubled" / "job.json").exists()
    assert place.doubled() == []


def test_topics_are_waited_for_and_not_for_ever(place: Place) -> None:
    place.write_file(
        text=PIPELINE.replace('topic("numbers"', 'topic("late"').replace('topic("doubled"', 'topic("late-doubled"')
    )
    arguments = ("run", "doubling.py", "--job", "doubled", "--trigger", "available-now", "--wait-for-topics")
    err = place.run(*arguments, "1", code=1)
    assert "topic 'late' does not exist" in err.strip().splitlines()[-1]
    assert not (place.folder / ".headrace" / "pipelines" / "doubled" / "job.json").exists()

    process = place.started(*arguments, "120", "--json")
    assert process.stdout is not None
    events = [json.loads(process.stdout.readline())]
    while events[-1].get("waiting") != "for topic late":
        events.append(json.loads(process.stdout.readline()))
    create_topic(place.cluster, "late", partitions=1)
    while events[-1].get("waiting") != "for topic late-doubled":
        events.append(json.loads(process.stdout.readline()))
    writer = Writer(place.cluster, "late")
    writer.add(NewRecord(None, b'{"n": 21}', 1000))
    writer.flush()
    create_topic(place.cluster, "late-doubled", partitions=1)
    out, err = process.communicate(timeout=240)
    assert process.returncode == 0, err
    assert {"event": "has its topics", "job": "pipeline", "state": "running"} in map(json.loads, out.splitlines())
    assert place.doubled("late-doubled") == [42]


def test_who_waits_for_a_topic_can_be_told_to_end(place: Place) -> None:
    place.write_file(text=PIPELINE.replace('topic("numbers"', 'topic("never"'))
    process = place.started("run", "doubling.py", "--wait-for-topics", "600", "--json")
    assert process.stdout is not None
    while json.loads(process.stdout.readline()).get("waiting") != "for topic never":
        pass
    process.terminate()
    _, err = process.communicate(timeout=60)
    assert process.returncode == 0, err


def test_a_strangers_checkpoint_is_refused(place: Place) -> None:
    other = place.folder / ".headrace" / "pipelines" / "doubled"
    other.mkdir(parents=True)
    (other / "job.json").write_text(
        json.dumps({"name": "other", "inputs": {}, "outputs": [], "version": 1, "started": True, "format": 1})
    )
    err = place.run("run", "doubling.py", "--job", "doubled", code=1)
    assert "is the checkpoint of job 'other', not of 'doubled'" in err


FUNCTIONS = """
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import functions as F
from headrace.pipelines import job, topic
from headrace.pipelines.operators import aggregates as agg
from headrace.pipelines.operators import event_time, tumbling
from pricing import Rounding, twice
from shapes import circle

OFFSET = 1000
NUMBERS = topic("numbers", format="json", schema="n long, _timestamp timestamp")

@F.udf("long")
def shifted(n):
    return Rounding(10).down(n) + OFFSET

def plus_one(n):
    from later import one
    return n + one()

def through_arrow(batches):
    for batch in batches:
        column = pc.multiply(batch.column("n"), twice(1) * circle.SIDES)
        yield pa.RecordBatch.from_arrays([column], ["n"])

@job(inputs={"numbers": NUMBERS}, outputs=topic("doubled"), trigger="available-now")
def calculated(numbers):
    made = numbers.select("n").mapInArrow(through_arrow, "n long")
    plus = F.udf(plus_one, "long")
    return made.select(plus(shifted("n")).cast("string").alias("value"))

def largest(states):
    return pc.max(states)

@job(inputs={"numbers": NUMBERS}, outputs=topic("windows"), trigger="available-now")
def windows(numbers):
    own = agg.custom("n", state=pa.int64(), result=pa.int64(), lift=lambda ns: ns, merge=largest, finish=lambda ns: ns)
    timed = numbers.transform(event_time("_timestamp", delay="0 seconds"))
    return timed.transform(tumbling("1 second", most=own)).selectExpr("cast(most as string) value")
"""
HELPERS = {
    "pricing.py": "from dataclasses import dataclass\n\n@dataclass\nclass Rounding:\n    to: int\n\n"
    "    def down(self, n):\n        return n // self.to * self.to\n\ndef twice(n):\n    return 2 * n\n",
    "later.py": "def one():\n    return 1\n",
    "shapes/__init__.py": "",
    "shapes/circle.py": "SIDES = 1\n",
}


@pytest.mark.long
def test_functions_classes_and_helper_modules_work_on_workers(place: Place, tmp_path: Path) -> None:
    """Started from another folder than the file's, so that no worker finds anything by chance."""
    create_topic(place.cluster, "windows", partitions=1)
    (place.folder / "shapes").mkdir()
    for name, text in HELPERS.items():
        (place.folder / name).write_text(text)
    place.write_file(text=FUNCTIONS)
    place.produce(range(40))
    place.produce(range(40, 41), later_ms=10_000)  # lets the windows of the others end
    folder, place.folder = place.folder, tmp_path / "elsewhere"
    place.folder.mkdir()
    place.run_apart("run", str(folder / "doubling.py"), "--state-dir", str(tmp_path / "state"))
    assert place.doubled() == sorted(2 * n // 10 * 10 + 1001 for n in range(41))
    assert place.doubled("windows")[-1] == 39
    broken = FUNCTIONS.replace("from later import one\n    return n + one()", 'raise ValueError(f"bad price {n}")')
    (folder / "doubling.py").write_text(broken)
    place.produce(range(41, 42))
    options = ["--job", "calculated", "--state-dir", str(tmp_path / "state"), "--restarts", "0"]
    err = place.run_apart("run", str(folder / "doubling.py"), *options, code=1)
    line = broken[: broken.index("raise ValueError")].count("\n") + 1
    said = f"job 'calculated' failed: ValueError: bad price 1080 ({folder}/doubling.py:{line}, in plus_one)"
    assert err.strip().splitlines()[-1].endswith(said)
