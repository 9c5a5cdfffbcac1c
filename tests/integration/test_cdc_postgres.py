"""The PostgreSQL source against real servers, old and new: snapshot, log, signals, refusals."""

import asyncio
import contextlib
import json
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import psycopg
import pytest

import headrace
from headrace.client.address import parse_bootstrap
from headrace.client.cluster import Cluster
from headrace.connect.capture.connector import make_runtime
from headrace.connect.capture.settings import from_section
from headrace.connect.change import Change, Event, SchemaChange
from headrace.connect.changes import changes
from headrace.connect.errors import SchemaChangeBlocked, SourceRefused, SourceUnavailable, TakenOver
from headrace.connect.filters import Filters
from headrace.connect.postgres.requests import read_slot, request_snapshot
from headrace.connect.postgres.settings import PostgresSettings
from headrace.connect.postgres.signals import signal_message
from headrace.connect.postgres.source import PostgresSource
from headrace.connect.runtime import Backoff, Runtime
from tests.integration.cdc_postgres_server import CdcPostgres
from tests.integration.cdc_postgres_topics import read_topic, replica_of, wait_for


@pytest.fixture(scope="module", params=[16, 18])
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
            connection.execute(f'drop publication "{name}"')
        connection.execute("drop schema public cascade")
        connection.execute("create schema public")


@dataclass
class Reading:
    """A source and what it has handed out, with the position of the last batch that was acknowledged."""

    source: PostgresSource
    position: dict[str, Any] | None = None
    events: list[Event] = field(default_factory=list)

    def until(self, count: int) -> list[Change]:
        """At least so many changes in all."""
        deadline = time.monotonic() + 30
        while len(self.changes) < count:
            assert time.monotonic() < deadline, self.events
            self.step()
        return self.changes

    def step(self, timeout_s: float = 0.5) -> None:
        batch = self.source.next_batch(timeout_s)
        if batch is not None:
            self.events += batch.events
            self.position = json.loads(json.dumps(batch.position))
            self.source.acknowledge(self.position)

    @property
    def changes(self) -> list[Change]:
        return [event for event in self.events if isinstance(event, Change)]

    @property
    def told(self) -> list[tuple[str, Any]]:
        return [(change.op, change.after[0] if change.after else None) for change in self.changes]


@contextlib.contextmanager
def reading(database: CdcPostgres, position: dict[str, Any] | None = None, **settings: Any) -> Iterator[Reading]:
    source = PostgresSource(PostgresSettings(database.url, slot="s", **settings))
    try:
        source.open(position)
        yield Reading(source, position)
    finally:
        source.close()


def runtime_of(database: CdcPostgres, bootstrap: str) -> Runtime:
    section = {"url": database.url, "slot": "s", "heartbeat_s": 0.3, "prefix": "srv"}
    addresses = parse_bootstrap(bootstrap)
    return make_runtime(from_section("c", section), addresses, Cluster(addresses), backoff=Backoff(0.1, 0.5))


@contextlib.contextmanager
def running(database: CdcPostgres, bootstrap: str) -> Iterator[Runtime]:
    runtime = runtime_of(database, bootstrap)
    thread = threading.Thread(target=runtime.run)
    thread.start()
    try:
        yield runtime
    finally:
        runtime.stop()
        thread.join(30)
        assert not thread.is_alive()


# --- snapshot and log


def test_rows_then_changes_without_gap_or_overlap(database: CdcPostgres) -> None:
    database.execute(
        "create table t (id int primary key, v text)", "insert into t select i, 'x' from generate_series(1, 5) i"
    )
    with reading(database, chunk_rows=2) as found:
        database.execute("insert into t values (6, 'y')", "delete from t where id = 1")
        changes_ = found.until(7)
    assert [change.op for change in changes_] == ["r"] * 5 + ["c", "d"]
    assert sorted(change.after[0] for change in changes_[:5] if change.after) == ["1", "2", "3", "4", "5"]
    database.execute("insert into t values (7, 'while it was away')")
    with reading(database, found.position) as again:
        again.until(1)
    assert again.told == [("c", "7")]


