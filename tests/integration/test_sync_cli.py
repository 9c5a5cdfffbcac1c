"""`headrace sync`: what it prints, and its exit codes."""

import json
import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from headrace import Broker
from headrace.cli.main import cli
from headrace.errors import HeadraceError
from tests.integration.sync_topics import make_topic, upsert, write
from tests.integration.waiting import wait_until


@pytest.fixture
def bootstrap(tmp_path: Path) -> Iterator[str]:
    with Broker(tmp_path / "broker") as broker:
        make_topic(broker.bootstrap_servers, "orders")
        write(broker.bootstrap_servers, "orders", [upsert(key, {"n": key}) for key in range(10)])
        yield broker.bootstrap_servers


@pytest.fixture
def config(tmp_path: Path) -> Path:
    file = tmp_path / "headrace.toml"
    target = json.dumps(str(tmp_path / "target.sqlite"))
    file.write_text(f'[sync.table]\ntopic = "orders"\nsink = "sqlite"\npath = {target}\ntable = "orders"\n')
    return file


def _run(*arguments: str) -> Result:
    return CliRunner().invoke(cli, ["sync", *arguments])


def test_run_status_verify_rebuild(bootstrap: str, config: Path, tmp_path: Path) -> None:
    where = ("--config", str(config), "--bootstrap", bootstrap)
    found = _run("status", "--json", *where)
    (before,) = json.loads(found.output)
    assert (before["state"], before["lag_records"], found.exit_code) == ("never ran", 10, 1)
    nowhere = tmp_path / "nowhere.toml"
    nowhere.write_text(config.read_text().replace('"orders"', '"not-there"', 1))
    missing = _run("status", "--config", str(nowhere), "--bootstrap", bootstrap)
    assert ("no topic" in missing.output, missing.exit_code) == (
        True,
        1,
    )  # as with verify, which has nothing to compare
    program = "from headrace.cli.main import cli; cli()"
    process = subprocess.Popen([sys.executable, "-c", program, "sync", "run", *where], env={**os.environ})
    try:
        wait_until(lambda: json.loads(_run("status", "--json", *where).output)[0]["lag_records"] == 0, "it lags")
    finally:
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0
    status = _run("status", *where)
    assert "stopped" in status.output
    assert status.exit_code == 0

    equal = _run("verify", *where)
    assert (equal.exit_code, equal.output.startswith("table: equal to the log, 10 rows")) == (0, True)
    db = sqlite3.connect(tmp_path / "target.sqlite")
    db.execute("UPDATE orders SET n = -1 WHERE id < 3")
    db.commit()
    different = _run("verify", "--limit", "2", *where)
    assert different.exit_code == 1
    assert "3 rows differ" in different.output
    assert "and 1 more" in different.output
    (report,) = json.loads(_run("verify", "--json", *where).output)
    assert report["keys"][0] == {"key": "0", "kind": "different", "columns": ["n"]}
    assert json.loads(_run("status", "--json", *where).output)[0]["differences"] == 3

    rebuilt = _run("rebuild", "table", *where)
    assert rebuilt.stderr.splitlines()[0] == "rebuilding table from orders: 0 of 10 records (0%)"  # also in a pipe
    assert "10 of 10 records (100%)" in rebuilt.stderr.splitlines()[-1]
    assert rebuilt.stdout.startswith("rebuilt table from 10 records of orders in ")
    assert rebuilt.stdout.endswith(f"and switched to it: sqlite orders in {tmp_path / 'target.sqlite'}\n")
    assert db.execute("SELECT sum(n) FROM orders").fetchone() == (45,)
    db.close()
    (after,) = json.loads(_run("status", "--json", *where).output)
    assert (after["differences"], after["verified_ms"]) == (None, None)  # what was compared was the old target
    assert _run("verify", *where).exit_code == 0


def test_the_group_of_a_derived_system_names_it_and_cannot_be_moved(bootstrap: str, config: Path) -> None:
    where = ("--config", str(config), "--bootstrap", bootstrap)
    name = "headrace-sync.table"

    def group(*arguments: str) -> Result:
        return CliRunner().invoke(cli, ["group", *arguments, "--bootstrap", bootstrap])

    program = "from headrace.cli.main import cli; cli()"
    process = subprocess.Popen([sys.executable, "-c", program, "sync", "run", *where], env={**os.environ})
    try:
        wait_until(lambda: json.loads(_run("status", "--json", *where).output)[0]["lag_records"] == 0, "it lags")
        (listed,) = json.loads(group("list", "--json").output)
        assert (listed["group"], listed["state"]) == (name, "Empty")
        assert listed["owner"] == {"part": "sync.table", "state": "running"}
        assert "sync.table running" in group("list").output
        assert "no members: sync.table running reads without them" in group("describe", name).output
        assert json.loads(group("describe", name, "--json").output)["owner"]["part"] == "sync.table"
        moved = group("reset", name, "--all-topics", "--to", "earliest", "--yes")
        assert isinstance(moved.exception, HeadraceError)
        assert "headrace sync rebuild table" in str(moved.exception)
        deleted = group("delete", name, "--yes")
        assert "belongs to sync.table, which is running: stop it first" in str(deleted.exception)
    finally:
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0
    assert group("delete", name, "--yes").exit_code == 0


def test_a_broker_that_lost_its_data_is_told_of_and_rebuilt_from(config: Path, tmp_path: Path) -> None:
    """The everyday `rm -rf .headrace && headrace up`: the same topic, shorter, and a target that is ahead of it."""
    for number, records in enumerate((10, 4)):
        with Broker(tmp_path / f"broker-{number}") as broker:
            where = ("--config", str(config), "--bootstrap", broker.bootstrap_servers)
            make_topic(broker.bootstrap_servers, "orders")
            write(broker.bootstrap_servers, "orders", [upsert(key, {"n": key}) for key in range(records)])
            if number == 0:
                assert _run("rebuild", "table", *where).exit_code == 0
                continue
            told = _run("verify", *where)
            assert told.exit_code == 1
            assert "table: not compared: topic 'orders' was deleted and made again" in told.output
            assert "headrace sync rebuild table" in told.output
            rebuilt = _run("rebuild", "table", *where)
            assert rebuilt.stdout.startswith("rebuilt table from 4 records of orders in ")
            assert _run("verify", *where).output.startswith("table: equal to the log, 4 rows")


def test_mistakes_are_one_sentence(config: Path, tmp_path: Path) -> None:
    for arguments in (["status", "--config", str(tmp_path / "none.toml")], ["verify", "x", "--config", str(config)]):
        error = _run(*arguments).exception
        assert isinstance(error, HeadraceError)
        assert "\n" not in str(error)
