"""Nexmark's queries, as a user writes them, against DuckDB: on few events, on many, and through kills.

`NEXMARK_KILLS=20 pytest -m long tests/integration/test_nexmark.py` kills more often.
"""

import ast
import json
import os
import random
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FOLDER = Path(__file__).parents[2] / "examples" / "nexmark"
QUERIES = [f"q{number}" for number in range(23)]
# What every run of the tests asks: each operator is in one of them. The others are variations, run with those that are
# long: hopping and first rows; joins of tables, their last and first rows, groups of them; first events of tumbling
# windows; joins of windows; sessions; the clock's windows; a function in Python; groups with conditions and distinct.
KINDS = {"q5", "q6", "q7", "q8", "q11", "q12", "q14", "q16"}
EVENTS, BATCH = 2000, 1000
# How many lines the SELECT of each query has in the public suite's Flink SQL, without the table that it goes to.
FLINK_LINES = [2, 8, 2, 7, 11, 31, 14, 11, 19, 11, 3, 8, 9, 10, 15, 17, 19, 14, 5, 4, 7, 12, 5]


@pytest.fixture(scope="module")
def nexmark() -> Iterator[dict[str, Any]]:
    """The example's modules, which import each other as scripts in one folder do."""
    sys.path.insert(0, str(FOLDER))
    try:
        import answers
        import events
        import run
    finally:
        sys.path.remove(str(FOLDER))
    yield {"answers": answers, "events": events, "run": run}
    for name in ("answers", "events", "run"):
        del sys.modules[name]


def test_every_query_is_shorter_than_its_sql() -> None:
    functions = {node.name: node for node in ast.parse((FOLDER / "queries.py").read_text()).body
                 if isinstance(node, ast.FunctionDef)}  # fmt: skip
    for query, lines in zip(QUERIES, FLINK_LINES, strict=True):
        _, first, *_ = functions[query].body  # behind the docstring
        assert (functions[query].end_lineno or 0) - first.lineno + 1 <= lines, query


def test_events_are_the_same_every_time_and_late_by_less_than_the_delay(nexmark: dict[str, Any]) -> None:
    events = nexmark["events"]
    made = events.events(EVENTS)
    assert made == events.events(EVENTS)
    assert [event.arrives_ms for event in made] == sorted(event.arrives_ms for event in made)
    assert {topic: sum(event.topic == topic for event in made) for topic in events.TOPICS} == {
        "persons": EVENTS // 50,
        "auctions": EVENTS // 50 * 3,
        "bids": EVENTS // 50 * 46,
    }
    times = [event.row["date_time"] for event in made]
    assert len(set(times)) == EVENTS, "each has a time of its own"
    assert times != sorted(times), "not in order"


@pytest.fixture(scope="module")
def house(nexmark: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    folder = tmp_path_factory.mktemp("nexmark")
    made = nexmark["events"].events(EVENTS)
    with nexmark["run"].house(folder, made, BATCH) as bootstrap:
        from headrace.pipelines.jobs.load import load

        jobs = {job.name: job for job in load(FOLDER / "queries.py")}
        assert list(jobs) == QUERIES
        oracle = nexmark["answers"].Oracle(made, folder / "results")
        yield {"folder": folder, "bootstrap": bootstrap, "jobs": jobs, "oracle": oracle}


@pytest.mark.java
@pytest.mark.filterwarnings("ignore:Cannot infer the eval type")  # PySpark, of a Python function with type hints
@pytest.mark.parametrize(
    "query", [query if query in KINDS else pytest.param(query, marks=pytest.mark.long) for query in QUERIES]
)
def test_a_query_answers_as_duckdb_does(
    query: str, nexmark: dict[str, Any], house: dict[str, Any], spark: "SparkSession"
) -> None:
    run = nexmark["run"]
    run.run_job(spark, house["folder"], house["jobs"][query], house["bootstrap"])
    outcome = run.compared(house["oracle"], query)
    assert (outcome.wrong[:3], outcome.missing[:3]) == ([], [])
    assert outcome.rows > 0


@pytest.mark.java
@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.filterwarnings("ignore:Cannot infer the eval type")
@pytest.mark.parametrize("count", [50_000, 500_000])
def test_all_queries_on_many_events(count: int, nexmark: dict[str, Any], tmp_path: Path, spark: "SparkSession") -> None:
    outcomes = {outcome.query: str(outcome) for outcome in nexmark["run"].run(spark, tmp_path, count, count // 5)}
    assert outcomes == dict.fromkeys(QUERIES, "right")


@pytest.mark.java
@pytest.mark.long
@pytest.mark.timeout(3600)
def test_kills_change_no_answer(nexmark: dict[str, Any], tmp_path: Path) -> None:
    seed = int(os.environ.get("HEADRACE_SEED", random.randrange(1 << 32)))
    print(f"HEADRACE_SEED={seed}")  # shown when the test fails
    chance = random.Random(seed)
    made = nexmark["events"].events(20_000)
    with nexmark["run"].house(tmp_path, made, 3000) as bootstrap:
        command = [sys.executable, "-m", "headrace.cli.main", "pipeline", "run", str(FOLDER / "queries.py"), "--json"]
        command += ["--trigger", "available-now", "--drain", "--bootstrap", bootstrap, "--master", "local[2]"]
        command += ["--state-dir", str(tmp_path / "state")]
        kills = int(os.environ.get("NEXMARK_KILLS", "3"))
        for attempt in range(kills + 1):
            with subprocess.Popen(
                command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
            ) as running:
                assert running.stdout is not None
                batches, last = 0, chance.randrange(5, 60) if attempt < kills else sys.maxsize
                for line in running.stdout:
                    batches += "batch" in json.loads(line)
                    if batches >= last:
                        os.killpg(running.pid, signal.SIGKILL)
                        break
                _, errors = running.communicate()
                assert running.returncode in (-signal.SIGKILL, 0), errors
        assert running.returncode == 0
        oracle = nexmark["answers"].Oracle(made, tmp_path / "results")
        outcomes = {query: str(nexmark["run"].compared(oracle, query)) for query in QUERIES}
    assert outcomes == dict.fromkeys(QUERIES, "right")