def test_every_type_is_the_same_from_the_snapshot_and_from_the_log(database: CdcPostgres) -> None:
    values = {
        "a_bool bool": "true",
        "a_numeric numeric": "12345678901234567890.000123",
        "a_price numeric(10,2)": "-0.05",
        "a_double float8": "0.1",
        "a_real real": "'NaN'",
        "a_money money": "'-1234.5'",
        "a_text text": "E'tab\\t quote\" back\\\\ żółć 🦉'",
        "a_char char(5)": "'ab'",
        "a_bytea bytea": "'\\x00ff'",
        "a_uuid uuid": "'6f9619ff-8b86-d011-b42d-00cf4fc964ff'",
        "a_json json": """'{"a": [1, "ż"]}'""",
        "a_jsonb jsonb": """'{"b": null}'""",
        "a_date date": "'0044-03-15 BC'",
        "a_time time": "'12:34:56.5'",
        "a_ts timestamp": "'2024-02-29 12:34:56.789012'",
        "a_tstz timestamptz": "'2024-02-29 12:34:56.5+05:30'",
        "an_interval interval": "'1 year 2 days 03:04:05.6'",
        "an_array int[]": "'{{1,2},{3,NULL}}'",
        "texts text[]": """array['a,b', 'q"', null, '']""",
        "a_mood mood": "'ok'",
        "moods mood[]": "'{sad,ok}'",
        "a_range int4range": "'[1,5)'",
        "a_domain cents": "7",
        "a_bit bit(3)": "B'101'",
        "an_inet inet": "'10.0.0.1/8'",
        "a_point point": "'(1,2)'",
    }
    columns = ", ".join(values)
    written = ", ".join(values.values())
    database.execute(
        "create type mood as enum ('sad', 'ok')",
        "create domain cents as bigint check (value >= 0)",
        f"create table t (id int primary key, {columns}, big text)",
        "alter table t alter column big set storage external",
        f"insert into t values (1, {written}, repeat('x', 9000))",
    )
    with reading(database) as found:
        database.execute(
            f"insert into t values (2, {written}, repeat('x', 9000))", "update t set a_bool = false where id = 2"
        )
        read, logged, updated = found.until(3)
    one, other = (change.table.python_row(change.after) for change in (read, logged))
    assert one is not None
    assert other is not None
    assert {**one, "id": 2} == {**other} or str({**one, "id": 2}) == str(other)  # NaN is not itself
    table = read.table
    for index, column in enumerate(table.columns[1:], 1):
        assert read.after is not None
        assert logged.after is not None
        assert column.codec.to_json(read.after[index]) == column.codec.to_json(logged.after[index]), column.name
    assert repr((updated.table.python_row(updated.after) or {})["big"]) == "UNCHANGED"
    assert one["a_text"] == 'tab\t quote" back\\ żółć 🦉'
    assert one["texts"] == ["a,b", 'q"', None, ""]


def test_a_snapshot_interrupted_in_the_middle_goes_on_there(database: CdcPostgres) -> None:
    database.execute(
        "create table t (a int, b text, v int, primary key (b, a))",
        "insert into t select i, 'k' || i % 7, 0 from generate_series(1, 3000) i",
        "analyze t",
    )
    settings = {"chunk_rows": 100, "snapshot_range_rows": 500, "snapshot_workers": 3}
    with reading(database, **settings) as first:
        while len(first.changes) < 1200:
            first.step()
    database.execute(
        "update t set v = 1 where a % 3 = 0", "delete from t where a % 100 = 1", "insert into t values (0, 'new', 5)"
    )
    with reading(database, first.position, **settings) as second:
        database.execute("update t set v = 2 where a % 5 = 0")
        deadline = time.monotonic() + 60
        while second.position is None or "snapshot" in second.position or not _caught_up(second, "2"):
            assert time.monotonic() < deadline
            second.step()
    read_twice = [change.after for change in first.changes + second.changes if change.op == "r" and change.after]
    assert len({(row[0], row[1]) for row in read_twice}) == len(read_twice)
    state: dict[Any, Any] = {}
    for change in first.changes + second.changes:
        if change.after is None:
            assert change.before is not None
            state.pop((change.before[0], change.before[1]), None)
        else:
            state[change.after[0], change.after[1]] = change.after[2]
    with psycopg.connect(database.url) as connection:
        rows = connection.execute("select a::text, b, v::text from t").fetchall()
    assert state == {(a, b): v for a, b, v in rows}


