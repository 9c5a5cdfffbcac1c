"""Tables without a key among others, as a user has them: MariaDB, SQLite and triggers, while processes are killed."""

import os
import random
import sqlite3
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import psycopg
import pymysql
import pytest

from tests.integration.cdc_postgres_server import VERSIONS, CdcPostgres
from tests.integration.running_stack import RunningStack
from tests.integration.waiting import wait_until
from tests.servers.mariadb import DATABASE, PASSWORD, USER
from tests.servers.mysql import binlog_server

PATIENCE_S = 90.0
FILE = {
    "maria": '[cdc.maria]\nurl = "{url}"\nheartbeat_s = 0.3\n',
    "lite": '[cdc.lite]\nurl = "sqlite:///{url}"\n',
    "pg": '[cdc.pg]\nurl = "{url}"\nmethod = "triggers"\nheartbeat_s = 0.3\n',
}
CACHE = """
[sync.cache]
topic = "{capture}.{schema}.visits"
sink = "redis"
url = "redis://127.0.0.1/0"
prefix = "p:"
"""
SYNC = """
[sync.{capture}_{table}]
topic = "{capture}.{schema}.{table}"
sink = "sqlite"
path = "{capture}_{table}.sqlite"
table = "copy"
"""
SCHEMAS = {"maria": DATABASE, "lite": "main", "pg": "public"}
MAKE = (  # visits has no key, and words loses it
    *(f"CREATE TABLE {name} (id INT PRIMARY KEY, v INT)" for name in ("accounts", "orders", "zones")),
    "CREATE TABLE words (id INT NOT NULL, v INT)",
    "CREATE UNIQUE INDEX by_id ON words (id)",
    "CREATE TABLE visits (page VARCHAR(9), n INT)",
    *(f"INSERT INTO {name} VALUES (1, 0), (2, 0), (3, 0)" for name in ("accounts", "orders", "zones", "words")),
    "INSERT INTO visits VALUES ('a', 0), ('a', 0), ('a', 1), ('b', 2), (NULL, 2)",
)

Ask = Callable[[str], list[tuple[Any, ...]]]


def _sqlite(stack: ExitStack, folder: Path) -> tuple[str, Ask]:
    db = sqlite3.connect(folder / "shop.db", isolation_level=None, timeout=30)
    stack.callback(db.close)
    db.execute("PRAGMA journal_mode=WAL")
    return str(folder / "shop.db"), lambda statement: db.execute(statement).fetchall()


def _mariadb(stack: ExitStack, _folder: Path) -> tuple[str, Ask]:
    server = binlog_server()
    stack.callback(server.end)
    given = {"host": "127.0.0.1", "port": server.port, "user": USER, "password": PASSWORD, "database": DATABASE}
    db: Any = pymysql.connect(**given, autocommit=True)
    stack.callback(db.close)

    def ask(statement: str) -> list[tuple[Any, ...]]:
        with db.cursor() as cursor:
            cursor.execute(statement)
            return list(cursor.fetchall())

    return server.url, ask


def _postgres(stack: ExitStack, _folder: Path) -> tuple[str, Ask]:
    server = CdcPostgres(VERSIONS[-1])
    stack.callback(server.end)
    db: Any = stack.enter_context(psycopg.connect(server.url, autocommit=True))

    def ask(statement: str) -> list[tuple[Any, ...]]:
        cursor = db.execute(statement)
        return list(cursor.fetchall()) if cursor.description else []

    return server.url, ask


DATABASES = {"maria": _mariadb, "lite": _sqlite, "pg": _postgres}


@pytest.fixture
def servers() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def _change(ask: Ask, dice: random.Random) -> None:
    page, n = dice.choice(["'a'", "'b'", "NULL"]), dice.randrange(3)
    ask(
        dice.choice(
            [
                f"INSERT INTO visits VALUES ({page}, {n}), ({page}, {n})",
                f"UPDATE visits SET page = {page} WHERE n = {n}",
                f"DELETE FROM visits WHERE page = {page}",
                f"UPDATE visits SET n = {dice.randrange(3)} WHERE n = {n}",
                f"UPDATE {dice.choice(['accounts', 'orders', 'zones', 'words'])} SET v = v + 1 WHERE id = {n + 1}",
            ]
        )
    )


@pytest.mark.parametrize(
    "captures",
    [("lite",), pytest.param(("maria", "lite", "pg"), marks=pytest.mark.long)],
    ids=["sqlite", "all"],
)
def test_a_table_without_a_key_is_copied_among_others(
    servers: ExitStack, tmp_path: Path, captures: tuple[str, ...]
) -> None:
    text, asks = "[broker]\nport = 0\n", {}
    for capture in captures:
        url, asks[capture] = DATABASES[capture](servers, tmp_path)
        text += FILE[capture].format(url=url)
        for statement in MAKE:
            asks[capture](statement)
    synced = [(capture, table) for capture in asks for table in ("visits", "words", "accounts")]
    text += "".join(SYNC.format(capture=capture, schema=SCHEMAS[capture], table=table) for capture, table in synced)
    (tmp_path / "refused").mkdir()
    for capture in captures:
        schema = SCHEMAS[capture]
        cache = CACHE.format(capture=capture, schema=schema)
        checked = RunningStack(tmp_path / "refused", text + cache).run("up", "--check")
        assert checked.returncode != 0
        assert f"table {schema}.visits behind topic {capture}.{schema}.visits has no key" in " ".join(
            (checked.stdout + checked.stderr).split()
        )
    stack = RunningStack(tmp_path, text)
    assert stack.run("up", "--check").returncode == 0
    stack.start()
    seed = int(os.environ.get("HEADRACE_SEED", random.randrange(10**6)))
    print("seed", seed)
    dice = random.Random(seed)
    try:
        stack.wait_until_fine(PATIENCE_S)
        for round_number in range(2):
            for _ in range(15):
                for ask in asks.values():
                    _change(ask, dice)
            stack.kill_some(dice, 3)
            if round_number == 1:
                for capture, ask in asks.items():
                    ask("DROP INDEX by_id ON words" if capture == "maria" else "DROP INDEX by_id")
            for _ in range(10):
                for ask in asks.values():
                    _change(ask, dice)
        for ask in asks.values():
            ask("INSERT INTO visits VALUES ('z', 9), ('z', 9)")
        last: list[str] = []

        def is_in_step(*command: str) -> bool:
            done = stack.run(*command, "--bootstrap", stack.state()["bootstrap"])
            last.append(done.stdout + done.stderr)
            return done.returncode == 0

        try:
            for command in [("sync", "verify", "--source"), *(("cdc", "verify", capture) for capture in asks)]:
                wait_until(
                    lambda command=command: is_in_step(*command),  # type: ignore[misc]
                    f"{command} finds differences",
                    patience_s=PATIENCE_S,
                )
        except AssertionError as error:
            raise AssertionError(last[-1]) from error
    finally:
        stack.end()
    for capture, table in synced:
        columns = "page, n" if table == "visits" else "id, v"
        with sqlite3.connect(tmp_path / f"{capture}_{table}.sqlite") as copy:
            copied = Counter(copy.execute(f"SELECT {columns} FROM copy").fetchall())
        copy.close()
        assert copied == Counter(map(tuple, asks[capture](f"SELECT {columns} FROM {table}"))), (capture, table)
