"""What users have in their stores already is read: tables and bookkeeping as they were written by the first versions.

The statements here are a record of what stands on disks. They are not to be changed with the code.
"""

import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import duckdb as duckdb_driver
import psycopg
import pymysql
import pytest
from pyspark.sql import SparkSession

from headrace.connect.sync.registry import make_sink
from headrace.connect.sync.settings import SyncSettings
from headrace.pipelines import sink as batch_sinks
from headrace.pipelines import views
from headrace.pipelines.sink import outbox
from headrace.testing.contracts.sink import TOPIC, batch, change
from headrace.testing.contracts.view import batch as view_batch
from headrace.testing.contracts.view import row
from tests.integration.table_sink_stores import PostgresServer
from tests.servers.mariadb import MariadbServer

Run = Callable[[str], list[tuple[Any, ...]]]
TYPES = {
    "postgres": {"n": "bigint", "text": "text", "moment": "timestamptz"},
    "sqlite": {"n": "INTEGER", "text": "TEXT", "moment": "TEXT"},
    "duckdb": {"n": "BIGINT", "text": "VARCHAR", "moment": "TIMESTAMP WITH TIME ZONE"},
    "mariadb": {"n": "BIGINT", "text": "VARCHAR(255)", "moment": "DATETIME"},
}
BATCHES = (
    "CREATE TABLE headrace_batches (sink VARCHAR(500) NOT NULL, query_id VARCHAR(100) NOT NULL, batch_id BIGINT NOT "
    "NULL, superseded BOOLEAN NOT NULL, written_at {moment} NOT NULL, PRIMARY KEY (sink, query_id))"
)
WROTE = "INSERT INTO headrace_batches VALUES ('{sink}', '{query}', {batch}, false, '2026-01-01 00:00:00+00:00')"


class Store:
    """One database: where it is, and a way to it that is not Headrace's."""

    def __init__(self, kind: str, url: str = "", path: Path = Path()) -> None:
        self.kind, self.url, self.path = kind, url, path

    @property
    def place(self) -> dict[str, Any]:
        return {"url": self.url} if self.url else {"path": self.path}

    def run(self, *statements: str) -> list[tuple[Any, ...]]:
        if self.kind == "mariadb":
            parts = urlsplit(self.url)
            db: Any = pymysql.connect(
                host=parts.hostname, port=parts.port or 0, user=parts.username, password=unquote(parts.password or ""),
                database=parts.path[1:], autocommit=True,
            )  # fmt: skip
        else:
            db = (
                psycopg.connect(self.url, autocommit=True) if self.kind == "postgres"
                else sqlite3.connect(self.path, isolation_level=None) if self.kind == "sqlite"
                else duckdb_driver.connect(str(self.path))
            )  # fmt: skip
        try:
            cursor = db.cursor()
            for statement in statements:
                cursor.execute(statement.format(**TYPES[self.kind]))
            return [tuple(found) for found in cursor.fetchall()] if cursor.description else []
        finally:
            db.close()

    def __str__(self) -> str:
        return self.kind


def _store(kind: str, tmp_path: Path, server: Any) -> Store:
    return Store(kind, server.url) if server else Store(kind, path=tmp_path / f"old.{kind}")


