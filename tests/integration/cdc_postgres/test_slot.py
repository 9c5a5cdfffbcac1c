"""The slot: what it makes the server keep, and what happens when that is too much, or gone."""

import psycopg
import pytest

from headrace.connect.errors import SourceRefused
from headrace.connect.filters import Filters
from tests.integration.cdc_postgres.reading import reading
from tests.integration.cdc_postgres_server import CdcPostgres
from tests.integration.cdc_postgres_topics import wait_for


def test_a_quiet_database_does_not_pin_its_log(database: CdcPostgres) -> None:
    database.execute("create table t (id int primary key)", "create table other (id int primary key)")
    with reading(database, heartbeat_s=0.2, filters=Filters(include_tables=[r"public\.t"])) as found:
        found.step()
        with psycopg.connect(database.url, autocommit=True) as connection:
            connection.execute("insert into other select generate_series(1, 1000)")
            target = connection.execute("select pg_current_wal_lsn()").fetchone()
            assert target is not None

            def has_moved() -> bool:
                found.step(0.2)
                row = connection.execute(
                    "select confirmed_flush_lsn >= %s::pg_lsn from pg_replication_slots", [target[0]]
                ).fetchone()
                return row == (True,)

            wait_for(has_moved)
    assert found.changes == []


def test_a_slot_that_holds_much_raises_an_alarm(database: CdcPostgres, caplog: pytest.LogCaptureFixture) -> None:
    database.execute("create table t (id int primary key, v text)")
    with reading(database, heartbeat_s=0.1, lag_alarm_bytes=100_000) as found:
        database.execute("insert into t select i, repeat('x', 1000) from generate_series(1, 300) i")
        wait_for(lambda: found.source.next_batch(0.2) is False or "slot lags" in caplog.messages)


def test_a_slot_that_holds_too_much_is_dropped(database: CdcPostgres) -> None:
    database.execute("create table t (id int primary key, v text)")
    with reading(database, heartbeat_s=0.1, lag_cap_bytes=1_000_000) as found:
        database.execute("insert into t select i, repeat('x', 1000) from generate_series(1, 3000) i")
        with pytest.raises(SourceRefused, match="was dropped to save its disk"):
            wait_for(lambda: found.source.next_batch(0.2) is False)
    with psycopg.connect(database.url) as connection:
        assert connection.execute("select count(*) from pg_replication_slots").fetchone() == (0,)


def test_a_slot_whose_log_was_removed_fails_at_once(database: CdcPostgres) -> None:
    database.execute("create table t (id int primary key, v text)", "insert into t values (1, 'a')")
    with reading(database) as found:
        found.until(1)
    database.execute("alter system set max_slot_wal_keep_size = '1MB'", "select pg_reload_conf()")
    try:
        with psycopg.connect(database.url, autocommit=True) as connection:

            def is_lost() -> bool:
                connection.execute("insert into t select i, repeat('x', 2000) from generate_series(2, 3000) i")
                connection.execute("select pg_switch_wal()")
                connection.execute("checkpoint")
                connection.execute("delete from t where id > 1")
                return connection.execute("select wal_status from pg_replication_slots").fetchone() == ("lost",)

            wait_for(is_lost)
        with (
            pytest.raises(SourceRefused, match=r"slot s is lost.*pg_drop_replication_slot\('s'\)"),
            reading(database, found.position),
        ):
            pass
        with reading(database, found.position, snapshot="when-needed") as needed:
            needed.until(2)
        assert needed.told == [("t", None), ("r", "1")]  # rows may have vanished with the changes that were missed
    finally:
        database.execute("alter system reset max_slot_wal_keep_size", "select pg_reload_conf()")


def test_failover_slots(database: CdcPostgres) -> None:
    database.execute("create table t (id int primary key)")
    if database.version < 17:
        with pytest.raises(SourceRefused, match="since PostgreSQL 17"), reading(database, failover=True):
            pass
        return
    with reading(database, failover=True), psycopg.connect(database.url) as connection:
        assert connection.execute("select failover from pg_replication_slots").fetchone() == (True,)
