"""The start of Spark as a user sees it: what it is doing, step by step, no walls of others' words, and Ctrl-C."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from headrace import Broker
from headrace.client.address import parse_bootstrap
from headrace.client.admin import create_topic
from headrace.client.cluster import Cluster
from headrace.client.writer import NewRecord, Writer

pytestmark = pytest.mark.java

PIPELINE = """
from headrace.pipelines import job, topic
from headrace.pipelines.sink import sqlite

NUMBERS = topic("numbers", format="json", schema="n long")

@job(inputs={"numbers": NUMBERS}, outputs=topic("doubled"))
def doubled(numbers):
    return numbers.selectExpr("cast(n as string) AS key", "cast(n * 2 as string) AS value")

@job(inputs={"numbers": NUMBERS}, outputs=sqlite("t.sqlite", "sums", keys=["rest"]), mode="update")
def sums(numbers):
    return numbers.selectExpr("n % 3 AS rest", "n").groupBy("rest").sum("n").toDF("rest", "total")
"""
# Words of Spark, Py4J and Python that are for a log file.
FOREIGN = ("Traceback", "py4j", "BrokenPipe", "KeyboardInterrupt", "Exception in thread", "\tat org.apache")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, str]]:
    folder = tmp_path_factory.mktemp("start")
    (folder / "doubling.py").write_text(PIPELINE)
    with Broker(durability="os") as broker, Cluster(parse_bootstrap(broker.bootstrap_servers)) as cluster:
        for name in ("numbers", "doubled"):
            create_topic(cluster, name, partitions=2)
        writer = Writer(cluster, "numbers")
        for number in range(100):
            writer.add(NewRecord(None, json.dumps({"n": number}).encode(), 1_700_000_000_000))
        writer.flush()
        yield folder, broker.bootstrap_servers


def started(folder: tuple[Path, str], *arguments: str) -> subprocess.Popen[str]:
    environment = os.environ | {"HEADRACE_BOOTSTRAP": folder[1], "HEADRACE_SPARK_MASTER": "local[2]"}
    return subprocess.Popen(
        [sys.executable, "-m", "headrace.cli.main", "pipeline", "run", "doubling.py", *arguments],
        cwd=folder[0], env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        start_new_session=True,
    )  # fmt: skip


def assert_ours(err: str) -> None:
    assert not [line for line in err.splitlines() for word in FOREIGN if word in line], err


def test_each_step_is_a_line_where_there_is_no_terminal(folder: tuple[Path, str]) -> None:
    run = started(folder, "--trigger", "available-now", "--conf", "spark.hadoop.headrace.test=" + "x" * 200)
    out, err = run.communicate(timeout=240)
    assert (run.returncode, out) == (0, ""), err
    lines = err.splitlines()
    places = [
        next(number for number, line in enumerate(lines) if line.startswith(beginning))
        for beginning in ("spark: starting the JVM (Java ", "spark: starting Spark on local[2]", "spark is ready after")
    ]
    assert places == sorted(places)
    for job in ("doubled", "sums"):
        steps = [line for line in lines if line.startswith(f"{job}: ")]
        assert steps[0] == f"{job}: reading the schemas of its sources"
        assert not any(before == after for before, after in pairwise(steps)), err
    batches = [line for line in lines if line.startswith("job ") and "batch 0" in line]
    assert len(batches) == 2
    assert all(" late " in line for line in batches), "a line was wrapped"
    assert_ours(err)


MOMENTS = ["spark: starting the JVM", pytest.param("spark: starting Spark", marks=pytest.mark.long), "doubled: "]


@pytest.mark.parametrize("moment", MOMENTS)
def test_ctrl_c_during_the_start_ends_without_a_word_of_others(folder: tuple[Path, str], moment: str) -> None:
    run = started(folder)
    assert run.stderr is not None
    seen = ""
    while moment not in seen:
        line = run.stderr.readline()
        assert line, seen
        seen += line
    os.killpg(run.pid, signal.SIGINT)
    if moment == "doubled: ":
        os.killpg(run.pid, signal.SIGINT)
    out, err = run.communicate(timeout=120)
    assert run.returncode in (130, 0), seen + err
    assert out == ""
    assert_ours(seen + err)


def test_output_into_a_pipe_that_closes(folder: tuple[Path, str]) -> None:
    run = started(folder, "--trigger", "available-now", "--json")
    assert run.stdout is not None
    assert run.stdout.readline() == '{"event": "starts on local[2] for doubled, sums", "job": "spark"}\n'
    run.stdout.close()
    assert run.stderr is not None
    with run.stderr as stream:
        err = stream.read()
    assert run.wait(timeout=240) == 0, err
    assert_ours(err)
