"""From a MariaDB through a topic to a copy in SQLite, by commands alone; and a lost history written anew."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pymysql
import pytest

from headrace import Broker
from headrace.client.address import parse_bootstrap
from headrace.client.admin import delete_topics
from headrace.client.cluster import Cluster
from tests.integration.waiting import wait_until
from tests.servers.mariadb import DATABASE, PASSWORD, USER, MariadbServer

PATIENCE_S = 120.0
FILE = """
[cdc.market]
url = "${MARKET}"
tables = ["shop.orders"]

[sync.copy]
topic = "market.shop.orders"
sink = "sqlite"
path = "copy.sqlite"
table = "orders"
"""


@pytest.fixture
def server() -> Iterator[MariadbServer]:
    made = MariadbServer()
    yield made
    made.end()


class Place:
    """A folder with the file, and the commands."""

    def __init__(self, folder: Path, server: MariadbServer, broker: Broker) -> None:
        self._folder, self._server = folder, server
        self._environment = os.environ | {"HEADRACE_BOOTSTRAP": broker.bootstrap_servers, "MARKET": server.url}
        self._running: list[subprocess.Popen[str]] = []
        (folder / "headrace.toml").write_text(FILE)

    def end(self) -> None:
        for one in self._running:
            if one.poll() is None:
                one.kill()
                one.communicate()

    def execute(self, *statements: str) -> None:
        options: dict[str, Any] = {"user": USER, "password": PASSWORD, "database": DATABASE, "autocommit": True}
        with pymysql.connect(host="127.0.0.1", port=self._server.port, **options) as db, db.cursor() as cursor:
            for statement in statements:
                cursor.execute(statement)

    def started(self, *arguments: str) -> subprocess.Popen[str]:
        made = subprocess.Popen(
            [sys.executable, "-m", "headrace.cli.main", *arguments],
            cwd=self._folder, env=self._environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        self._running.append(made)
        return made

    def run(self, *arguments: str, code: int = 0) -> str:
        done = self.started(*arguments)
        out, err = done.communicate(timeout=PATIENCE_S)
        assert done.returncode == code, out + err
        return out if code == 0 else err

    def wait_for_rows(self, count: int) -> None:
        """Until the copy has so many rows, and every one is as the log says."""

        def is_there() -> bool:
            done = self.started("sync", "verify", "--json")
            out, _ = done.communicate(timeout=PATIENCE_S)
            if done.returncode != 0:  # it differs, or is not there yet
                return False
            (report,) = json.loads(out)
            return bool(report["target_rows"] == count)

        wait_until(is_there, f"the copy has not {count} rows")


def stop(*running: subprocess.Popen[str]) -> None:
    for one in running:
        one.terminate()
    for one in running:
        _, err = one.communicate(timeout=PATIENCE_S)
        assert one.returncode == 0, err


@pytest.fixture
def place(tmp_path: Path, server: MariadbServer, headrace_broker: Broker) -> Iterator[Place]:
    made = Place(tmp_path, server, headrace_broker)
    yield made
    made.end()


def test_a_copy_follows_its_source(place: Place, headrace_broker: Broker) -> None:
    place.execute(
        "CREATE TABLE orders (id int PRIMARY KEY, what text)", "INSERT INTO orders VALUES (1, 'tea'), (2, 'coffee')"
    )
    captures = place.started("cdc", "start")
    wait_until(lambda: "market.shop.orders" in place.run("topic", "list"), "there is no topic")
    copies = place.started("sync", "run")
    place.wait_for_rows(2)
    place.execute("DELETE FROM orders WHERE id = 1", "INSERT INTO orders VALUES (3, 'cocoa'), (4, NULL)")
    place.wait_for_rows(3)
    stop(captures)

    # The topic with the tables' shapes is lost: the capture refuses to guess, and one command mends it.
    with Cluster(parse_bootstrap(headrace_broker.bootstrap_servers)) as cluster:
        delete_topics(cluster, ["__headrace_connect_schemas"])
    said = place.run("cdc", "start", code=1)
    assert "headrace: market: " in said
    assert "rebuild-history" in said
    assert "market goes on at " in place.run("cdc", "rebuild-history", "market")
    captures = place.started("cdc", "start")
    place.execute("INSERT INTO orders VALUES (5, 'water')")
    place.wait_for_rows(4)
    stop(captures, copies)
