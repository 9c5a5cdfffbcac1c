"""Tables without a key, from pgbench to every kind of copy, while processes are killed."""

import os
import random
import sqlite3
import subprocess
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import psycopg
import pytest
from deltalake import DeltaTable

from headrace.client.address import parse_bootstrap
from headrace.client.cluster import Cluster
from headrace.client.offsets import bounds
from headrace.stores.parquet.derived import read as read_parquet
from headrace.stores.tantivy.derived import search
from tests.integration.cdc_postgres_server import VERSIONS, CdcPostgres
from tests.integration.running_stack import RunningStack
from tests.integration.waiting import wait_until

PATIENCE_S = 90.0
KINDS = ("sqlite", "duckdb", "postgres", "parquet", "delta", "tantivy")
FILE = """
[broker]
port = 0

[cdc.bank]
url = "{url}"
tables = ["public.pgbench_history", "public.pgbench_tellers", "public.pgbench_branches", "public.visits",
          "public.altered"]
heartbeat_s = 0.3

[sync.tellers]
topic = "bank.public.pgbench_tellers"
sink = "sqlite"
path = "tellers.sqlite"
table = "tellers"

[sync.history]
topic = "bank.public.pgbench_history"
sink = "duckdb"
path = "history.duckdb"
table = "history"
"""
OPTIONS = {
    "sqlite": 'path = "visits.sqlite"\ntable = "visits"',
    "duckdb": 'path = "visits.duckdb"\ntable = "visits"',
    "postgres": 'url = "{url}"\ntable = "copy.visits"',
    "parquet": 'path = "visits-parquet"\nbuckets = 4',
    "delta": 'path = "visits-delta"',
    "tantivy": 'path = "visits-tantivy"',
}


@pytest.fixture
def server() -> Iterator[CdcPostgres]:
    made = CdcPostgres(VERSIONS[-1])
    yield made
    made.end()


def _rows(folder: Path, kind: str, url: str) -> Counter[tuple[Any, ...]]:
    query = "select page, n from visits"
    if kind == "sqlite":
        with sqlite3.connect(folder / "visits.sqlite") as db:
            found = db.execute(query).fetchall()
        db.close()
    elif kind == "duckdb":
        with duckdb.connect(str(folder / "visits.duckdb")) as base:
            found = base.execute(query).fetchall()
    elif kind == "postgres":
        with psycopg.connect(url) as connection:
            found = connection.execute("select page, n from copy.visits").fetchall()
    elif kind == "tantivy":
        found = [(row.get("page"), row.get("n")) for row in search(folder / "visits-tantivy", "*", 100_000)]
    else:
        table = (
            read_parquet(folder / "visits-parquet")
            if kind == "parquet"
            else DeltaTable(str((folder / "visits-delta").resolve())).to_pyarrow_table()
        )
        found = list(zip(table["page"].to_pylist(), table["n"].to_pylist(), strict=True))
    return Counter(found)


def _change(url: str, dice: random.Random) -> None:
    """Rows come, change and go, many of them equal to others."""
    with psycopg.connect(url) as db:
        page, n = dice.choice(["a", "b", None]), dice.randrange(3)
        some = "ctid = any(array(select ctid from visits where n = %s limit %s))"
        match dice.randrange(5):
            case 0 | 1:
                db.execute("insert into visits select %s, %s from generate_series(1, %s)", (page, n, dice.randrange(9)))
            case 2:
                db.execute(f"update visits set page = %s where {some}", (page, n, dice.randrange(5)))
            case 3:
                db.execute(f"delete from visits where {some}", (n, dice.randrange(5)))
            case 4:
                db.execute(f"update visits set n = %s where {some}", (dice.randrange(3), n, dice.randrange(3)))


