"""PostgreSQL captured by triggers, on a real server: several writers, source and server cut off at any moment."""

import contextlib
import os
import random
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import psycopg
import pytest

from headrace.connect.change import Change, TransactionEnd
from headrace.connect.errors import SchemaChangeBlocked, SourceRefused, SourceUnavailable
from headrace.connect.filters import Filters
from headrace.connect.triggers import TriggerSettings, TriggerSource, uninstall
from headrace.connect.triggers.capture import read_anew
from tests.integration.cdc_postgres_server import CdcPostgres
from tests.integration.cdc_replica import Follower, Replica, counted
from tests.integration.waiting import wait_until

_TABLES = """
create table items (
    id int primary key, name text unique, price numeric(20, 6), body text, seen timestamptz, flags bool[]);
create table pairs (x varchar(8), y int, z bytea, primary key (x, y));
create table parts (id int, region text, note char(5), primary key (id, region)) partition by list (region);
create table parts_a partition of parts for values in ('a');
create table parts_b (note char(5), region text not null, id int not null);
alter table parts attach partition parts_b for values in ('b');
"""


class _RolledBack(Exception):
    pass


_ENDED = (_RolledBack, psycopg.errors.DeadlockDetected, psycopg.errors.SerializationFailure)


@pytest.fixture(scope="module")
def server() -> Iterator[CdcPostgres]:
    server = CdcPostgres(16)
    server.execute("alter system set deadlock_timeout = '50ms'", "select pg_reload_conf()")
    yield server
    server.end()


@pytest.fixture
def url(server: CdcPostgres) -> str:
    """The server, empty."""
    with psycopg.connect(server.url, autocommit=True) as db:
        for (name,) in db.execute(
            "select nspname from pg_namespace where nspname !~ '^pg_|^information_schema$'"
        ).fetchall():
            db.execute(f"drop schema {name} cascade")
        db.execute("create schema public")
    return server.url


def _follower(url: str, **more: Any) -> Follower:
    return Follower(lambda: TriggerSource(TriggerSettings(url, poll_s=0.005, **more)))


class _Worker:
    def __init__(self, url: str, chance: random.Random) -> None:
        self._db = psycopg.connect(url, autocommit=True)
        self._db.execute("set datestyle = 'SQL, DMY'")  # what a writer's session has must not matter
        self._db.execute("set timezone = 'Asia/Kolkata'")
        self._db.execute("set bytea_output = 'escape'")
        self._chance = chance

    def close(self) -> None:
        self._db.close()

    def run(self, statements: int) -> None:
        with contextlib.closing(self):
            self.work(statements)

    def work(self, statements: int) -> None:
        done = 0
        while done < statements:
            with contextlib.suppress(*_ENDED), self._db.transaction():
                for _ in range(self._chance.randrange(1, 8)):
                    done += 1
                    with contextlib.suppress(psycopg.IntegrityError), self._db.transaction():
                        self._one()
                if self._chance.random() < 0.2:
                    raise _RolledBack

    def _one(self) -> None:
        chance = self._chance
        small = chance.randrange(15)
        text = chance.choice(["", "a", "ä€😀", 'quo"te, (\\)', " x ", "x" * 3000, None])
        name = chance.choice([None, *"abcdefgh"])
        region = chance.choice("ab")
        statements: list[tuple[str, tuple[Any, ...]]] = [
            ("insert into items values (%s, %s, %s, %s, now(), '{t,null}')", (small, name, Decimal(small) / 3, text)),
            ("insert into items (id, body) values (%s, %s) on conflict (id) do update set body = 'x'", (small, text)),
            ("update items set body = %s, price = price / 3 where id < %s", (text, small)),
            ("update items set id = %s where id = %s", (chance.randrange(15), small)),
            ("delete from items where id = %s", (small,)),
            ("insert into pairs values (%s, %s, %s)", (str(small), small % 3, bytes([small] * small))),
            ("update pairs set y = y + 3 where x = %s", (str(small),)),
            ("delete from pairs where x = %s", (str(small),)),
            ("insert into parts values (%s, %s, %s)", (small, region, name)),
            ("update parts set region = %s, note = 'ab ' where id = %s", (region, small)),
            ("delete from parts where id = %s", (small,)),
        ]  # fmt: skip
        self._db.execute(*chance.choices(statements, [4] * len(statements))[0])

    def large(self) -> None:
        with self._db.transaction():
            self._db.execute("delete from pairs")
            self._db.execute("insert into pairs select n::text, n % 3, null from generate_series(100, 900) n")
            self._db.execute("update pairs set y = y + 1")


