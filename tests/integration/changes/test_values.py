"""The same values in every database come out as the same Python values and the same JSON, as far as it has them."""

import datetime as dt
import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from decimal import Decimal
from pathlib import Path
from typing import Any

import psycopg
import pytest

from headrace.connect.changes import RowChange, changes
from headrace.testing.contracts.changes import read
from tests.integration.cdc_mysql.shop import connect
from tests.integration.cdc_postgres_server import VERSIONS, CdcPostgres
from tests.servers.mysql import binlog_server

ROW = {
    "id": 1,
    "big": 2**62,
    "amount": Decimal("12345678901234567.8901"),
    "ratio": 0.1,
    "name": "naïve 😀 'quoted' \\ \n",
    "data": bytes(range(256)),
    "day": dt.date(2024, 2, 29),
    "local": dt.datetime(2024, 2, 29, 23, 59, 59, 123456),  # noqa: DTZ001 - a time without a zone
    "moment": dt.datetime(2024, 2, 29, 21, 59, 59, 123456, dt.UTC),
    "empty": None,
}
EMPTY = {**dict.fromkeys(ROW), "id": 2}
NAMES = ", ".join(ROW)


def of_postgres() -> Iterator[tuple[str, Any]]:
    server = CdcPostgres(VERSIONS[-1])
    with psycopg.connect(server.url, autocommit=True) as db:
        db.execute("set timezone = 'America/New_York'")
        db.execute(
            "create table t (id int primary key, big bigint, amount numeric(30, 4), ratio double precision, name text, "
            "data bytea, day date, local timestamp, moment timestamptz, empty text)"
        )

        def write(row: dict[str, Any]) -> None:
            values = ", ".join(f"%({name})s" for name in row)
            db.execute(f"insert into t ({NAMES}) values ({values})", row)

        yield server.url, write
    server.end()


def of_mysql() -> Iterator[tuple[str, Any]]:
    server = binlog_server()
    with closing(connect(server, database="shop")) as connection, connection.cursor() as db:
        db.execute("SET time_zone = '-05:00'")
        db.execute(
            "CREATE TABLE t (id INT PRIMARY KEY, big BIGINT, amount DECIMAL(30, 4), ratio DOUBLE, "
            "name TEXT CHARACTER SET utf8mb4, data BLOB, day DATE, local DATETIME(6), moment TIMESTAMP(6) NULL, "
            "empty TEXT)"
        )

        def write(row: dict[str, Any]) -> None:
            moment = row["moment"]
            there = moment and moment.astimezone(dt.timezone(dt.timedelta(hours=-5))).replace(tzinfo=None)
            values = ", ".join(f"%({name})s" for name in row)
            db.execute(f"INSERT INTO t ({NAMES}) VALUES ({values})", {**row, "moment": there})

        yield server.url, write
    server.end()


@pytest.fixture(scope="module", params=[of_postgres, of_mysql], ids=["postgres", "mysql"])
def source(request: pytest.FixtureRequest) -> Iterator[tuple[str, Any]]:
    yield from request.param()


def found_in(change: RowChange) -> dict[str, Any]:
    assert change.after is not None
    return {name: change.after[name] for name in ROW}


def test_logged_and_read_values_are_those_that_were_written(source: tuple[str, Any]) -> None:
    url, write = source
    with changes(url, ["t"]) as stream:
        write(ROW)
        write(EMPTY)
        logged = read(stream, 2)
    with changes(url, ["t"], snapshot=True) as stream:
        rows = read(stream, 2)
    for found in (logged, rows):
        assert found_in(found[0]) == ROW
        assert found_in(found[1]) == EMPTY
    shown = json.loads(json.dumps(logged[0].as_json()))["after"]
    assert shown["amount"] == "12345678901234567.8901"
    assert shown["moment"] == "2024-02-29T21:59:59.123456+00:00"
    assert shown["local"] == "2024-02-29T23:59:59.123456"
    assert shown["day"] == "2024-02-29"
    assert shown["empty"] is None
    assert logged[0].key == {"id": 1}


def test_sqlite_has_numbers_texts_and_blobs(tmp_path: Path) -> None:
    path = tmp_path / "t.db"
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        db.execute("CREATE TABLE t (id INTEGER PRIMARY KEY, big INTEGER, ratio REAL, name TEXT, data BLOB, empty TEXT)")
        with changes(f"sqlite:///{path}", ["t"]) as stream:
            names = ("id", "big", "ratio", "name", "data", "empty")
            db.execute("INSERT INTO t VALUES (?, ?, ?, ?, ?, ?)", [ROW[name] for name in names])
            logged = read(stream, 1)
        with changes(f"sqlite:///{path}", ["t"], snapshot=True) as stream:
            rows = read(stream, 1)
    for found in (logged, rows):
        assert found[0].after == {name: ROW[name] for name in names}
