"""However large a table is, and however large its rows are: what a reader holds of it stays the same."""

import json
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pytest
from confluent_kafka import Producer

import headrace
from tests.integration.cdc_mysql.shop import connect
from tests.integration.cdc_postgres_server import VERSIONS, CdcPostgres
from tests.servers.mariadb import MariadbServer
from tests.servers.mysql import binlog_server

SIZES = [10_000, 50_000, pytest.param(1_000_000, marks=pytest.mark.long)]
TEXT = "some text that is not so short " * 3
MOST_MIB = 110  # what a reader has that has read nothing is about 30 of PostgreSQL's, 45 of a topic's
READER = """
import json, sys, headrace
count = 0
with headrace.changes(sys.argv[1], json.loads(sys.argv[2]), snapshot=True) as stream:
    while count < int(sys.argv[3]):
        count += stream.next(60) is not None
print(next(line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM")))
"""


def peak_mib(url: str, tables: list[str], count: int) -> int:
    """Of a process of its own; `getrusage` would tell of the one that started it, too."""
    arguments = [sys.executable, "-c", READER, url, json.dumps(tables), str(count)]
    return int(subprocess.run(arguments, check=True, capture_output=True, text=True, timeout=600).stdout) // 1024


@pytest.fixture(scope="module")
def postgres() -> Iterator[CdcPostgres]:
    made = CdcPostgres(VERSIONS[-1])
    yield made
    made.end()


@pytest.fixture(scope="module")
def mariadb() -> Iterator[MariadbServer]:
    made = binlog_server()
    yield made
    made.end()


@pytest.fixture(scope="module")
def broker() -> Iterator[headrace.Broker]:
    with headrace.Broker(durability="os") as made:
        yield made


def fill_sqlite(path: Path, count: int, text: str) -> str:
    with closing(sqlite3.connect(path)) as db:
        db.execute("CREATE TABLE t (id INTEGER PRIMARY KEY, v TEXT)")
        db.executemany("INSERT INTO t VALUES (?, ?)", ((id_, text) for id_ in range(count)))
        db.commit()
    return f"sqlite:///{path}"


def fill_postgres(server: CdcPostgres, count: int, text: str) -> str:
    with psycopg.connect(server.url, autocommit=True) as db:
        db.execute("drop table if exists t")
        db.execute("create table t (id int primary key, v text)")
        db.execute("alter table t alter v set storage external")
        db.execute("insert into t select i, %s from generate_series(1, %s) i", [text, count])
    return server.url


def fill_mariadb(server: MariadbServer, count: int, text: str) -> str:
    with closing(connect(server, database="shop")) as connection, connection.cursor() as db:
        db.execute("DROP TABLE IF EXISTS t")
        db.execute("CREATE TABLE t (id INT PRIMARY KEY, v LONGTEXT)")
        db.execute("INSERT INTO t SELECT seq, %s FROM seq_1_to_" + str(count), (text,))
    return server.url


def fill_topic(broker: headrace.Broker, count: int, text: str) -> str:
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "linger.ms": 20, "log_level": 0})
    topic = f"t{count}"
    for id_ in range(count):
        while True:
            try:
                producer.produce(topic, key=str(id_), value=json.dumps({"id": id_, "v": text}))
                break
            except BufferError:
                producer.poll(0.1)
    assert producer.flush(120) == 0
    return f"kafka://{broker.bootstrap_servers}/{topic}"


@pytest.fixture
def fill(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[int, str], str]:
    if request.param == "sqlite":
        return lambda count, text: fill_sqlite(tmp_path / "t.db", count, text)
    server: Any = request.getfixturevalue(request.param)
    if request.param == "mariadb" and not server.is_mariadb:
        pytest.skip("sequences are MariaDB's")
    made = {"postgres": fill_postgres, "mariadb": fill_mariadb, "broker": fill_topic}[request.param]
    return lambda count, text: made(server, count, text)


@pytest.mark.timeout(900)
@pytest.mark.parametrize("count", SIZES)
@pytest.mark.parametrize("fill", ["sqlite", "postgres", "mariadb", "broker"], indirect=True)
def test_a_snapshot_of_any_size_is_not_held(fill: Callable[[int, str], str], count: int) -> None:
    url = fill(count, TEXT)
    assert peak_mib(url, [] if url.startswith("kafka") else ["t"], count) < MOST_MIB


@pytest.mark.parametrize("fill", ["sqlite", "postgres", "mariadb"], indirect=True)
def test_rows_of_a_megabyte_are_not_gathered(fill: Callable[[int, str], str]) -> None:
    url = fill(300, "x" * 1_000_000)
    assert peak_mib(url, ["t"], 300) < 2 * MOST_MIB