def _assert_same(url: str, replica: Replica) -> None:
    with psycopg.connect(url) as db:
        for table, key in {"items": ("id",), "pairs": ("x", "y"), "parts": ("id", "region")}.items():
            cursor = db.execute(f"select * from {table}")
            names = [column.name for column in cursor.description or ()]
            held = {}
            for row in cursor:
                found = dict(zip(names, row, strict=True))
                held[tuple(found[name] for name in key)] = found
            assert replica.tables.get(f"public.{table}", {}) == held, table


def test_random_work_with_cuts_of_source_and_server(server: CdcPostgres, url: str) -> None:
    seed = int(os.environ.get("HEADRACE_SEED", random.randrange(1 << 30)))
    print(f"HEADRACE_SEED={seed}")
    chance = random.Random(seed)
    server.execute(*_TABLES.split(";")[:-1])
    worker = _Worker(url, chance)
    worker.work(200)
    follower = Follower(
        lambda: TriggerSource(TriggerSettings(url, batch_rows=chance.choice([1, 5, 50, 1000]), poll_s=0.005))
    )
    for turn in range(20):
        if follower.source is None:
            follower.start()
        worker.work(30)
        if turn in (6, 13):
            worker.large()
        for _ in range(chance.randrange(12)):
            if follower.source is not None:
                follower.step(0.01, lose=chance.random() < 0.1)
        if chance.random() < 0.3:
            follower.crash()
        if turn == 9:
            server.restart("immediate")
            if follower.source is not None:
                with pytest.raises(SourceUnavailable):
                    follower.drain(5)
                follower.crash()
            worker.close()
            worker = _Worker(url, chance)
    worker.close()
    if follower.source is None:
        follower.start()
    follower.drain()
    follower.crash()
    _assert_same(url, follower.replica)


