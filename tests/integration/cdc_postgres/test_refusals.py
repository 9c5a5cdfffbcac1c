"""What cannot be captured is refused, in one sentence with the statement that mends it."""

from typing import Any, LiteralString

import psycopg
import pytest

from headrace.connect.errors import InvalidConnectSetting, SourceRefused, SourceUnavailable
from headrace.connect.filters import Filters
from headrace.connect.postgres.settings import PostgresSettings
from headrace.connect.postgres.source import PostgresSource
from tests.integration.cdc_postgres.reading import reading
from tests.integration.cdc_postgres_server import CdcPostgres
from tests.integration.cdc_postgres_topics import wait_for


def refusal(url: str, **settings: Any) -> str:
    source = PostgresSource(PostgresSettings(url, slot="s", **settings))
    try:
        with pytest.raises(SourceRefused) as caught:
            source.open(None)
    finally:
        source.close()
    text = str(caught.value)
    assert "\n" not in text
    return text


def asked(database: CdcPostgres, query: LiteralString) -> Any:
    """The one value that a new session is told."""
    with psycopg.connect(database.url) as connection:
        (value,) = connection.execute(query).fetchone() or (None,)
    return value


def test_refusals_say_what_mends_them(database: CdcPostgres) -> None:
    database.execute(
        "create table keyless (v text)",
        "insert into keyless values ('a')",
        "update keyless set v = 'b'",  # as long as it was published, the server would refuse this
        "drop role if exists reader",
        "create role reader login password 'right'",
    )
    # A session tells the server's statistics what it did when it ends, which its client does not wait for.
    wait_for(lambda: asked(database, "select pg_stat_get_tuples_updated('keyless'::regclass)") == 1)
    assert 'ALTER TABLE "public"."keyless" REPLICA IDENTITY FULL' in refusal(database.url)
    unknown = refusal(database.url, filters=Filters(include_tables=[r"public\.keyles"]))
    assert "there is no table public.keyles (there are public.keyless)" in unknown
    as_reader = database.url.replace("postgres:@", "reader:right@")
    assert "ALTER ROLE reader REPLICATION" in refusal(as_reader)
    assert "CREATE DATABASE nowhere" in refusal(database.url.replace("/postgres?", "/nowhere?"))
    assert "CREATE ROLE nobody" in refusal(database.url.replace("postgres:@", "nobody:@"))


def test_a_publication_that_leaves_changes_out_is_refused(database: CdcPostgres) -> None:
    database.execute(
        "create table t (id int primary key, v text)",
        "create table p (id int primary key) partition by range (id)",
        "create publication s for table t with (publish = 'insert, update')",
    )
    only_t = Filters(include_tables=[r"public\.t"])
    said = refusal(database.url, filters=only_t)
    assert "leaves out delete, truncate" in said
    assert """ALTER PUBLICATION "s" SET (publish = 'insert, update, delete, truncate')""" in said
    database.execute("drop publication s", "create publication s for all tables")
    said = refusal(database.url)
    assert "the partitions of public.p each by itself" in said
    assert 'ALTER PUBLICATION "s" SET (publish_via_partition_root = true)' in said
    if database.version >= 15:
        for part, what in ("t where (id > 5)", "rows by a WHERE"), ("t (id)", "columns by a list"):
            database.execute("drop publication s", f"create publication s for table {part}")
            said = refusal(database.url, filters=only_t)
            assert f"leaves out {what} of public.t" in said
            assert 'ALTER PUBLICATION "s" DROP TABLE "public"."t"' in said
    database.execute("drop publication s", "create publication s for all tables")
    with reading(database, filters=only_t, heartbeat_s=0.2) as found:
        database.execute("insert into t values (1, 'a')")
        found.until(1)
        database.execute("alter publication s set (publish = 'insert')")
        with pytest.raises(SourceRefused, match="leaves out update, delete, truncate"):
            wait_for(lambda: found.source.next_batch(0.2) is False)


def test_names_that_postgres_would_cut_are_refused(database: CdcPostgres) -> None:
    with pytest.raises(InvalidConnectSetting, match="at most 63 bytes"):
        PostgresSettings(database.url, publication="ż" * 32)


def test_a_wrong_password_and_a_server_that_is_not_there(database: CdcPostgres) -> None:
    hba = database.folder / "data" / "pg_hba.conf"
    before = hba.read_text()
    database.execute("drop role if exists careful", "create role careful login replication password 'right'")
    try:
        hba.write_text("local all careful scram-sha-256\n" + before)
        loaded = asked(database, "select pg_conf_load_time()")
        database.execute("select pg_reload_conf()")
        wait_for(lambda: asked(database, "select pg_conf_load_time()") > loaded)
        text = refusal(database.url.replace("postgres:@", "careful:wrong@"))
        assert "ALTER ROLE careful PASSWORD" in text
        assert "wrong" not in text
    finally:
        hba.write_text(before)
        database.execute("select pg_reload_conf()")
    source = PostgresSource(PostgresSettings("postgresql://me@127.0.0.1:1/x"))
    with pytest.raises(SourceUnavailable, match="cannot be reached"):
        source.open(None)


def test_a_log_that_does_not_hold_enough(database: CdcPostgres) -> None:
    database.execute("alter system set wal_level = 'replica'")
    try:
        database.restart("fast")
        assert "ALTER SYSTEM SET wal_level = logical" in refusal(database.url)
    finally:
        database.execute("alter system set wal_level = 'logical'")
        database.restart("fast")
