"""Tables without a key, captured under columns that were chosen as one: from every kind of database."""

import sqlite3
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import psycopg
import pymysql
import pytest

import headrace
from headrace.client.address import parse_bootstrap
from headrace.client.cluster import Cluster
from headrace.connect.capture.running import make_runtime
from headrace.connect.capture.settings import from_section
from headrace.connect.errors import SourceRefused
from headrace.testing.postgres import Postgres
from tests.integration.cdc_postgres_topics import read_topic, wait_for
from tests.servers.mariadb import DATABASE, PASSWORD, USER, MariadbServer

Execute = Callable[[str], Any]
MAKE = "CREATE TABLE items (tenant varchar(9) NOT NULL, id int NOT NULL, what varchar(20))"
ROWS = "INSERT INTO items VALUES ('a', 1, 'tea'), ('a', 2, 'milk'), ('b', 1, 'rum')"


def drop_slots(db: psycopg.Connection[Any]) -> None:
    """Drop every slot, once the server has noticed that nobody reads it any more."""
    wait_for(lambda: db.execute("SELECT 1 FROM pg_replication_slots WHERE active").fetchone() is None)
    db.execute("SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots")


@pytest.fixture(scope="module")
def postgres() -> Iterator[Postgres]:
    with TemporaryDirectory(prefix="headrace-pg-") as folder, Postgres(Path(folder) / "shop") as made:
        yield made


@pytest.fixture(params=["postgres", "triggers", "sqlite", "mariadb"])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[dict[str, Any], str, Execute]]:
    """The settings of a capture, the table's schema, and how a statement is run."""
    if request.param in ("postgres", "triggers"):
        url = request.getfixturevalue("postgres").url
        with psycopg.connect(url, autocommit=True) as db:
            db.execute("DROP TABLE IF EXISTS items")
            method = {"method": "triggers"} if request.param == "triggers" else {}
            yield {"url": url, **method}, "public", db.execute
            drop_slots(db)
    elif request.param == "sqlite":
        path = tmp_path / "shop.db"
        with sqlite3.connect(path, isolation_level=None) as lite:
            yield {"url": f"sqlite:///{path}"}, "main", lite.execute
        lite.close()
    else:
        server = MariadbServer()
        options: dict[str, Any] = {"user": USER, "password": PASSWORD, "database": DATABASE, "autocommit": True}
        with pymysql.connect(host="127.0.0.1", port=server.port, **options) as maria, maria.cursor() as cursor:
            yield {"url": server.url}, DATABASE, cursor.execute
        server.end()


def test_a_table_without_a_key(
    database: tuple[dict[str, Any], str, Execute], headrace_broker: headrace.Broker, request: pytest.FixtureRequest
) -> None:
    settings, schema, execute = database
    kind = request.node.callspec.params["database"]
    execute(MAKE)
    execute(ROWS)
    addresses = parse_bootstrap(headrace_broker.bootstrap_servers)
    topic = f"{kind}.{schema}.items"
    with Cluster(addresses) as cluster:

        def runtime(**chosen: list[str]) -> Any:
            section = settings | {
                "tables": [f"{schema}.items"],
                "key_columns": {f"{schema}.{table}": columns for table, columns in chosen.items()},
            }
            return make_runtime(from_section(kind, section), addresses, cluster)

        for wrong, said in (({"items": ["nix"]}, "column nix of"), ({"items": ["what"]}, "may be null")):
            with pytest.raises(SourceRefused, match=said):
                runtime(**wrong).run()
        with pytest.raises(SourceRefused, match="which is not captured"):
            runtime(line=["id"]).run()
        if kind == "postgres":
            with pytest.raises(SourceRefused, match=r"of a row that is deleted the log tells nothing: .*FULL"):
                runtime(items=["tenant", "id"]).run()
            execute("ALTER TABLE items REPLICA IDENTITY FULL")
        running = runtime(items=["tenant", "id"])
        thread = threading.Thread(target=running.run)
        thread.start()
        try:
            wait_for(lambda: len(read_topic(headrace_broker.bootstrap_servers, topic)) == 3)
            execute("UPDATE items SET what = 'oat' WHERE tenant = 'a' AND id = 2")
            execute("UPDATE items SET tenant = 'c' WHERE tenant = 'b'")
            execute("DELETE FROM items WHERE tenant = 'a' AND id = 1")
            wait_for(lambda: len(read_topic(headrace_broker.bootstrap_servers, topic)) == 9)
        finally:
            running.stop()
            thread.join()
    rows: dict[tuple[str, int], Any] = {}
    for key, value in read_topic(headrace_broker.bootstrap_servers, topic):
        assert key is not None
        assert list(key) == ["tenant", "id"]
        after = value and value["after"]
        rows[key["tenant"], key["id"]] = after and after["what"]
    assert rows == {("a", 1): None, ("a", 2): "oat", ("b", 1): None, ("c", 1): "rum"}
