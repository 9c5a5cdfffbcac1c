"""What a person sees of derived systems: dead letters, waiting, comparisons, progress; by processes and commands."""

import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import duckdb
import pytest

from headrace import Broker
from headrace.cli.dashboard import language
from headrace.client.address import parse_bootstrap
from headrace.client.admin import create_topic
from headrace.client.writer import NewRecord
from headrace.dashboard.settings import Settings
from headrace.dashboard.watch import Watch
from tests.integration.cli_runs import Run, run_cli
from tests.integration.running_stack import RunningStack
from tests.integration.sync_topics import connect, envelope, key_of, make_topic, upsert, write
from tests.integration.waiting import wait_until

FILE = """
[sync.table]
topic = "orders"
sink = "sqlite"
path = "{folder}/table.sqlite"
table = "orders"

[sync.warehouse]
topic = "orders"
sink = "duckdb"
path = "{folder}/warehouse.duckdb"
table = "orders"

[sync.cache]
topic = "orders"
sink = "redis"
url = "redis://127.0.0.1:1/0"
prefix = "orders:"
"""


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with Broker(tmp_path_factory.mktemp("broker")) as made:
        yield made


class Folder:
    """A folder with a file, and the commands that are given there."""

    def __init__(self, folder: Path, bootstrap: str, text: str) -> None:
        self.folder, self.bootstrap = folder, bootstrap
        self.file = folder / "headrace.toml"
        self.file.write_text(text.format(folder=folder))

    def run(self, *arguments: str) -> Run:
        return run_cli("sync", *arguments, "--config", str(self.file), bootstrap=self.bootstrap)

    def status(self, name: str) -> dict[str, Any]:
        return self.run("status", name, "--json").json[0]

    @contextmanager
    def running(self, *names: str) -> Iterator[subprocess.Popen[str]]:
        log = (self.folder / "run.log").open("a")
        options = ["--config", str(self.file), "--bootstrap", self.bootstrap]
        process = subprocess.Popen(
            [sys.executable, "-m", "headrace.cli.main", "sync", "run", *names, *options],
            stdout=log, stderr=log, env={**os.environ}, text=True,
        )  # fmt: skip
        try:
            yield process
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(30)
            log.close()

    @property
    def said(self) -> list[str]:
        return (self.folder / "run.log").read_text().splitlines()


@pytest.fixture
def topic(broker: Broker, request: pytest.FixtureRequest) -> str:
    return request.node.name.removeprefix("test_")[:40]


@pytest.fixture
def folder(tmp_path: Path, broker: Broker, topic: str) -> Folder:
    text = FILE.replace('topic = "orders"', f'topic = "{topic}"')
    for name in ("table", "warehouse", "cache"):
        text = text.replace(f"[sync.{name}]", f"[sync.{name}-{topic}]")
    return Folder(tmp_path, broker.bootstrap_servers, text)


def _bad(key: int) -> NewRecord:
    return NewRecord(key_of(key), b"no json", 1)


def test_dead_letters_are_seen_wherever_somebody_looks(folder: Folder, broker: Broker, topic: str) -> None:
    make_topic(folder.bootstrap, topic)
    table, warehouse = f"table-{topic}", f"warehouse-{topic}"
    with sqlite3.connect(folder.folder / "table.sqlite") as db:  # one of the two cannot hold every value
        db.execute("CREATE TABLE orders (id INTEGER PRIMARY KEY, n INTEGER)")
    db.close()
    write(folder.bootstrap, topic, [upsert(1, {"n": 1}), _bad(2), _bad(3), upsert(4, {"n": "four"})])
    with folder.running(table, warehouse) as process:
        wait_until(lambda: folder.status(table)["dead_letters"] == 3, "they are not counted")
        wait_until(lambda: folder.status(warehouse)["dead_letters"] == 2, "those of the other are not counted")
        wait_until(lambda: any("3 records were set aside" in line for line in folder.said), "the run does not say it")
    assert process.returncode == 1
    assert any(f"headrace: {table}: 3 records were set aside as dead letters" in line for line in folder.said)

    shown = folder.run("status", table)
    assert shown.code == 1
    assert "(2 of them: the value is not valid JSON" in shown.out
    status = folder.status(table)
    assert sorted(status["dead_letter_reasons"].values()) == [1, 2]
    compared = folder.run("verify", table, warehouse)
    assert compared.code == 1
    assert f"{table}: 1 rows differ" in compared.out  # the log has a row that it could not take
    assert f"{warehouse}: equal to the log" in compared.out
    assert f"{warehouse}: 2 records were set aside" in compared.out
    (as_json, _) = folder.run("verify", table, warehouse, "--json").json
    assert (as_json["equal"], as_json["differences"], as_json["dead_letters"]) == (False, 1, 3)

    letters = folder.run("letters", table, "--json").json
    assert letters["topic"] == f"{topic}.dead-letters"
    assert {letter["key"] for letter in letters["letters"]} == {'{"id":2}', '{"id":3}', '{"id":4}'}
    watch = Watch(Settings(parse_bootstrap(folder.bootstrap), language()))
    watch.start()
    try:
        wait_until(lambda: {table, warehouse} <= {alert.subject for alert in watch.state.alerts}, "no alert")
        told = {alert.subject: alert.sentence for alert in watch.state.alerts if "dead letters" in alert.sentence}
        assert told[table].startswith(
            "3 records were set aside as dead letters (2 of them: the value is not valid JSON"
        )
        assert told[warehouse].startswith("2 records were set aside as dead letters (the value is not valid JSON")
    finally:
        watch.stop()

    # What is mended is brought in by a rebuild, which takes the letters back; those of the other job stay.
    with sqlite3.connect(folder.folder / "table.sqlite") as db:
        db.execute("DROP TABLE orders")
    db.close()
    rebuilt = folder.run("rebuild", table)
    assert "1 dead letters were taken back" in rebuilt.out
    assert folder.status(table)["dead_letters"] == 2
    assert folder.status(warehouse)["dead_letters"] == 2
    assert folder.run("letters", table, "--forget").code == 0
    assert folder.status(table)["dead_letters"] == 0
    assert folder.status(warehouse)["dead_letters"] == 2
    assert folder.run("verify", table).code == 0