def _caught_up(found: Reading, value: str) -> bool:
    return sum(1 for change in found.changes if change.op == "u" and change.after and change.after[2] == value) >= 590


def test_the_other_snapshot_modes(database: CdcPostgres) -> None:
    database.execute("create table t (id int primary key)", "insert into t values (1)")
    with reading(database, snapshot="initial-only") as found:
        batch = found.source.next_batch(5)
        assert batch is not None
        assert batch.is_last
        assert len(batch.events) == 1
    with reading(database, batch.position, snapshot="initial-only") as again:
        ended = again.source.next_batch(1)
        assert ended is not None
        assert ended.is_last
        assert ended.events == []
    database.execute("select pg_drop_replication_slot('s')")
    with reading(database, snapshot="never") as never:
        database.execute("insert into t values (2)")
        never.until(1)
        assert never.told == [("c", "2")]
    database.execute("select pg_drop_replication_slot('s')", "insert into t values (3)")
    with pytest.raises(SourceRefused, match="slot s is gone"), reading(database, never.position):
        pass
    with reading(database, never.position, snapshot="when-needed") as needed:
        needed.until(3)
        assert {op for op, _ in needed.told} == {"r"}


def test_a_large_transaction_is_streamed_and_a_rolled_back_part_never_seen(database: CdcPostgres) -> None:
    database.execute("create table t (id int primary key, v text)")
    with reading(database, batch_messages=1000) as found, psycopg.connect(database.url) as connection:
        found.step()
        connection.execute("insert into t select i, repeat('x', 50) from generate_series(1, 5000) i")
        connection.execute("savepoint a")
        connection.execute("insert into t select i, repeat('y', 50) from generate_series(5001, 9000) i")
        connection.execute("rollback to savepoint a")
        database.execute("insert into t values (-1, 'between')")
        found.until(1)
        assert found.told == [("c", "-1")]
        connection.execute("insert into t values (0, 'end')")
        connection.commit()
        found.until(5002)
    assert [number for _, number in found.told] == ["-1", *(str(number) for number in range(1, 5001)), "0"]


def test_prepared_transactions_come_at_their_commit(database: CdcPostgres) -> None:
    database.execute("create table t (id int primary key)")
    with reading(database) as found:
        database.execute("begin; insert into t values (1); prepare transaction 'p'", "insert into t values (2)")
        found.until(1)
        database.execute("commit prepared 'p'")
        found.until(2)
    assert found.told == [("c", "2"), ("c", "1")]


def test_a_partitioned_table_is_one_table(database: CdcPostgres) -> None:
    database.execute(
        "create table t (id int primary key) partition by range (id)",
        "create table t1 partition of t for values from (0) to (10)",
        "create table t2 partition of t for values from (10) to (20)",
        "insert into t values (1), (11)",
    )
    with reading(database) as found:
        database.execute("insert into t values (2), (12)")
        assert {change.table.full_name for change in found.until(4)} == {"public.t"}


def test_a_table_whose_identity_is_the_whole_row_keeps_its_key(database: CdcPostgres) -> None:
    database.execute(
        "create table t (id int primary key, v text)",
        "alter table t replica identity full",
        "insert into t values (1, 'a')",
    )
    with reading(database) as found:
        database.execute("update t set v = 'b'")
        _, updated = found.until(2)
    assert (updated.before, updated.table.key) == (("1", "a"), (0,))


