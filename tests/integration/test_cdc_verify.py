"""`headrace cdc verify`: tables of every kind of database compared with their topics, row by row, while they change."""

import contextlib
import json
import sqlite3
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
import pytest
from click.testing import CliRunner

import headrace
from headrace.cli.main import cli
from headrace.client.address import parse_bootstrap
from headrace.client.cluster import Cluster
from headrace.client.offsets import bounds
from headrace.client.writer import NewRecord, Writer
from headrace.connect.capture.running import make_runtime
from headrace.connect.capture.settings import CaptureSettings, from_section, kind_of
from headrace.connect.capture.verification import TableReport, verify
from headrace.retry import Backoff
from tests.integration.cdc_mysql.shop import connect as connect_mysql
from tests.integration.cdc_postgres_server import CdcPostgres
from tests.integration.cdc_postgres_topics import CdcWorker, read_topic, wait_for
from tests.servers.mysql import binlog_server

ROWS = 400
SNAPSHOT_ROWS = 3000


@dataclass
class Database:
    """One kind: its section, and how to run a statement in it."""

    section: dict[str, Any]
    schema: str
    execute: Callable[[str], None]


@pytest.fixture(scope="module")
def postgres() -> Iterator[CdcPostgres]:
    server = CdcPostgres(16)
    yield server
    server.end()


@pytest.fixture(params=["log", "triggers", "sqlite", "mysql"])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Database]:
    with contextlib.ExitStack() as stack:
        if request.param == "sqlite":
            file = stack.enter_context(
                contextlib.closing(sqlite3.connect(tmp_path / "shop.db", check_same_thread=False))
            )
            file.isolation_level = None
            file.execute("PRAGMA busy_timeout = 10000")
            lock = threading.Lock()

            def write(statement: str) -> None:
                with lock:
                    file.execute(statement)

            yield Database({"url": f"sqlite:///{tmp_path}/shop.db"}, "main", write)
        elif request.param == "mysql":
            server = binlog_server()
            stack.callback(server.end)
            connection = connect_mysql(server)
            stack.callback(connection.close)
            cursor = connection.cursor()
            cursor.execute("CREATE DATABASE IF NOT EXISTS shop CHARACTER SET utf8mb4")
            cursor.execute("USE shop")
            yield Database({"url": server.url, "heartbeat_s": 0.3}, "shop", cursor.execute)
        else:
            url = request.getfixturevalue("postgres").url
            section = {"url": url, "method": request.param, "heartbeat_s": 0.3}
            with psycopg.connect(url, autocommit=True) as db:
                execute: Any = db.execute
                execute("drop schema public cascade; create schema public; drop schema if exists headrace_c cascade")
                yield Database(section, "public", execute)


@contextlib.contextmanager
def captured(settings: CaptureSettings, bootstrap: str) -> Iterator[None]:
    addresses = parse_bootstrap(bootstrap)
    cluster = Cluster(addresses)
    runtime = make_runtime(settings, addresses, cluster, backoff=Backoff(0.1, 0.5))
    failed: list[BaseException] = []

    def run() -> None:
        try:
            runtime.run()
        except BaseException as error:
            failed.append(error)
            raise

    thread = threading.Thread(target=run)
    thread.start()
    try:
        wait_for(lambda: runtime.progress.batches > 0 or bool(failed))
        yield
    finally:
        runtime.stop()
        thread.join(30)
        cluster.close()
        assert not thread.is_alive()
        assert not failed


def reports(settings: CaptureSettings, bootstrap: str, *tables: str) -> dict[str, TableReport]:
    addresses = parse_bootstrap(bootstrap)
    return {one.table: one for one in verify(settings, tables, lambda: Cluster(addresses))}


