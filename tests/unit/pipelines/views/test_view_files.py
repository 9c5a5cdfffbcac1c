"""SQLite and DuckDB as stores of views."""

from pathlib import Path

import pytest

from headrace.pipelines.views import duckdb, sqlite
from headrace.stores.duckdb.view import DuckdbStore
from headrace.stores.sqlite.view import SqliteStore
from tests.unit.pipelines.views.store_contract import StoreContract


class TestSqlite(StoreContract):
    @pytest.fixture
    def store(self, tmp_path: Path) -> SqliteStore:
        return sqlite(tmp_path / "views.db")


class TestDuckdb(StoreContract):
    @pytest.fixture
    def store(self, tmp_path: Path) -> DuckdbStore:
        return duckdb(tmp_path / "views.duckdb")