def test_large_values_that_were_not_sent_again_are_read_if_wanted(database: CdcPostgres) -> None:
    database.execute(
        "create table t (a text, b int, v int, big text, primary key (b, a))",
        "alter table t alter column big set storage external",
        "insert into t select 'it''s \\ ' || i, i, 0, repeat(i::text, 9000) from generate_series(1, 3) i",
    )
    with reading(database, unavailable="reselect", snapshot="never") as found:
        database.execute("update t set v = 1", "delete from t where b = 2")
        updated = found.until(4)[:3]
    bigs = {change.after[1]: change.after[3] for change in updated if change.after}
    assert bigs["1"] == "1" * 9000
    assert bigs["3"] == "3" * 9000
    assert repr(bigs["2"]) == "UNCHANGED" or bigs["2"] == "2" * 9000


# --- incremental snapshots and signals


@pytest.mark.parametrize("way", ["call", "table"])
def test_a_table_is_read_again_while_the_log_runs_on(database: CdcPostgres, way: str) -> None:
    database.execute(
        "create table t (id int primary key, v int)",
        "create table signals (id text primary key, type text, data text)",
        "insert into t select i, 0 from generate_series(1, 2000) i",
    )
    stop = threading.Event()

    def write() -> None:
        with psycopg.connect(database.url, autocommit=True) as connection:
            version = 0
            while not stop.is_set():
                version += 1
                connection.execute("update t set v = %s where id = %s", [version, 1 + version * 37 % 2000])

    writer = threading.Thread(target=write)
    settings = {
        "snapshot": "never",
        "chunk_rows": 150,
        "signal_table": "public.signals",
        "filters": Filters(include_tables=[r"public\.t"]),
    }
    with reading(database, **settings) as found:
        writer.start()
        asked = signal_message("execute-snapshot", ["public.t"])
        if way == "call":
            request_snapshot(database.url, ["public.t"], slot="another")
            request_snapshot(database.url, ["public.t"], slot="s")
            with pytest.raises(SourceRefused, match=r"there is no table public\.tt"):
                request_snapshot(database.url, ["public.tt"])
        else:
            database.execute(f"insert into signals values ('1', 'execute-snapshot', '{asked}')")
        deadline = time.monotonic() + 60
        seen = False
        while not seen or "snapshot" in (found.position or {}):
            assert time.monotonic() < deadline
            found.step()
            seen |= "snapshot" in (found.position or {})
        stop.set()
        writer.join()
        database.execute("update t set v = -1 where id = 1")
        while not any(change.op == "u" and change.after == ("1", "-1") for change in found.changes):
            found.step()
    state: dict[str, int] = {}
    for change in found.changes:
        assert change.table.name == "t"
        assert change.after is not None
        number, version = change.after[0], int(change.after[1])
        assert version == -1 or version >= state.get(number, 0), "a key's changes are in the order of commits"
        state[number] = version
    with psycopg.connect(database.url) as connection:
        assert state == dict(connection.execute("select id::text, v from t").fetchall())
    assert {change.op for change in found.changes} == {"r", "u"}
    slot = read_slot(database.url, "s")
    assert slot is not None
    assert slot.plugin == "pgoutput"


# --- shapes


def test_schema_changes_are_followed_and_told(database: CdcPostgres) -> None:
    database.execute("create table t (id int primary key)")
    with reading(database) as found:
        database.execute("insert into t values (1)", "alter table t add v text default 'x'", "insert into t values (2)")
        found.until(2)
    assert [type(event) for event in found.events if isinstance(event, Change | SchemaChange)] == [
        Change,
        SchemaChange,
        Change,
    ]
    assert found.changes[1].after == ("2", "x")