def test_a_table_that_changes_equals_its_topic_and_what_is_wrong_is_named(database: Database) -> None:
    execute, schema = database.execute, database.schema
    execute("CREATE TABLE items (id INT PRIMARY KEY, name VARCHAR(40), price DECIMAL(12, 3), secret VARCHAR(20))")
    execute("CREATE TABLE pairs (x VARCHAR(8) NOT NULL, y INT NOT NULL, z TEXT, PRIMARY KEY (x, y))")
    for number in range(ROWS):
        execute(f"INSERT INTO items VALUES ({number}, 'näme {number}', {number}.125, 's{number}')")
        execute(f"INSERT INTO pairs VALUES ('k{number % 7}', {number}, NULL)")
    section = {**database.section, "prefix": "srv", "partitions": 2, "mask_columns": [rf"{schema}\.items\.secret"]}
    settings = from_section("c", section)
    done = threading.Event()

    def write() -> None:
        number = 0
        while not done.is_set() and number < 3000:
            number += 1
            row = number * 37 % ROWS
            execute(f"UPDATE items SET price = price + 1 WHERE id = {row}")
            execute(f"DELETE FROM pairs WHERE y = {row}")
            execute(f"INSERT INTO pairs VALUES ('n{row % 5}', {row}, 'again')")

    writer = threading.Thread(target=write)
    with headrace.Broker(durability="os") as broker, captured(settings, broker.bootstrap_servers):
        writer.start()
        try:
            found = reports(settings, broker.bootstrap_servers)
        finally:
            done.set()
            writer.join()
        assert {name: one.report and one.report.differences for name, one in found.items()} == {
            f"{schema}.items": [],
            f"{schema}.pairs": [],
        }
        assert all(one.is_equal for one in found.values())
        # The last of what was written has arrived too: what is forged now is not written over.
        assert all(one.is_equal for one in reports(settings, broker.bootstrap_servers).values())
        _spoil(broker.bootstrap_servers, f"srv.{schema}.items")
        (report,) = reports(settings, broker.bootstrap_servers, f"{schema}.items").values()
    assert report.report is not None
    assert [(one.key, one.kind, one.columns) for one in report.report.differences] == [
        ("3", "different", ("name", "price", "secret")),
        ("5", "extra", ()),  # in the table, and not in the topic
        ("99999", "missing", ()),
    ]