def test_waiting_says_for_what_and_says_it_once(folder: Folder, broker: Broker, topic: str) -> None:
    table, cache, warehouse = f"table-{topic}", f"cache-{topic}", f"warehouse-{topic}"
    holder = duckdb.connect(str(folder.folder / "warehouse.duckdb"))  # another program has it open
    with folder.running():
        wait_until(lambda: folder.status(table)["waiting"] == f"for topic {topic}", "it does not say what it waits for")
        shown = folder.run("status", table)
        assert f"waiting: for topic {topic}" in shown.out
        make_topic(folder.bootstrap, topic)
        write(folder.bootstrap, topic, [upsert(key, {"n": key}) for key in range(5)])
        wait_until(lambda: folder.status(table)["state"] == "running", "it does not begin")
        wait_until(
            lambda: folder.status(cache)["waiting"] == "for its target", "the one whose target is down is silent"
        )
        lock = f"for the lock on {folder.folder / 'warehouse.duckdb'}"
        wait_until(lambda: folder.status(warehouse)["waiting"] == lock, "the lock is not named")
        assert folder.status(cache)["lag_records"] == 5
        holder.close()
        wait_until(lambda: folder.status(warehouse)["state"] == "running", "it does not go on")
    assert sum(f"{table} is waiting" in line for line in folder.said) == 1
    for name in (cache, warehouse):  # once for the topic, once for the target
        assert sum("is waiting" in line or "sink waits" in line for line in folder.said if name in line) <= 2
    assert folder.status(table)["state"] == "stopped"


def test_verify_reads_a_file_that_is_being_written_and_goes_on_where_it_cannot(
    folder: Folder, broker: Broker, topic: str
) -> None:
    make_topic(folder.bootstrap, topic)
    table, cache, warehouse = f"table-{topic}", f"cache-{topic}", f"warehouse-{topic}"
    write(folder.bootstrap, topic, [upsert(key, {"n": key}) for key in range(500)])
    with folder.running(table, warehouse) as process:
        wait_until(lambda: folder.status(warehouse)["lag_records"] == 0, "it lags")
        for round_number in range(3):  # the sink goes on meanwhile
            write(folder.bootstrap, topic, [upsert(key, {"n": round_number}) for key in range(round_number, 500, 7)])
            command = [sys.executable, "-m", "headrace.cli.main", "sync", "verify", cache, warehouse, table, "--json"]
            options = ["--config", str(folder.file), "--bootstrap", folder.bootstrap]
            done = subprocess.run([*command, *options], capture_output=True, text=True, timeout=60, check=False)
            assert done.returncode == 1, done.stderr  # one could not be reached
            found = {one["name"]: one for one in json.loads(done.stdout)}
            assert "Redis cannot be reached" in found[cache]["error"]
            assert [found[name]["equal"] for name in (warehouse, table)] == [True, True]
            assert found[warehouse]["target_rows"] == 500
        assert process.poll() is None
        wait_until(lambda: folder.status(warehouse)["verified_ms"] is not None, "the comparison is not in the status")
        assert folder.status(warehouse)["differences"] == 0


