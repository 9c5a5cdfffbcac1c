"""Every sink passes the contract's suite, against the real store."""

import itertools
import uuid
from pathlib import Path

import pytest

from headrace.stores.delta.derived import delta
from headrace.stores.duckdb.derived import duckdb
from headrace.stores.mariadb.derived import mariadb
from headrace.stores.opensearch.derived import opensearch
from headrace.stores.parquet.derived import parquet
from headrace.stores.postgres.derived import postgres
from headrace.stores.redis.derived import redis
from headrace.stores.sqlite.derived import sqlite
from headrace.stores.tantivy.derived import tantivy
from headrace.testing.contracts.sink import TOPIC, MakeSink, SinkContract
from tests.integration.table_sink_stores import PostgresServer
from tests.servers.index_server import IndexServer
from tests.servers.mariadb import MariadbServer
from tests.servers.redis import RedisServer

_numbers = itertools.count()


class TestPostgres(SinkContract):
    @pytest.fixture
    def make(self, postgres_server: PostgresServer) -> MakeSink:
        table = f"public.t{next(_numbers)}"
        return lambda: postgres("name", TOPIC, postgres_server.url, table)


class TestMariadb(SinkContract):
    @pytest.fixture
    def make(self, mariadb_server: MariadbServer) -> MakeSink:
        table = f"t{next(_numbers)}"
        return lambda: mariadb("name", TOPIC, mariadb_server.url, table)


class TestSqlite(SinkContract):
    @pytest.fixture
    def make(self, tmp_path: Path) -> MakeSink:
        return lambda: sqlite("name", TOPIC, tmp_path / "target.sqlite", "rows")


class TestDuckdb(SinkContract):
    @pytest.fixture
    def make(self, tmp_path: Path) -> MakeSink:
        return lambda: duckdb("name", TOPIC, tmp_path / "target.duckdb", "rows")


class TestDelta(SinkContract):
    @pytest.fixture
    def make(self, tmp_path: Path) -> MakeSink:
        return lambda: delta("name", TOPIC, tmp_path / "rows")


class TestParquet(SinkContract):
    @pytest.fixture
    def make(self, tmp_path: Path) -> MakeSink:
        return lambda: parquet("name", TOPIC, tmp_path / "rows")


class TestTantivy(SinkContract):
    @pytest.fixture
    def make(self, tmp_path: Path) -> MakeSink:
        return lambda: tantivy("name", TOPIC, tmp_path / "index")


class TestOpenSearch(SinkContract):
    """Against a server of the tests' own that speaks the part of the interface that is used."""

    @pytest.fixture
    def make(self, index_server: IndexServer) -> MakeSink:
        index = f"rows{next(_numbers)}"
        return lambda: opensearch("name", TOPIC, index_server.url, index)


@pytest.mark.parametrize("form", ["hash", "json"])
class TestRedis(SinkContract):
    @pytest.fixture
    def make(self, redis_server: RedisServer, form: str) -> MakeSink:
        name = uuid.uuid4().hex
        return lambda: redis(name, TOPIC, redis_server.url, f"{name}:", form=form)
