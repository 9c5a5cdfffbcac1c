"""Tables read again while changes go on, from databases that are captured by triggers: the copy stays what it is."""

import sqlite3
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import psycopg
import pytest

import headrace
from headrace.client.address import parse_bootstrap
from headrace.client.cluster import Cluster
from headrace.connect.capture.running import make_runtime
from headrace.connect.capture.settings import from_section
from headrace.connect.errors import SourceRefused
from headrace.testing.postgres import Postgres
from tests.integration.cdc_postgres_topics import read_topic, replica_of, wait_for

ROWS, TURNS = 300, 60


@pytest.fixture(params=["sqlite", "triggers"])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[dict[str, Any], str, Callable[[], Any]]]:
    """The settings of a capture, the table's schema, and how to connect."""
    if request.param == "sqlite":
        path = tmp_path / "shop.db"
        connect = lambda: sqlite3.connect(path, isolation_level=None, timeout=30)  # noqa: E731
        yield {"url": f"sqlite:///{path}"}, "main", connect
    else:
        with TemporaryDirectory(prefix="headrace-pg-") as folder, Postgres(Path(folder) / "shop") as server:
            url = server.url
            yield {"url": url, "method": "triggers"}, "public", lambda: psycopg.connect(url, autocommit=True)


def test_rows_are_read_again_beside_changes(
    database: tuple[dict[str, Any], str, Callable[[], Any]], headrace_broker: headrace.Broker
) -> None:
    settings, schema, connect = database
    db = connect()
    db.execute("CREATE TABLE items (id int PRIMARY KEY, n int)")
    for number in range(ROWS):
        db.execute(f"INSERT INTO items VALUES ({number}, 0)")
    addresses = parse_bootstrap(headrace_broker.bootstrap_servers)
    topic = f"anew.{schema}.items"
    capture = from_section("anew", settings | {"tables": [f"{schema}.items"]})

    def write() -> None:
        with connect() as other:
            for turn in range(1, TURNS):
                other.execute(f"UPDATE items SET n = {turn} WHERE id % 7 = {turn % 7}")
                other.execute(f"DELETE FROM items WHERE id = {turn}")

    def records() -> Any:
        return read_topic(headrace_broker.bootstrap_servers, topic)

    def count_read(found: Any) -> int:
        return sum(value is not None and value["op"] == "r" for _, value in found)

    with Cluster(addresses) as cluster:
        running = make_runtime(capture, addresses, cluster)
        threads = [threading.Thread(target=running.run), threading.Thread(target=write)]
        threads[0].start()
        try:
            wait_for(lambda: len(records()) == ROWS)
            threads[1].start()
            for _ in range(3):
                capture.kind.read_anew(capture.source, [f"{schema}.items"])
            threads[1].join()
            with pytest.raises(SourceRefused, match=r"table x\.y is not captured \(captured are: "):
                capture.kind.read_anew(capture.source, ["x.y"])
            expected = dict(db.execute("SELECT id, n FROM items").fetchall())
            wait_for(lambda: {key: row["n"] for key, row in replica_of(records()).items()} == expected)
            wait_for(lambda: count_read(records()) >= ROWS + 3 * (ROWS - TURNS))
        finally:
            running.stop()
            threads[0].join()
    assert {key: row["n"] for key, row in replica_of(records()).items()} == expected
    db.close()
