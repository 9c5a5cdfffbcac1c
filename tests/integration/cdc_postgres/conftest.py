"""The servers for all tests of this folder, one version after the other, and an empty schema for each test."""

from collections.abc import Iterator

import psycopg
import pytest

from tests.integration.cdc_postgres_server import EACH_VERSION, CdcPostgres
from tests.integration.cdc_postgres_topics import wait_for


@pytest.fixture(scope="session", params=EACH_VERSION)
def server(request: pytest.FixtureRequest) -> Iterator[CdcPostgres]:
    made = CdcPostgres(request.param)
    yield made
    made.end()


@pytest.fixture
def database(server: CdcPostgres) -> Iterator[CdcPostgres]:
    """The server with an empty schema and no slots."""
    yield server
    with psycopg.connect(server.url, autocommit=True) as connection:
        wait_for(
            lambda: connection.execute("select count(*) from pg_replication_slots where active").fetchone() == (0,)
        )
        connection.execute("select pg_drop_replication_slot(slot_name) from pg_replication_slots")
        for (name,) in connection.execute("select pubname from pg_publication").fetchall():
            quoted = name.replace('"', '""')
            connection.execute(f'drop publication "{quoted}"')
        connection.execute("drop schema public cascade")
        connection.execute("create schema public")
