"""Tables read between watermarks while the log runs on: what is left of a snapshot, and what signals ask for."""

import threading
import time
from typing import Any

import psycopg
import pytest

from headrace.connect.errors import SourceRefused
from headrace.connect.filters import Filters
from headrace.connect.postgres.chunks import request_snapshot
from headrace.connect.postgres.slot import slot_state
from headrace.connect.rereading import signal_message
from tests.integration.cdc_postgres.reading import Reading, reading
from tests.integration.cdc_postgres_server import CdcPostgres


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
        slot = slot_state(connection, "s")
    assert {change.op for change in found.changes} == {"r", "u"}
    assert slot is not None
    assert slot.plugin == "pgoutput"


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