def test_a_rebuild_shows_how_far_it_is_and_says_what_it_did(folder: Folder, broker: Broker, topic: str) -> None:
    make_topic(folder.bootstrap, topic)
    write(folder.bootstrap, topic, [upsert(key, {"n": key}) for key in range(3000)])
    table = f"table-{topic}"
    text = folder.file.read_text().replace("[sync.warehouse", "batch_records = 500\n\n[sync.warehouse", 1)
    folder.file.write_text(text)
    began = time.monotonic()
    done = folder.run("rebuild", table)
    assert done.code == 0
    lines = done.err.splitlines()
    assert lines[0] == f"rebuilding {table} from {topic}: 0 of 3,000 records (0%)"
    assert lines[-1].startswith(f"rebuilding {table} from {topic}: 3,000 of 3,000 records (100%), ")
    assert len(lines) <= 3 + (time.monotonic() - began) / 2  # a pipe is not flooded
    assert done.out.startswith(f"rebuilt {table} from 3,000 records of {topic} in ")
    assert "switched to it: sqlite orders in " in done.out
    as_json = folder.run("rebuild", table, "--json").json
    assert (as_json["records"], as_json["dead_letters"], as_json["taken_back"]) == (3000, 0, 0)
    with connect(folder.bootstrap) as cluster:
        assert sum(as_json["offsets"].values()) == 3000, cluster


def test_plain_records_without_a_key_are_appended(folder: Folder, broker: Broker, topic: str) -> None:
    with connect(folder.bootstrap) as cluster:
        create_topic(cluster, topic, partitions=2)
    text = folder.file.read_text().replace('table = "orders"', 'table = "orders"\nvalue = "plain"', 2)
    folder.file.write_text(text)
    rows = [{"page": "a"}, {"page": "a"}, {"page": "b", "n": 1}]
    write(folder.bootstrap, topic, [NewRecord(None, json.dumps(row).encode(), 1) for row in rows])
    table, warehouse = f"table-{topic}", f"warehouse-{topic}"
    for name in (table, warehouse):
        assert folder.run("rebuild", name).code == 0
    with sqlite3.connect(folder.folder / "table.sqlite") as db:
        assert sorted(db.execute("SELECT page, n FROM orders").fetchall(), key=str) == [
            ("a", None), ("a", None), ("b", 1),
        ]  # fmt: skip
    db.close()
    compared = folder.run("verify", table, warehouse)
    assert compared.code == 0, compared
    # What says nothing about the row before it cannot be applied, and is set aside.
    write(folder.bootstrap, topic, [NewRecord(None, envelope("u", None, {"page": "c"}), 1)])
    folder.file.write_text(folder.file.read_text().replace('value = "plain"', 'value = "envelope"'))
    assert folder.run("rebuild", table).code == 0
    assert "REPLICA IDENTITY FULL" in folder.run("letters", table).out


def test_a_stack_says_what_its_parts_wait_for(tmp_path: Path) -> None:
    stack = RunningStack(
        tmp_path,
        '[broker]\nport = 0\n[cdc.shop]\nurl = "postgresql://postgres@127.0.0.1:1/shop"\n'
        '[sync.copy]\ntopic = "shop.public.orders"\nsink = "sqlite"\npath = "copy.sqlite"\ntable = "orders"\n',
    )
    stack.start()
    try:
        wait_until(
            lambda: (
                stack.members().get("sync.copy", {}).get("phase") == "waiting"
                and bool(stack.members()["cdc.shop"]["facts"].get("waiting"))
            ),
            "it says that all is well",
        )
        shown = stack.run("status")
        assert shown.returncode == 1
        assert "waiting for topic shop.public.orders" in shown.stdout
        members = {member["name"]: member for member in json.loads(stack.run("status", "--json").stdout)["members"]}
        assert members["sync.copy"]["facts"]["waiting"] == "for topic shop.public.orders"
        assert members["cdc.shop"]["facts"]["waiting"] == "for the database"
        bootstrap = ("--bootstrap", stack.state()["bootstrap"])
        assert "waiting: for the database" in stack.run("cdc", "status", *bootstrap).stdout
        (capture,) = json.loads(stack.run("cdc", "status", "--json", *bootstrap).stdout)
        assert (capture["state"], capture["waiting"]) == ("waiting", "for the database")
    finally:
        stack.end()
    said = [line["event"] for line in stack.lines() if line["source"] in ("cdc.shop", "sync.copy")]
    assert sum("shop.public.orders" in event and "waiting" in event for event in said) <= 2  # the log, and the state
