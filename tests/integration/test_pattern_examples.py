"""The examples of patterns as jobs: on Spark they find what the plain matcher does, no more and no less."""

import json
import os
import runpy
import subprocess
from pathlib import Path

import pytest

from headrace import Broker
from headrace.client.address import parse_bootstrap
from headrace.client.cluster import Cluster
from headrace.client.offsets import Start, StartKind, find_stretch
from headrace.client.reader import read_records
from headrace.dashboard.reports import with_batches
from headrace.status import PROGRESS
from tests.integration.cli_runs import COMMAND, run_cli
from tests.reading import wait_for_markers

pytestmark = pytest.mark.java
FOLDER = Path(__file__).parents[2] / "examples" / "patterns"
TOPICS = {
    "payments": "card_fraud", "trades": "trade_surveillance", "machines": "machinery", "audit": "intrusion",
}  # fmt: skip


def matches(bootstrap, topic):
    wait_for_markers(bootstrap, topic)
    run = run_cli("tail", topic, "--no-follow", "--committed", "--json", bootstrap=bootstrap)
    return sorted((json.loads(one["value"]) for one in run.json_lines), key=json.dumps)


def places(rows):
    return [row["at"] for row in rows]


def found_frauds(bootstrap):
    found = matches(bootstrap, "card-frauds")
    assert sorted((one["pattern"], one["card"]) for one in found) == [
        ("impossible travel", "c62"),
        ("small then large", "c07"),
    ]


def found_falls(bootstrap):
    (fall,) = matches(bootstrap, "price-falls")
    assert {name: fall[name] for name in ("symbol", "before", "lowest", "after", "falls", "sold")} == {
        "symbol": "SOYLENT", "before": 80, "lowest": 71, "after": 80.2, "falls": 4, "sold": 3600,
    }  # fmt: skip


def found_wash_trades(bootstrap):
    (wash,) = matches(bootstrap, "wash-trades")
    assert (wash["symbol"], places(wash["sale"]), places(wash["back"])) == ("ACME", [900_000], [930_000])


def found_heat(bootstrap):
    (hot,) = matches(bootstrap, "overheated")
    assert (hot["machine"], places(hot["reading3"])) == ("m03", [3_785_000])
    assert hot["match_time"].startswith("1970-01-01T01:03:35")


def found_intrusions(bootstrap):
    found = matches(bootstrap, "intrusions")
    assert [one["account"] for one in found] == ["u04", "u09"]
    assert [len(one["failure"]) >= 3 for one in found] == [True, True]


def assert_reported(bootstrap, jobs):
    """What the dashboard shows of the patterns, from what the jobs wrote about themselves."""
    with Cluster(parse_bootstrap(bootstrap)) as cluster:
        stretch = find_stretch(cluster, cluster.partitions(PROGRESS), Start(StartKind.EARLIEST))
        read = [one for group in read_records(cluster, stretch.starts, until=stretch.ends) for one in group]
    reports = {job: history[-1] for (job, _), history in with_batches({}, read).items()}
    assert set(reports) == set(jobs)
    (price,) = reports["price-falls"].patterns
    assert (price.name, price.state, price.matches, price.dropped, price.partial) == ("", "running", 1, 0, 0)
    assert [box.title for box in price.diagram.boxes][1:] == [
        "top",
        "down 1",
        "down 2",
        "down 3",
        "up",
        "recovery",
        "match",
    ]
    assert reports["price-falls"].events_matched > 1_000


FOUND = {
    "card-frauds": found_frauds,
    "price-falls": found_falls,
    "wash-trades": found_wash_trades,
    "overheated": found_heat,
    "intrusions": found_intrusions,
}


@pytest.mark.parametrize(
    "jobs", [("price-falls",), pytest.param(tuple(FOUND), marks=pytest.mark.long)], ids=["one", "all"]
)
def test_jobs_find_what_is_planted(tmp_path, jobs):
    with Broker(tmp_path / "data", durability="os") as broker:
        bootstrap = broker.bootstrap_servers
        for topic, example in TOPICS.items():
            events = runpy.run_path(str(FOLDER / f"{example}.py"))["events"]()
            lines = "\n".join(json.dumps(event) for event in events)
            run_cli("topic", "create", topic, "--partitions", 1, bootstrap=bootstrap)
            assert run_cli("produce", topic, stdin=lines, bootstrap=bootstrap).code == 0
        for job in FOUND:
            run_cli("topic", "create", job, bootstrap=bootstrap)
        only = [word for job in jobs for word in ("--job", job)]
        done = subprocess.run(
            [*COMMAND, "pipeline", "run", FOLDER / "pattern_jobs.py", *only, "--trigger", "available-now", "--drain",
             "--bootstrap", bootstrap, "--state-dir", tmp_path / "state", "--conf", "spark.sql.shuffle.partitions=2"],
            capture_output=True, text=True, timeout=400, cwd=tmp_path, env={**os.environ},
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
        for job in jobs:
            FOUND[job](bootstrap)
        assert_reported(bootstrap, jobs)
