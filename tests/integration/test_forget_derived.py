"""Captured tables whose personal columns are sealed, and derived systems that open them: both forget."""

import json
import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from headrace import Broker
from headrace.client.address import parse_bootstrap
from headrace.client.cluster import Cluster
from headrace.client.offsets import bounds
from headrace.client.reader import read_records
from headrace.forgetting.master_key import create_master_key
from tests.integration.cli_runs import Run, assert_one_sentence, run_cli
from tests.integration.test_forget import found
from tests.integration.waiting import wait_until

TOPIC = "shop.main.customers"
FILE = """
[broker]
bootstrap = "{bootstrap}"

[forgetting]
keys = "sqlite:///keys.db"
master_key_file = "master.key"

[cdc.shop]
url = "sqlite:///{folder}/source.db"
tables = ["main.customers"]
personal = {{ "main.customers" = {{ subject = "id", columns = ["name", "born"] }} }}

[sync.sealed]
topic = "shop.main.customers"
sink = "sqlite"
path = "{folder}/target.db"
table = "sealed"

[sync.opened]
topic = "shop.main.customers"
sink = "sqlite"
path = "{folder}/target.db"
table = "opened"
open = true
"""


class Shop:
    """A database, a broker, a file that names them, and the commands."""

    def __init__(self, folder: Path, bootstrap: str) -> None:
        self.folder, self.bootstrap = folder, bootstrap
        self.config = folder / "headrace.toml"
        self.config.write_text(FILE.format(bootstrap=bootstrap, folder=folder))
        create_master_key(folder / "master.key")
        self.execute("CREATE TABLE customers (id INTEGER PRIMARY KEY, name TEXT, born INTEGER, plan TEXT)")
        self.execute("INSERT INTO customers VALUES (7, 'Ada', 1815, 'free'), (8, 'Grace', 1906, 'paid')")

    def execute(self, statement: str) -> None:
        with closing(sqlite3.connect(self.folder / "source.db", timeout=60)) as db, db:
            db.execute(statement)

    @contextmanager
    def running(self, *arguments: str) -> Iterator[None]:
        command = [sys.executable, "-m", "headrace.cli.main", *arguments, "--config", str(self.config), "--json",
                   "--bootstrap", self.bootstrap]  # fmt: skip
        with open(self.folder / "log.txt", "ab") as log:
            process = subprocess.Popen(command, cwd=self.folder, env=os.environ, stdout=log, stderr=log)
        try:
            yield
            assert process.poll() is None, (self.folder / "log.txt").read_text()
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(60)

    def rows(self, table: str) -> dict[int, tuple[Any, ...]]:
        if not (self.folder / "target.db").exists():
            return {}
        with closing(sqlite3.connect(self.folder / "target.db", timeout=60)) as db:
            try:
                return {row[0]: row[1:] for row in db.execute(f"SELECT id, name, born, plan FROM {table}")}
            except sqlite3.OperationalError:
                return {}

    def records(self) -> list[Any]:
        with Cluster(parse_bootstrap(self.bootstrap)) as cluster:
            held = bounds(cluster, cluster.partitions(TOPIC))
            starts, ends = ({where: getattr(bound, end) for where, bound in held.items()} for end in ("start", "end"))
            return [json.loads(record.value) for some in read_records(cluster, starts, until=ends)
                    for _, record in some if record.value]  # fmt: skip

    def run(self, *arguments: str, stdin: str = "") -> Run:
        return run_cli(*arguments, "--config", str(self.config), "--json", bootstrap=self.bootstrap, stdin=stdin)

    def verify(self, subject: str, *values: str) -> Run:
        return self.run("forget", subject, "--verify", "--values", "-", stdin="\n".join(values))


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Shop]:
    with Broker(tmp_path / "broker", durability="os") as broker:
        yield Shop(tmp_path, broker.bootstrap_servers)


