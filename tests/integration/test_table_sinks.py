"""Every batch sink passes the contract's suite, with a real Spark and against the real store."""

import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from headrace.pipelines.sink import outbox, postgres, webhook
from headrace.stores.errors import ColumnMismatch, SinkMisconfigured, StagingLost
from headrace.stores.frames import Spool, _written_by_driver
from headrace.stores.postgres.batch import PostgresSink
from headrace.testing.contracts.batch import BatchSinkContract, UpsertingSinkContract, rows_of
from tests.integration.table_sink_stores import (
    DeltaStore,
    DuckdbStore,
    ParquetStore,
    PostgresServer,
    PostgresStore,
    SqliteStore,
)

pytestmark = [
    pytest.mark.java,
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    server = PostgresServer()
    yield server
    server.end()


class TestPostgres(UpsertingSinkContract):
    @pytest.fixture
    def store(self, server: PostgresServer) -> PostgresStore:
        return PostgresStore(server.url)


class TestSqlite(UpsertingSinkContract):
    @pytest.fixture
    def store(self, tmp_path: Path) -> SqliteStore:
        return SqliteStore(tmp_path)


class TestDuckdb(UpsertingSinkContract):
    @pytest.fixture
    def store(self, tmp_path: Path) -> DuckdbStore:
        return DuckdbStore(tmp_path)


class TestDelta(UpsertingSinkContract):
    @pytest.fixture
    def store(self, tmp_path: Path) -> DeltaStore:
        return DeltaStore(tmp_path)


class TestParquet(BatchSinkContract):
    @pytest.fixture
    def store(self, tmp_path: Path, spark: SparkSession) -> ParquetStore:
        return ParquetStore(tmp_path, spark)

    def test_what_files_cannot_do_is_refused(self, store: ParquetStore, table: str) -> None:
        with pytest.raises(SinkMisconfigured, match="use delta"):
            store.sink(table, ["k"])
        with pytest.raises(SinkMisconfigured, match="another folder"):
            store.sink(table, on_new_query="replace")


# What only one store has.


def test_postgres_fills_a_table_of_the_users_own_types(spark: SparkSession, server: PostgresServer) -> None:
    with psycopg.connect(server.url, autocommit=True) as db:
        db.execute("CREATE SCHEMA shop; CREATE TYPE shop.colour AS ENUM ('red', 'blue')")
        db.execute(
            "CREATE TABLE shop.own (id uuid PRIMARY KEY, c shop.colour, j json, v varchar(5), n numeric, "
            "made timestamptz NOT NULL DEFAULT now())"
        )
    df = spark.createDataFrame(
        [("6f1c2a52-3c3b-4a0f-9d0e-0a8f3a1b2c3d", "red", '{"a": 1}', "five5", 7)],
        "id string, c string, j string, v string, n long",
    )
    postgres(server.url, "shop.own", "id")(df, 0)
    with psycopg.connect(server.url) as db:
        assert db.execute("SELECT id::text, c::text, j, v, n FROM shop.own").fetchall() == [
            ("6f1c2a52-3c3b-4a0f-9d0e-0a8f3a1b2c3d", "red", {"a": 1}, "five5", 7)
        ]
        assert db.execute("SELECT sink, batch_id FROM shop.headrace_batches").fetchall() == [("postgres:shop.own", 0)]
    with pytest.raises(SinkMisconfigured, match="unique index"):
        postgres(server.url, "shop.own", "v", name="other")(df, 0)
    with pytest.raises(ColumnMismatch, match="'n' is numeric in the table and text"):
        postgres(server.url, "shop.own", "id")(df.withColumn("n", F.lit("x")), 1)


def test_postgres_leaves_no_stage_behind(
    spark: SparkSession, server: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = "stages_left"

    def stages() -> int:
        with psycopg.connect(server.url) as db:
            found = db.execute("SELECT count(*) FROM pg_tables WHERE tablename LIKE 'headrace_stage_%'").fetchone()
            assert found is not None
            return int(found[0])

    sink = postgres(server.url, table)
    sink(spark.range(5), 0)
    assert stages() == 0
    # A crashed attempt: its stage is there and nobody drops it.
    with sink.open() as (db, target):
        sink._stage(db, target, {"id": "bigint"}, exists=False)
    assert stages() == 1
    sink(spark.range(5, 6), 1)
    assert stages() == 0

    # A server that restarted has emptied the stage: the driver notices and writes nothing.
    copied = PostgresSink._copy

    def copy_and_lose(self: PostgresSink, rows: DataFrame, stage: Any) -> dict[int, int]:
        attempts = copied(self, rows, stage)
        with psycopg.connect(server.url, autocommit=True) as db:
            db.execute(f"TRUNCATE {stage}")
        return attempts

    monkeypatch.setattr(PostgresSink, "_copy", copy_and_lose)
    with pytest.raises(StagingLost, match="the tasks staged 4 rows and PostgreSQL has 0"):
        sink(spark.range(6, 10), 2)
    monkeypatch.undo()
    sink(spark.range(6, 10), 2)
    assert rows_of(PostgresStore(server.url), table, "id") == [(n,) for n in range(10)]
    assert stages() == 0


def test_the_url_stays_out_of_what_is_printed() -> None:
    assert "geheim" not in repr(postgres("postgresql://me:geheim@db/x", "t"))
    assert "geheim" not in repr(webhook("https://me:geheim@host/x", secret="geheim"))
    assert "geheim" not in repr(outbox("postgresql://me:geheim@db/x", print, "id"))


def test_a_spool_filled_by_the_driver_holds_the_same(
    spark: SparkSession, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    spark.conf.set("spark.sql.session.timeZone", "Europe/Paris")
    request.addfinalizer(lambda: spark.conf.set("spark.sql.session.timeZone", "UTC"))
    df = spark.range(0, 1000, numPartitions=3)
    files = _written_by_driver(df, tmp_path)
    assert [
        n for part in Spool(pa.schema([("id", pa.int64())]), files).batches() for n in part.column(0).to_pylist()
    ] == [*range(1000)]


def test_a_real_query_says_who_it_is(spark: SparkSession, tmp_path: Path) -> None:
    store = SqliteStore(tmp_path)
    stream = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 5).load().select("value")
    query = (
        stream.writeStream.foreachBatch(store.sink("seen")).option("checkpointLocation", str(tmp_path / "cp")).start()
    )
    try:
        while not query.recentProgress:
            query.awaitTermination(1)
    finally:
        query.stop()
    db = sqlite3.connect(store.path)
    try:
        assert db.execute("SELECT DISTINCT query_id FROM headrace_batches").fetchall() == [(str(query.id),)]
    finally:
        db.close()