def test_writers_beside_each_other_and_the_snapshot(server: CdcPostgres, url: str) -> None:
    server.execute(*_TABLES.split(";")[:-1])
    threads = [threading.Thread(target=_Worker(url, random.Random(seed)).run, args=(200,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    follower = _follower(url, batch_rows=9)
    follower.start()
    while any(thread.is_alive() for thread in threads):
        follower.step(0.01)
    follower.drain()
    follower.crash()
    _assert_same(url, follower.replica)


def test_a_transaction_that_began_first_and_ends_last_is_not_missed_and_stands_last(
    server: CdcPostgres, url: str
) -> None:
    """Its id is lower and its first position too; the row that both changed tells the order."""
    server.execute("create table t (id int primary key, who text)", "insert into t values (1, 'nobody'), (2, 'nobody')")
    follower = _follower(url)
    follower.run()
    with psycopg.connect(url) as slow, psycopg.connect(url, autocommit=True) as fast:
        slow.execute("update t set who = 'slow' where id = 2")
        fast.execute("update t set who = 'fast' where id = 1")
        assert follower.step(0.2) is None  # it waits for whoever may still write before it
        slow.execute("update t set who = 'slow' where id = 1")
        slow.commit()
    events: list[Any] = []
    while (batch := follower.step(0.5)) is not None:
        events += batch.events
    follower.crash()
    assert [event.after[1] for event in events if isinstance(event, Change)] == ["fast", "slow", "slow"]
    assert [type(event) for event in events] == [Change, TransactionEnd, Change, Change, TransactionEnd]
    assert follower.replica.tables["public.t"][(1,)]["who"] == "slow"


def test_a_snapshot_does_not_miss_what_runs_beside_it(server: CdcPostgres, url: str) -> None:
    server.execute("create table t (id int primary key, who text)", "insert into t values (1, 'a'), (2, 'a'), (3, 'a')")
    follower = _follower(url, batch_rows=1)
    follower.start()
    follower.crash()
    with psycopg.connect(url) as slow, psycopg.connect(url, autocommit=True) as fast:
        slow.execute("update t set who = 'slow' where id = 2")
        follower.start()
        fast.execute("update t set who = 'fast' where id = 1")
        for _ in range(2):
            follower.step()
        follower.crash()  # in the middle of the snapshot
        slow.commit()
        fast.execute("delete from t where id = 3")
    follower.run()
    follower.crash()
    who = {key[0]: row["who"] for key, row in follower.replica.tables["public.t"].items()}
    assert who == {1: "fast", 2: "slow"}


def test_shapes_are_followed_within_a_transaction(server: CdcPostgres, url: str) -> None:
    server.execute("create table t (id int primary key, a int)", "insert into t values (1, 1)")
    follower, blocking, skipping = (
        _follower(url, capture=f"c_{policy}", schema_changes=policy) for policy in ("evolve", "block", "skip")
    )
    for one in (follower, blocking, skipping):
        one.run()
    with psycopg.connect(url) as db:
        db.execute("insert into t values (2, 2)")
        db.execute("alter table t add b timestamptz default '2024-01-01 00:00+00'")
        db.execute("update t set a = 5 where id = 1")
        db.execute("alter table t drop a, add a text")
        db.execute("insert into t values (3, null, 'text')")
    follower.drain()
    assert [event.what for event in follower.replica.schema_changes] == ["column b was added", "column a became text"]
    rows = follower.replica.tables["public.t"]
    assert rows[(3,)] == {"id": 3, "b": None, "a": "text"}
    assert rows[(1,)]["b"].year == 2024
    with pytest.raises(SchemaChangeBlocked, match=r"public\.t .*column b was added"):
        blocking.drain()
    skipping.drain()
    assert len(skipping.replica.schema_changes) == 1
    for one in (follower, blocking, skipping):
        one.crash()
    for policy in ("evolve", "block", "skip"):
        uninstall(url, f"c_{policy}")
    with psycopg.connect(url) as db:
        assert db.execute("select count(*) from pg_trigger where not tgisinternal").fetchone() == (0,)


def test_new_dropped_and_truncated_tables(server: CdcPostgres, url: str) -> None:
    server.execute("create table t (id int primary key)", "insert into t values (1)")
    follower = _follower(url, heartbeat_s=0.05)
    follower.run()
    server.execute("create table late (id int primary key)", "insert into late values (1), (2)")
    server.execute("create table bare (id int)", "insert into bare values (1), (1)")  # has no key
    server.execute("truncate t", "insert into t values (5)")
    time.sleep(0.1)
    follower.drain()
    server.execute("insert into late values (3)", "drop table t")
    time.sleep(0.1)
    follower.drain()
    follower.crash()
    assert set(follower.replica.tables["public.late"]) == {(1,), (2,), (3,)}
    assert len(follower.replica.tables["public.bare"]) == 2
    assert follower.replica.tables["public.t"] == {}


def test_acknowledged_changes_are_forgotten(server: CdcPostgres, url: str) -> None:
    server.execute("create table t (id int primary key)")
    follower = _follower(url)
    follower.run()
    server.execute("insert into t values (1)", "insert into t values (2)")
    follower.crash()
    follower.run()
    follower.crash()
    with psycopg.connect(url) as db:
        assert db.execute("select count(*) from headrace.changes").fetchone() == (0,)
    uninstall(url)
    with pytest.raises(SourceRefused, match=r"installed again since.*when-needed"):
        follower.start()
    follower.crash()


def test_mistakes_are_told_with_the_statement_that_mends_them(server: CdcPostgres, url: str) -> None:
    server.execute("create table good (id int primary key)")
    server.execute("drop role if exists reader", "create role reader login")
    follower = _follower(url, filters=Filters(include_tables=["public.nowhere"]))
    with pytest.raises(SourceRefused, match=r"there is no table public\.nowhere"):
        follower.run()
    follower.crash()
    as_reader = psycopg.conninfo.make_conninfo(url, user="reader")
    follower = _follower(as_reader, filters=Filters(include_tables=["public.good"]))
    with pytest.raises(SourceRefused, match="GRANT CREATE ON DATABASE"):
        follower.run()
    follower.crash()


def test_a_restored_dump_is_another_database(server: CdcPostgres, url: str) -> None:
    server.execute("create table t (id int primary key, v text)", "insert into t values (1, 'a'), (2, 'b')")
    follower = _follower(url)
    follower.run()
    server.execute("insert into t values (3, 'c')")
    follower.drain()
    follower.crash()
    other = CdcPostgres(16)
    try:
        dump = subprocess.run(
            [server.programs / "pg_dump", "--dbname", url], check=True, capture_output=True, text=True
        )
        restore = [other.programs / "psql", "--quiet", "--set", "ON_ERROR_STOP=1", "--dbname", other.url]
        subprocess.run(restore, input=dump.stdout, check=True, capture_output=True, text=True)
        refused = _follower(other.url)
        refused.position = follower.position
        with pytest.raises(SourceRefused, match=r"or the database is another one.*when-needed"):
            refused.start()
        refused.crash()
        # Writing goes on, whatever numbers its tables had elsewhere.
        other.execute("delete from t where id = 1", "insert into t values (4, 'd')")
        again = _follower(other.url, snapshot="when-needed")
        again.position, again.replica = follower.position, follower.replica
        again.run()
        other.execute("update t set v = 'e' where id = 4")
        again.drain()
        again.crash()
        rows = again.replica.tables["public.t"]
        assert {key[0]: row["v"] for key, row in rows.items()} == {2: "b", 3: "c", 4: "e"}
    finally:
        other.end()


def test_what_fires_no_trigger_is_found(server: CdcPostgres, url: str) -> None:
    parted = "(id int, day int, v text, primary key (id, day)) partition by range (day)"
    names = ["added", "renamed", "sleeping", "made_again", "cut", "cut_whole", "detached", "attached", "quiet"]
    names += ["called_otherwise", "keyed_otherwise", "shaped_otherwise", "swapped", "swapped_out"]
    for name in names:
        if name in ("cut", "cut_whole", "detached", "attached"):
            server.execute(
                f"create table {name} {parted}",
                f"create table {name}_1 partition of {name} for values from (0) to (10)",
                f"create table {name}_2 partition of {name} for values from (10) to (20)",
            )
        else:
            server.execute(f"create table {name} (id int primary key, day int, v text)")
        server.execute(f"insert into {name} select i, i, 'v' from generate_series(1, 19) i")

    def happen() -> None:
        server.execute(
            "alter table added add c text default 'x'", "alter table renamed rename v to w",
            "alter table sleeping disable trigger all", "update sleeping set v = 'unseen'",
            "alter table sleeping enable always trigger headrace_look",
            "alter table sleeping enable always trigger headrace_write",
            "alter table sleeping enable always trigger headrace_truncate",
            "drop table made_again", "create table made_again (id int primary key, v text)",
            "insert into made_again values (5, 'new')", "truncate cut_2", "truncate cut_whole",
            "insert into cut_whole values (3, 3, 'x')", "alter table detached detach partition detached_2",
            "create table attached_3 (id int, day int, v text, primary key (id, day))",
            "insert into attached_3 values (25, 25, 'y')",
            "alter table attached attach partition attached_3 for values from (20) to (30)",
            "update quiet set v = 'seen'",
            "begin; alter table called_otherwise rename to away_x; update away_x set v = 'y'; "
            "alter table away_x rename to called_otherwise; commit",
            "begin; alter table keyed_otherwise drop constraint keyed_otherwise_pkey, add primary key (day); "
            "delete from keyed_otherwise where id = 5; "
            "alter table keyed_otherwise drop constraint keyed_otherwise_pkey, add primary key (id); commit",
            "begin; alter table shaped_otherwise rename v to w; update shaped_otherwise set w = 'y' where id = 2; "
            "alter table shaped_otherwise rename w to v; commit",
            "delete from swapped_out where id < 10",
            "begin; alter table swapped rename to swapped_x; alter table swapped_out rename to swapped; "
            "alter table swapped_x rename to swapped_out; commit",
        )  # fmt: skip

    def differing(replica: Replica) -> set[str]:
        wrong = set()
        with psycopg.connect(url, autocommit=True) as db:
            for name in names:
                execute: Any = db.execute
                rows = execute(f"select to_jsonb(t) from {name} t").fetchall()
                held = replica.tables.get(f"public.{name}", {}).values()
                there = sorted((row for (row,) in rows), key=str)
                columns = set(there[0]) if there else set()
                if sorted(({c: row.get(c) for c in columns} for row in held), key=str) != sorted(
                    ({c: row[c] for c in columns} for row in there), key=str
                ):
                    wrong.add(name)
        return wrong

    stops = _follower(
        url, heartbeat_s=0.1, unseen_changes="stop", filters=Filters(include_tables=[r"public\..*[^1-3]"])
    )
    stops.run()
    assert not differing(stops.replica)
    happen()
    stopped: set[str] = set()
    deadline = time.monotonic() + 30
    while differing(stops.replica) - {name.removeprefix("public.") for name in stopped}:
        assert time.monotonic() < deadline, (differing(stops.replica), stopped)
        stops.step(0.2)
        assert isinstance(stops.source, TriggerSource)
        stopped = set(stops.source.facts().get("stopped_tables", {}))
    assert stopped <= {f"public.{name}" for name in names if name not in ("quiet", "cut_whole", "attached")}
    assert {"public.sleeping", "public.cut", "public.detached", "public.added"} <= stopped
    stops.crash()
    mended = _follower(url, heartbeat_s=0.1, filters=Filters(include_tables=[r"public\..*[^1-3]"]))
    mended.position, mended.replica = stops.position, stops.replica
    mended.start()
    deadline = time.monotonic() + 30
    while differing(mended.replica):
        assert time.monotonic() < deadline, differing(mended.replica)
        mended.step(0.2)
    assert isinstance(mended.source, TriggerSource)
    assert not mended.source.facts()
    mended.crash()


def _bag(url: str, table: str) -> Counter[str]:
    with psycopg.connect(url, row_factory=psycopg.rows.dict_row) as db:
        return Counter(map(counted, db.execute(f"select * from {table}").fetchall()))


def _copied(follower: Follower, table: str) -> Counter[str]:
    return Counter(map(counted, follower.replica.tables.get(f"public.{table}", {}).values()))


def test_rows_without_a_key_are_counted_beside_writers_cuts_and_readings(server: CdcPostgres, url: str) -> None:
    seed = int(os.environ.get("HEADRACE_SEED", random.randrange(1 << 30)))
    print(f"HEADRACE_SEED={seed}")
    chance = random.Random(seed)
    server.execute(
        "create table visits (page text, n int)",
        "insert into visits select 'a', i % 3 from generate_series(1, 40) i",
        "create table zones (id int primary key)",
        "insert into zones select generate_series(1, 40)",
    )
    settings = TriggerSettings(url, poll_s=0.005, batch_rows=7, heartbeat_s=0.05)
    follower = Follower(lambda: TriggerSource(settings))
    stop = threading.Event()

    def work() -> None:
        dice = random.Random(seed + 1)
        with psycopg.connect(url, autocommit=True) as db:
            execute: Any = db.execute
            while not stop.is_set():
                page, n = dice.choice(["'a'", "'b'", "null"]), dice.randrange(3)
                some = f"ctid = any(array(select ctid from visits where n = {n} limit {dice.randrange(5)}))"
                execute(
                    dice.choice(
                        [
                            f"insert into visits select {page}, {n} from generate_series(1, {dice.randrange(4)})",
                            f"update visits set page = {page} where {some}",
                            f"delete from visits where {some}",
                            f"update visits set n = {dice.randrange(3)} where {some}",
                        ]
                    )
                )

    writer = threading.Thread(target=work)
    writer.start()
    try:
        for cut in range(10):
            follower.start()
            if cut in (5, 8):
                read_anew(settings, ["public.visits"])
            for _ in range(chance.randrange(2, 20)):
                follower.step(0.01)
            if chance.random() < 0.5:
                follower.step(0.01, lose=True)
            follower.crash()
    finally:
        stop.set()
        writer.join()
    follower.run()
    follower.crash()
    assert {name: _copied(follower, name) for name in ("visits", "zones")} == {
        name: _bag(url, name) for name in ("visits", "zones")
    }


@pytest.mark.parametrize(
    "statement",
    [
        "alter table t add c int default 5",
        "alter table t add c int",
        "alter table t drop n",
        "alter table t add primary key (id)",
        "create unique index by_id on t (id)",
        "truncate t",
        "alter table keyed drop constraint keyed_pkey",
        "drop index by_code",
    ],
)
def test_what_is_done_to_tables_without_a_key(server: CdcPostgres, url: str, statement: str) -> None:
    server.execute(
        "create table t (id int not null, n int, v text)",
        "insert into t values (1, 1, 'a'), (2, 1, 'a'), (3, 1, 'a')",
        "create table keyed (id int primary key, v text)",
        "insert into keyed values (1, 'x'), (2, 'x')",
        "create table coded (code int not null, v text)",
        "create unique index by_code on coded (code)",
        "insert into coded values (1, 'x'), (2, 'x')",
    )
    follower = _follower(url, heartbeat_s=0.02)
    follower.run()
    server.execute(
        statement, "delete from t where id = 1", "insert into t (id, v) values (8, 'b'), (9, 'b')",
        "delete from keyed where id = 1", "delete from coded where code = 1",
    )  # fmt: skip
    tables = ("t", "keyed", "coded")
    follower.replica.was_emptied = True  # until the table is read again its rows are known by other values

    def is_in_step() -> bool:
        if follower.source is None:
            follower.start()
        follower.step(0.05)
        return {name: _copied(follower, name) for name in tables} == {name: _bag(url, name) for name in tables}

    wait_until(is_in_step, f"{statement} is not followed")
    server.execute("update t set v = 'c' where id = 8", "insert into keyed values (7, 'y')")
    follower.crash()
    wait_until(is_in_step, f"{statement} is not followed after a new start")
    follower.drain()
    assert is_in_step()
    follower.crash()