def test_a_captured_person_is_forgotten_down_to_the_derived_systems(shop: Shop) -> None:
    both = {7: ("Ada", 1815, "free"), 8: ("Grace", 1906, "paid")}
    gone = {7: (None, None, "free"), 8: ("Grace", 1906, "paid")}
    with shop.running("cdc", "start"), shop.running("sync", "run"):
        wait_until(lambda: shop.rows("opened") == both and len(shop.rows("sealed")) == 2, "both are filled")
        assert shop.rows("sealed")[7][0].startswith("sealed:1:")
        assert "Ada" not in json.dumps(shop.records())
        assert {hit["place"] for hit in shop.verify("7", "Ada").json["hits"]} == {"derived system opened (sqlite)"}

        done = shop.run("forget", "7", "--yes")
        assert done.code == 0, done
        assert found(done, "derived system opened") == [("rows", "rewritten", 1)]
        assert found(done, "derived system sealed") == [("rows", "unreadable", 1)]
        assert found(done, f"topic {TOPIC}") == [("records", "unreadable", 1)]
        assert shop.rows("opened") == gone
        verified = shop.verify("7", "Ada", "1815")
        assert verified.code == 0, verified
        compared = shop.run("sync", "verify", "opened")
        assert compared.code == 0, compared

        # Whatever comes late about the forgotten is not kept, and holds up nobody.
        shop.execute("UPDATE customers SET name = 'Ada King', plan = 'paid' WHERE id = 7")
        shop.execute("UPDATE customers SET name = 'Grace H' WHERE id = 8")
        late = {7: (None, None, "paid"), 8: ("Grace H", 1906, "paid")}
        wait_until(lambda: shop.rows("opened") == late, "changes go on")
        assert "Ada" not in json.dumps(shop.records())
        assert shop.run("cdc", "verify", "shop").code == 0


def test_a_system_that_was_down_follows_when_it_comes_back(shop: Shop) -> None:
    with shop.running("cdc", "start"), shop.running("sync", "run", "opened"):
        wait_until(lambda: len(shop.rows("opened")) == 2, "it is filled")
    done = shop.run("forget", "8", "--yes")
    assert done.code == 1
    assert found(done, "derived system opened") == [("rows", "will follow", 0)]
    assert shop.rows("opened")[8][0] == "Grace"
    with shop.running("sync", "run", "opened"):
        wait_until(lambda: shop.rows("opened")[8] == (None, None, "paid"), "it follows")
        assert shop.rows("opened")[7] == ("Ada", 1815, "free")
    again = shop.run("forget", "8", "--yes")
    assert (again.code, found(again, "derived system opened")) == (0, [("rows", "rewritten", 1)])


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (('["name", "born"]', '["nme"]'), "names column nme of main.customers"),
        (('subject = "id", columns = ["name", "born"]', 'subject = "plan", columns = ["id"]'), "which is in its key"),
        (('subject = "id", ', ""), 'write { subject = "id"'),
        (('columns = ["name", "born"]', 'columns = ["id"]'), "cannot be sealed"),
        (("[cdc.shop]", '[cdc.shop]\nformat = "avro"'), "sealed in JSON only"),
        (
            ('[forgetting]\nkeys = "sqlite:///keys.db"\nmaster_key_file = "master.key"', ""),
            "add a section [forgetting]",
        ),
    ],
)
def test_what_is_wrong_with_personal_columns_is_one_sentence(shop: Shop, change: tuple[str, str], words: str) -> None:
    shop.config.write_text(shop.config.read_text().replace(*change))
    failed = run_cli("cdc", "start", "--config", str(shop.config), bootstrap=shop.bootstrap)
    assert failed.code == 1
    assert words in failed.err
    assert "Traceback" not in failed.err


def test_opening_without_keys_is_one_sentence(shop: Shop) -> None:
    text = shop.config.read_text()
    shop.config.write_text(text[text.index("[sync.opened]") :])
    failed = run_cli("sync", "run", "--config", str(shop.config), bootstrap=shop.bootstrap)
    assert_one_sentence(failed, "add a section [forgetting]")
