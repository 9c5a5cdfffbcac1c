"""SQLite and DuckDB as stores of views."""

from pathlib import Path

import pytest

from headrace.pipelines.views import duckdb, sqlite
from headrace.stores.duckdb.view import DuckdbStore
from headrace.stores.sqlite.view import SqliteStore
from headrace.testing.contracts.view import ViewStoreContract


class TestSqlite(ViewStoreContract):
    @pytest.fixture
    def store(self, tmp_path: Path) -> SqliteStore:
        return sqlite(tmp_path / "views.db")


class TestDuckdb(ViewStoreContract):
    @pytest.fixture
    def store(self, tmp_path: Path) -> DuckdbStore:
        return duckdb(tmp_path / "views.duckdb")