def test_a_change_of_shape_that_comes_again_after_a_crash_is_told_once(database: CdcPostgres) -> None:
    database.execute("create table t (id int primary key)")
    with reading(database) as found:
        found.step()
        database.execute("insert into t values (1)", "alter table t add v text", "insert into t values (2)")
        deadline = time.monotonic() + 30
        while len(found.changes) < 2:
            assert time.monotonic() < deadline
            batch = found.source.next_batch(0.5)  # stored, and never acknowledged
            if batch is not None:
                found.events += batch.events
                found.position = json.loads(json.dumps(batch.position))
    with reading(database, found.position, schema_changes="block") as again:
        database.execute("insert into t values (3)")
        again.until(1)
    assert again.told == [("c", "3")]
    assert again.changes[0].after == ("3", None)


def test_schema_changes_block(database: CdcPostgres) -> None:
    database.execute("create table t (id int primary key)")
    with reading(database, schema_changes="block") as found:
        database.execute("insert into t values (1)", "alter table t add v text", "insert into t values (2)")
        found.until(1)
        with pytest.raises(SchemaChangeBlocked, match="column v was added"):
            found.until(2)
    with reading(database, found.position, schema_changes="block") as again, pytest.raises(SchemaChangeBlocked):
        again.until(1)
    with reading(database, found.position) as evolved:
        evolved.until(1)
    assert evolved.told == [("c", "2")]


def test_schema_changes_skip(database: CdcPostgres) -> None:
    database.execute("create table t (id int primary key)", "create table u (id int primary key)")
    with reading(database, schema_changes="skip") as found:
        database.execute("alter table t add v text", "insert into t values (2)", "insert into u values (3)")
        found.until(1)
    assert found.told == [("c", "3")]
    assert any(isinstance(event, SchemaChange) and "left out" in event.what for event in found.events)


# --- heartbeat and slot


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
            needed.until(1)
        assert needed.told == [("r", "1")]
    finally:
        database.execute("alter system reset max_slot_wal_keep_size", "select pg_reload_conf()")


def test_tables_that_come_later_are_captured_with_their_rows(database: CdcPostgres) -> None:
    database.execute("create table t (id int primary key)")
    with reading(database, heartbeat_s=0.2) as found:
        found.step()
        database.execute("create table later (id int primary key)", "insert into later values (1)")
        found.until(1)
        database.execute("insert into later values (2)")
        found.until(2)
    assert found.told == [("r", "1"), ("c", "2")]
    database.execute("create table meanwhile (id int primary key)", "insert into meanwhile values (3)")
    with reading(database, found.position) as again:
        again.until(1)
    assert again.told == [("r", "3")]


def test_failover_slots(database: CdcPostgres) -> None:
    database.execute("create table t (id int primary key)")
    if database.version < 17:
        with pytest.raises(SourceRefused, match="since PostgreSQL 17"), reading(database, failover=True):
            pass
        return
    with reading(database, failover=True), psycopg.connect(database.url) as connection:
        assert connection.execute("select failover from pg_replication_slots").fetchone() == (True,)


# --- the runtime


def test_topics_rebuild_the_table_and_an_older_instance_is_fenced(database: CdcPostgres) -> None:
    database.execute("create table t (id int primary key, v text)", "insert into t values (1, 'a'), (2, 'b')")
    with headrace.Broker(durability="os") as broker:
        servers = broker.bootstrap_servers
        older = runtime_of(database, servers)
        failed: list[BaseException] = []

        def run_older() -> None:
            try:
                older.run()
            except TakenOver as error:
                failed.append(error)

        thread = threading.Thread(target=run_older)
        thread.start()
        wait_for(lambda: older.progress.records >= 2)
        with running(database, servers):
            thread.join(30)
            assert failed
            database.execute(
                "update t set v = 'c' where id = 1", "update t set id = 3 where id = 2",
                "insert into t values (4, null)", "delete from t where id = 4", "insert into t values (5, 'e')",
            )  # fmt: skip
            wait_for(lambda: 5 in replica_of(read_topic(servers, "srv.public.t")))
        records = read_topic(servers, "srv.public.t")
    assert replica_of(records) == {1: {"id": 1, "v": "c"}, 3: {"id": 3, "v": "b"}, 5: {"id": 5, "v": "e"}}
    assert [value["op"] for _, value in records if value] == ["r", "r", "u", "d", "c", "c", "d", "c"]