@pytest.mark.parametrize(
    ("kinds", "rounds"),
    [(("sqlite", "duckdb"), 2), pytest.param(KINDS, 6, marks=pytest.mark.long)],
    ids=["few", "all"],
)
def test_bags_are_the_same_everywhere_whatever_is_killed(
    server: CdcPostgres, tmp_path: Path, kinds: tuple[str, ...], rounds: int
) -> None:
    url = server.url
    with psycopg.connect(url, autocommit=True) as db:
        db.execute("create schema copy")
        db.execute("create table visits (page text, n int)")
        db.execute("alter table visits replica identity full")
        db.execute("insert into visits select 'a', i % 3 from generate_series(1, 50) i")
        db.execute("create table altered (v int)")
        db.execute("insert into altered values (1)")
        db.execute("update altered set v = 2")
    bench = [str(server.programs / "pgbench"), "-n"]
    subprocess.run([*bench, "-i", "-q", url], check=True, capture_output=True)
    text = FILE.format(url=url) + "".join(
        f'\n[sync.{kind}]\ntopic = "bank.public.visits"\nsink = "{kind}"\n{OPTIONS[kind].format(url=url)}\n'
        for kind in kinds
    )
    stack = RunningStack(tmp_path, text)
    assert stack.run("up", "--check").returncode == 0
    stack.start()
    seed = int(os.environ.get("HEADRACE_SEED", random.randrange(10**6)))
    print("seed", seed)
    dice = random.Random(seed)
    try:
        stack.wait_until_fine(PATIENCE_S)
        for round_number in range(rounds):
            running = subprocess.Popen([*bench, "-c", "2", "-t", "100", url], stdout=-3, stderr=-3)
            # Read again while rows come and go: each row counts once.
            again = stack.run(
                "cdc", "snapshot", "bank", "public.visits", "public.pgbench_history",
                "--bootstrap", stack.state()["bootstrap"],
            )  # fmt: skip
            assert round_number > 0 or again.returncode == 0, again  # later ones may find it killed
            for _ in range(25):
                _change(url, dice)
            stack.kill_some(dice, 2)
            if round_number == rounds // 2:
                with psycopg.connect(url, autocommit=True) as db:  # rows of before lack it, and are found all the same
                    db.execute("alter table visits add column extra text")
            for _ in range(10):
                _change(url, dice)
            assert running.wait(PATIENCE_S) == 0
        with psycopg.connect(url) as db:
            visits = Counter(db.execute("select page, n from visits").fetchall())
            history = db.execute("select tid, bid, aid, delta from pgbench_history").fetchall()
            tellers = db.execute("select tid, tbalance from pgbench_tellers").fetchall()
        assert max(visits.values()) > 1
        assert len(history) == rounds * 200

        last: list[str] = []

        def is_in_step() -> bool:
            done = stack.run("sync", "verify", "--source")
            last.append(done.stdout + done.stderr)
            return done.returncode == 0

        try:
            wait_until(is_in_step, "the copies do not come in step", patience_s=PATIENCE_S)
        except AssertionError as error:
            raise AssertionError(last[-1]) from error
    finally:
        stack.end()
    assert {kind: _rows(tmp_path, kind, url) for kind in kinds} == dict.fromkeys(kinds, visits)
    with duckdb.connect(str(tmp_path / "history.duckdb")) as base:
        assert Counter(base.execute("select tid, bid, aid, delta from history").fetchall()) == Counter(history)
    with sqlite3.connect(tmp_path / "tellers.sqlite") as copy:
        assert sorted(copy.execute("select tid, tbalance from tellers").fetchall()) == sorted(tellers)
    copy.close()


SOME = "ctid = any(array(select ctid from {t} limit 2))"
ALTERED = {  # columns, a row, what is done to the table, and to its rows then
    "wider": ("at timestamp(3)", "'2026-01-01 10:00:00.123'", "alter table {t} alter at type timestamp(6)", "delete"),
    "dropped": ("n int, v text", "1, 'a'", "alter table {t} drop n", "delete"),
    "added": ("n int", "1", "alter table {t} add c int default 5", "delete"),
    "keyed": ("n int", "1", "alter table {t} add id serial primary key", "delete"),
    "unkeyed": (
        "id int primary key, n int",
        "generate_series, 1",
        "alter table {t} drop constraint {t}_pkey; insert into {t} values (1, 1), (1, 1)",
        "delete",
    ),
    "floats": ("n float8, j jsonb", "'NaN', '{{\"b\": 1, \"a\": [1.0]}}'", "select 1", "update {t} set n = '-0'"),
    "emptied": ("n int", "1", "truncate {t}; insert into {t} values (2), (2), (2)", "delete"),
}


def test_ddl_on_tables_without_a_key(server: CdcPostgres, tmp_path: Path) -> None:
    """Rows that are known by their values: whatever changes how these are written, or what they are."""
    with psycopg.connect(server.url, autocommit=True) as db:
        execute: Any = db.execute
        for name, (columns, row, _, _) in ALTERED.items():
            execute(f"create table {name} ({columns})")
            execute(f"alter table {name} replica identity full")
            execute(f"insert into {name} select {row.format()} from generate_series(1, 5)")
        text = f'[broker]\nport = 0\n[cdc.c]\nurl = "{server.url}"\nheartbeat_s = 0.3\n' + "".join(
            f'[sync.{name}]\ntopic = "c.public.{name}"\nsink = "sqlite"\npath = "{name}.sqlite"\ntable = "copy"\n'
            for name in ALTERED
        )

        def counted(name: str) -> int:
            with sqlite3.connect(tmp_path / f"{name}.sqlite") as copy:
                there = copy.execute("select 1 from sqlite_master where name = 'copy'").fetchone()
                return int(copy.execute("select count(*) from copy").fetchone()[0]) if there else 0

        stack = RunningStack(tmp_path, text)
        stack.start()
        try:
            for name in ALTERED:
                wait_until(lambda: counted(name) == 5, f"{name} is not copied", patience_s=PATIENCE_S)  # noqa: B023
            for name, (_, _, ddl, write) in ALTERED.items():
                execute(ddl.format(t=name))
                statement = f"delete from {name}" if write == "delete" else write.format(t=name)
                execute(f"{statement} where {SOME.format(t=name)}")

            def verify() -> subprocess.CompletedProcess[str]:
                return stack.run("sync", "verify", "--source")

            wait_until(lambda: verify().returncode == 0, "the copies do not come in step", patience_s=PATIENCE_S)
            assert {name: counted(name) for name in ALTERED} == {
                name: execute(f"select count(*) from {name}").fetchone()[0] for name in ALTERED
            }
            # Each is read again once, however often the catalog is looked at: the mark behind them is the last.
            topics = [f"c.public.{name}" for name in ALTERED]
            addresses = parse_bootstrap(stack.state()["bootstrap"])
            execute("create table done (id int primary key)")
            with Cluster(addresses) as cluster:
                ends = [bounds(cluster, cluster.partitions(topic)) for topic in topics]
                execute("insert into done values (1)")
                wait_until(
                    lambda: any(topic.name == "c.public.done" for topic in cluster.topics()), "no look", patience_s=60
                )
                assert [bounds(cluster, cluster.partitions(topic)) for topic in topics] == ends
        finally:
            stack.end()