def test_a_capture_that_is_killed_while_it_reads_the_tables_reads_on(
    database: Database, request: pytest.FixtureRequest
) -> None:
    """Killed outright, each time further on, while the tables change: no row is lost, and none is read twice."""
    execute, schema = database.execute, database.schema
    execute("CREATE TABLE items (id INT PRIMARY KEY, v INT, t VARCHAR(20))")
    execute("CREATE TABLE bag (v INT, t VARCHAR(20))")
    execute("CREATE TABLE later (x VARCHAR(8) NOT NULL, y INT NOT NULL, PRIMARY KEY (x, y))")
    if schema == "public":
        execute("ALTER TABLE bag REPLICA IDENTITY FULL")
    for first in range(0, SNAPSHOT_ROWS, 500):
        numbers = range(first, first + 500)
        execute("INSERT INTO items VALUES " + ", ".join(f"({number}, 0, 't')" for number in numbers))
        execute("INSERT INTO later VALUES " + ", ".join(f"('x{number % 3}', {number})" for number in numbers))
    execute("INSERT INTO bag VALUES " + ", ".join(f"({number % 7}, 'b')" for number in range(300)))
    kind = kind_of(database.section["url"], database.section.get("method", "log"))
    few = {"batch_rows": 50} if "batch_rows" in kind.options else {}  # then there are many places to be killed at
    section = {**database.section, "prefix": "srv", **few}
    topics = [f"srv.{schema}.{name}" for name in ("items", "later")]
    with headrace.Broker() as broker, Cluster(parse_bootstrap(broker.bootstrap_servers)) as cluster:
        told = {"name": "c", "section": section, "bootstrap": broker.bootstrap_servers}
        workers = [CdcWorker(told)]
        request.addfinalizer(lambda: [worker.end() for worker in workers])

        def wait_until_read(count: int) -> None:
            def is_read() -> bool:
                assert workers[-1].is_running, "\n".join(workers[-1].lines)
                there = {found.name for found in cluster.topics()}
                places = [place for topic in topics if topic in there for place in cluster.partitions(topic)]
                return sum(bound.end for bound in bounds(cluster, places, committed=True).values()) >= count

            wait_for(is_read, lambda: "\n".join(workers[-1].lines))

        for kill in range(3):
            wait_until_read(kill * SNAPSHOT_ROWS // 2 + 1)
            workers[-1].kill()
            execute(f"UPDATE items SET v = v + 1 WHERE id BETWEEN {kill * 300} AND {kill * 300 + 600}")
            execute(f"DELETE FROM later WHERE y BETWEEN {kill * 300} AND {kill * 300 + 20}")
            execute(f"INSERT INTO later VALUES ('n', {kill})")
            execute(f"INSERT INTO bag VALUES ({kill}, 'new')")
            workers.append(CdcWorker(told))
        wait_until_read(2 * SNAPSHOT_ROWS - 100)  # some were deleted before they were read
        found = reports(from_section("c", section), broker.bootstrap_servers)
        rows = read_topic(broker.bootstrap_servers, topics[0])
        workers[-1].stop()
    assert {name: one.is_equal for name, one in found.items()} == {
        f"{schema}.{name}": True for name in ("items", "bag", "later")
    }, found
    seen = Counter(json.dumps(key) for key, value in rows if value and value["op"] == "r")
    assert max(seen.values()) == 1, "a row was read again, though it was committed before the kill"


def _spoil(bootstrap: str, topic: str) -> None:
    """What nobody should: records of other rows than the table has."""
    row = {"name": "wrong", "price": "3.125", "secret": "********"}
    with Cluster(parse_bootstrap(bootstrap)) as cluster:
        writer = Writer(cluster, topic)
        for number, value in (
            (3, {"op": "u", "before": None, "after": {"id": 3, "name": "wrong"}}),
            (5, None),
            (99999, {"op": "c", "before": None, "after": {"id": 99999, **row}}),
        ):
            key = json.dumps({"id": number}, separators=(",", ":")).encode()
            writer.add(NewRecord(key, None if value is None else json.dumps(value).encode(), 1))
        writer.flush()


def test_the_command(postgres: CdcPostgres, tmp_path: Path) -> None:
    postgres.execute(
        "drop schema public cascade; create schema public; drop schema if exists headrace_c cascade",
        "create table t (id int primary key, v text)", "insert into t values (1, 'a')",
        "create table u (v text)", "alter table u replica identity full", "insert into u values ('a')",
    )  # fmt: skip
    section = {"url": postgres.url, "slot": "verified", "prefix": "srv", "heartbeat_s": 0.3}
    config = tmp_path / "headrace.toml"
    config.write_text("[cdc.shop]\n" + "\n".join(f"{key} = {json.dumps(value)}" for key, value in section.items()))
    with headrace.Broker(durability="os") as broker:
        servers = broker.bootstrap_servers
        arguments = ["cdc", "verify", "shop", "--config", str(config), "--bootstrap", servers]
        never = CliRunner().invoke(cli, arguments)
        assert "capture 'shop' has not run yet: headrace cdc start shop" in str(never.exception or never.output)
        with captured(from_section("shop", section), servers):
            good = CliRunner().invoke(cli, [*arguments, "public.t"])
            assert good.exit_code == 0, good.output
            assert "public.t" in good.output
            both = CliRunner().invoke(cli, [*arguments, "--json"])
            assert both.exit_code == 0
            told = {one["table"]: one for one in json.loads(both.output)}
            assert told["public.t"] == {
                "table": "public.t", "topic": "srv.public.t", "equal": True, "note": "", "table_rows": 1,
                "topic_rows": 1, "differences": 0, "keys": [],
            }  # fmt: skip
            assert told["public.u"] == told["public.t"] | {"table": "public.u", "topic": "srv.public.u"}  # no key
        postgres.execute("insert into t values (2, 'b')")
        late = CliRunner().invoke(cli, [*arguments, "public.t", "--timeout", "0.5"])
        assert late.exit_code != 0
        assert "capture 'shop' has not come within" in str(late.exception or late.output)
    postgres.drop_slot("verified")