@pytest.fixture(params=["postgres", "sqlite", "duckdb"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    if request.param != "postgres":
        yield _store(request.param, tmp_path, None)
        return
    server: PostgresServer = request.getfixturevalue("postgres_server")
    with psycopg.connect(server.url, autocommit=True) as db:
        db.execute("DROP SCHEMA IF EXISTS public CASCADE")
        db.execute("CREATE SCHEMA public")
    yield _store("postgres", tmp_path, server)


def derived(store: Store) -> Any:
    return make_sink(SyncSettings("name", TOPIC, store.kind, {**store.place, "table": "t"}), "127.0.0.1:1")


def check_derived(store: Store) -> None:
    store.run(
        "CREATE TABLE t (id {n} PRIMARY KEY, n {n}, name {text})",
        "INSERT INTO t VALUES (1, 10, 'a'), (2, 20, 'b')",
        "CREATE TABLE t__sync (id INTEGER PRIMARY KEY, owner VARCHAR(64) NOT NULL, place TEXT)",
        """INSERT INTO t__sync VALUES (1, 'somebody', '{{"topic":"topic","offsets":{{"0":7}}}}')""",
        """INSERT INTO t__sync VALUES (2, '', '["id","n","name"]')""",
    )
    sink = derived(store)
    place = sink.open()
    assert (place.topic, place.offsets, place.topic_id) == (TOPIC, {0: 7}, "")
    sink.apply(batch(change(1, None, 7), change(3, {"n": 1.5, "name": "c"}, 8), up_to=9))  # n is the sink's own column
    sink.close()
    assert {found.key: dict(found.values) for part in derived(store).scan() for found in part} == {
        "2": {"id": 2, "n": 20, "name": "b"}, "3": {"id": 3, "n": 1.5, "name": "c"},
    }  # fmt: skip
    beside = derived(store).beside()
    assert beside.open() is None
    beside.apply(batch(change(5, {"n": 5, "name": "e"}, 0), up_to=9))
    beside.close()
    derived(store).switch()
    assert store.run("SELECT id FROM t") == [(5,)]
    assert store.run("SELECT id FROM t__old ORDER BY id") == [(2,), (3,)]
    assert store.run("SELECT place FROM t__sync WHERE id = 1") == [('{"offsets":{"0":9},"topic":"topic"}',)]
    assert store.run("SELECT count(*) FROM t__old__sync WHERE id = 1") == [(1,)]


def test_a_derived_table(store: Store) -> None:
    check_derived(store)


def test_a_derived_table_of_mariadb(mariadb_server: MariadbServer) -> None:
    check_derived(Store("mariadb", mariadb_server.url))


@pytest.mark.java
def test_a_batch_sink(store: Store, spark: SparkSession) -> None:
    name = f"{store.kind}:t"
    store.run(
        BATCHES,
        WROTE.replace("{sink}", name).replace("{query}", "no-query").replace("{batch}", "4"),
        "CREATE TABLE t (k {text}, v {n}, PRIMARY KEY (k))",
        "INSERT INTO t VALUES ('a', 3)",
        "CREATE TABLE headrace_deleted_t (k {text}, v {n}, PRIMARY KEY (k))",
        "INSERT INTO headrace_deleted_t VALUES ('gone', 5)",
    )

    def sink() -> Any:
        make = getattr(batch_sinks, store.kind)
        return make(*store.place.values(), "t", ["k"], version="v", delete_when="dead")

    shape = "k string, v long, dead boolean"
    sink()(spark.createDataFrame([("skipped", 9, False)], shape), 4)
    assert store.run("SELECT k, v FROM t") == [("a", 3)]
    sink()(spark.createDataFrame([("gone", 4, False), ("a", 2, False), ("b", 1, False)], shape), 5)
    assert store.run("SELECT k, v FROM t ORDER BY k") == [("a", 3), ("b", 1)]
    # A version that was built beside, and is switched to.
    store.run(
        "CREATE TABLE t__v2 (k {text}, v {n}, PRIMARY KEY (k))",
        "INSERT INTO t__v2 VALUES ('new', 1)",
        WROTE.replace("{sink}", f"{name}@v2").replace("{query}", "other").replace("{batch}", "0"),
    )
    sink().switch(2)
    sink().switch(2)
    assert store.run("SELECT k FROM t") == [("new",)]
    assert store.run("SELECT k FROM t__v1 ORDER BY k") == [("a",), ("b",)]
    assert store.run("SELECT k FROM headrace_deleted_t__v1") == [("gone",)]
    assert store.run("SELECT sink, query_id, batch_id FROM headrace_batches ORDER BY sink") == [
        (name, "other", 0), (f"{name}@v1", "no-query", 5),
    ]  # fmt: skip


def test_a_view(store: Store) -> None:
    store.run(
        BATCHES,
        WROTE.replace("{sink}", "view:feed").replace("{query}", "query-1").replace("{batch}", "3"),
        "CREATE TABLE headrace_views (name VARCHAR(500) NOT NULL PRIMARY KEY, shape TEXT NOT NULL, revision BIGINT NOT "
        "NULL, batch_id BIGINT NOT NULL, row_count BIGINT NOT NULL, written_ms BIGINT NOT NULL, offsets TEXT NOT NULL, "
        "watermark_ms BIGINT, logged_from BIGINT NOT NULL)",
        """INSERT INTO headrace_views VALUES ('feed', '{{"key": ["user", "post"], "columns": {{"user": "bigint", """
        """"post": "string", "likes": "int", "score": "double", "price": "decimal(10,2)", "is_new": "boolean", """
        """"day": "date", "at": "timestamp", "tags": "array<string>"}}}}', 4, 3, 1, 1767225600000, """
        """'{{"posts-0": 4}}', 1700000000000, 2)""",
        "CREATE TABLE headrace_view_changes (name VARCHAR(500) NOT NULL, revision BIGINT NOT NULL, row_key TEXT NOT "
        "NULL, PRIMARY KEY (name, revision, row_key))",
        """INSERT INTO headrace_view_changes VALUES ('feed', 4, '{{"user":1,"post":"a"}}')""",
        {
            "postgres": 'CREATE TABLE feed ("user" bigint, post text COLLATE "C", likes integer, score double '
            "precision, price numeric(10,2), is_new boolean, day date, at timestamp with time zone, tags text[], "
            'PRIMARY KEY ("user", post))',
            "sqlite": 'CREATE TABLE feed ("user" INTEGER, post TEXT, likes INTEGER, score REAL, price TEXT, is_new '
            'INTEGER, day TEXT, at TEXT, tags TEXT, PRIMARY KEY ("user", post))',
            "duckdb": 'CREATE TABLE feed ("user" BIGINT, post VARCHAR, likes INTEGER, score DOUBLE, price '
            'DECIMAL(10,2), is_new BOOLEAN, day DATE, "at" TIMESTAMP WITH TIME ZONE, tags VARCHAR[], '
            'PRIMARY KEY ("user", post))',
        }[store.kind],
        "INSERT INTO feed (\"user\", post, likes) VALUES (1, 'a', 5)",
    )
    kept = getattr(views, store.kind)(*store.place.values())
    reader = kept.reader("feed")
    freshness = reader.kept().freshness
    assert (freshness.revision, freshness.batch, freshness.rows) == (4, 3, 1)
    assert (freshness.standing.offsets, freshness.standing.watermark_ms) == ({"posts-0": 4}, 1_700_000_000_000)
    (changed,) = reader.changes(3).changes
    assert changed.row == row(1, "a", likes=5)
    assert kept.write(view_batch(kept, 3, [row(9, "z")])) is None
    written = kept.write(view_batch(kept, 4, [row(2, "b")]))
    assert (written.revision, written.rows) == (5, 2)
    assert len(reader.changes(3).changes) == 2
    reader.close()


@pytest.mark.java
def test_an_outbox(store: Store, spark: SparkSession) -> None:
    if store.kind == "duckdb":
        pytest.skip("keeps no outbox")
    store.run(
        BATCHES,
        WROTE.replace("{sink}", "calls").replace("{query}", "no-query").replace("{batch}", "0"),
        "CREATE TABLE headrace_outbox (sink VARCHAR(500) NOT NULL, key TEXT NOT NULL, lane TEXT, seq BIGINT NOT NULL, "
        "state VARCHAR(10) NOT NULL, attempts INTEGER NOT NULL, error TEXT, payload TEXT, changed_at {moment} NOT NULL,"
        " PRIMARY KEY (sink, key))",
        "INSERT INTO headrace_outbox VALUES ('calls', '1', NULL, 1, 'done', 1, NULL, NULL, '2026-01-01 00:00:00+00')",
        """INSERT INTO headrace_outbox VALUES ('calls', '2', NULL, 2, 'waiting', 0, NULL, '{{"id":2}}', """
        "'2026-01-01 00:00:00+00')",
    )
    sent: list[Any] = []
    place = store.url or f"sqlite:///{store.path}"
    sink = outbox(place, lambda row, key: sent.append((key, row)), "id", name="calls")
    sink(spark.createDataFrame([(1,), (3,)], "id long"), 1)
    assert sink.counts() == {"done": 3, "failed": 0, "waiting": 0, "sending": 0}
    assert len(sent) == 2