def test_the_runtime_waits_for_a_database_that_restarts(database: CdcPostgres) -> None:
    database.execute("create table t (id int primary key)")
    with headrace.Broker(durability="os") as broker, running(database, broker.bootstrap_servers) as runtime:
        wait_for(lambda: runtime.progress.batches > 0)
        database.restart("immediate")
        database.execute("insert into t values (1)")
        wait_for(lambda: 1 in replica_of(read_topic(broker.bootstrap_servers, "srv.public.t")))
        assert runtime.progress.failures > 0


def test_rows_of_many_megabytes(database: CdcPostgres) -> None:
    database.execute(
        "create table t (id int primary key, v text)",
        "insert into t select i, repeat('x', 3000000) from generate_series(1, 4) i",
    )
    with headrace.Broker(durability="os") as broker, running(database, broker.bootstrap_servers):
        database.execute("insert into t values (5, repeat('y', 20000000))")
        wait_for(lambda: 5 in replica_of(read_topic(broker.bootstrap_servers, "srv.public.t")))
        rows = replica_of(read_topic(broker.bootstrap_servers, "srv.public.t"))
    assert [len(rows[number]["v"]) for number in range(1, 6)] == [3000000] * 4 + [20000000]


# --- changes without a broker


def test_changes_without_a_broker(database: CdcPostgres) -> None:
    database.execute("create table t (id int primary key, v numeric)", "insert into t values (1, 1.5)")
    with changes(database.url, ["t"], snapshot=True) as stream:
        found = iter(stream)
        first = next(found)
        assert (first.op, first.key, str((first.after or {})["v"])) == ("r", {"id": 1}, "1.5")
        database.execute("insert into t values (2, 2)")
        assert next(found).key == {"id": 2}

    async def read() -> list[Any]:
        got = []
        async for change in changes(database.url, ["public.t"], slot="mine", snapshot=True):
            got.append(change.key)
            if len(got) == 2:
                return got
        return got

    assert asyncio.run(read()) == [{"id": 1}, {"id": 2}]


def test_a_named_slot_remembers(database: CdcPostgres) -> None:
    database.execute("create table t (id int primary key)")
    with changes(database.url, ["t"], slot="mine") as stream:
        stream._open()
        database.execute("insert into t values (1)", "insert into t values (2)")
        found = iter(stream)
        assert [next(found).key for _ in range(2)] == [{"id": 1}, {"id": 2}]
        database.execute("insert into t values (3)")
        assert next(found).key == {"id": 3}
    with changes(database.url, ["t"], slot="mine") as stream:
        assert next(iter(stream)).key in ({"id": 3}, {"id": 2})


# --- refusals


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


def test_refusals_say_what_mends_them(database: CdcPostgres) -> None:
    database.execute(
        "create table keyless (v text)",
        "drop role if exists reader",
        "create role reader login password 'right'",
    )
    assert 'ALTER TABLE "public"."keyless" REPLICA IDENTITY FULL' in refusal(database.url)
    unknown = refusal(database.url, filters=Filters(include_tables=[r"public\.keyles"]))
    assert "there is no table public.keyles (there are public.keyless)" in unknown
    as_reader = database.url.replace("postgres:@", "reader:right@")
    assert "ALTER ROLE reader REPLICATION" in refusal(as_reader)
    assert "CREATE DATABASE nowhere" in refusal(database.url.replace("/postgres?", "/nowhere?"))
    assert "CREATE ROLE nobody" in refusal(database.url.replace("postgres:@", "nobody:@"))


def test_a_wrong_password_and_a_server_that_is_not_there(database: CdcPostgres) -> None:
    hba = database.folder / "data" / "pg_hba.conf"
    before = hba.read_text()
    database.execute("drop role if exists careful", "create role careful login replication password 'right'")
    try:
        hba.write_text("local all careful scram-sha-256\n" + before)
        database.execute("select pg_reload_conf()")
        time.sleep(0.3)
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
