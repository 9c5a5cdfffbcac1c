"""Sink process, stores and broker killed at random: afterwards every target is the table that the topic stands for.

`HEADRACE_KILLS=50` kills more often; a failure prints the seed for `HEADRACE_SEED`.
"""

import json
import os
import random
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import deltalake
import duckdb
import psycopg
import pymysql
import pytest
import redis
import tantivy

from headrace import Broker
from headrace.cli.sync import load_settings
from headrace.client.address import parse_bootstrap
from headrace.client.cluster import PATIENT, Cluster
from headrace.client.offsets import bounds
from headrace.client.reader import read_records
from headrace.client.writer import NewRecord, Writer
from headrace.connect.sync.registry import make_sink
from headrace.connect.sync.runner import connector
from headrace.connect.sync.status import status_of
from headrace.connect.sync.verification import verify
from headrace.stores.parquet.derived import read as read_parquet
from tests.integration.sync_topics import delete, make_topic, truncate, upsert
from tests.integration.table_sink_stores import PostgresServer
from tests.integration.waiting import wait_until
from tests.ports import free_port
from tests.servers.mariadb import DATABASE, PASSWORD, USER, MariadbServer
from tests.servers.redis import RedisServer

KILLS = int(os.environ.get("HEADRACE_KILLS", "6"))
SEED = int(os.environ.get("HEADRACE_SEED", random.randrange(2**32)))
TOPIC, PARTITIONS, KEYS = "shop.public.orders", 3, 300
ROOT = Path(__file__).parents[2]
Table = dict[int, tuple[Any, Any]]


@pytest.fixture
def stores() -> Iterator[tuple[PostgresServer, MariadbServer, RedisServer]]:
    made = (PostgresServer(), MariadbServer(), RedisServer())
    yield made
    for server in made:
        server.end()


class World:
    """Everything that can be killed, and the changes."""

    def __init__(self, folder: Path, stores: tuple[PostgresServer, MariadbServer, RedisServer]) -> None:
        self.folder = folder
        self.postgres, self.mariadb, self.redis = stores
        self.random = random.Random(SEED)
        self.port = free_port()
        self.broker = self._broker()
        self.bootstrap = f"127.0.0.1:{self.port}"
        self.file = folder / "headrace.toml"
        self.file.write_text(self._settings())
        self.worker = self._start_worker()
        self.turn = 0

    def _broker(self) -> Broker:
        made = Broker(self.folder / "broker", listen=f"127.0.0.1:{self.port}", own_process=True)
        made.start()
        return made

    def _settings(self) -> str:
        sinks: dict[str, dict[str, str]] = {
            "postgres": {"url": self.postgres.url, "table": "orders"},
            "mariadb": {"url": self.mariadb.url, "table": "orders"},
            "redis": {"url": self.redis.url, "prefix": "orders:"},
            "sqlite": {"path": str(self.folder / "target.sqlite"), "table": "orders"},
            "duckdb": {"path": str(self.folder / "target.duckdb"), "table": "orders"},
            "delta": {"path": str(self.folder / "delta")},
            "parquet": {"path": str(self.folder / "parquet")},
            "tantivy": {"path": str(self.folder / "index")},
        }
        sections = []
        for name, options in sinks.items():
            lines = [f"[sync.{name}]", f'topic = "{TOPIC}"', f'sink = "{name}"', "longest_pause_s = 0.5"]
            lines += ["batch_records = 150", *(f"{key} = {json.dumps(value)}" for key, value in options.items())]
            sections.append("\n".join(lines))
        return "\n\n".join(sections)

    def _start_worker(self) -> "subprocess.Popen[bytes]":
        arguments = [sys.executable, "-m", "tests.integration.sync_worker", str(self.file), self.bootstrap]
        with (self.folder / "worker.log").open("ab") as log:
            return subprocess.Popen(arguments, cwd=ROOT, stderr=log)

    def write_some(self) -> None:
        self.turn += 1
        records: list[NewRecord] = []
        for _ in range(400):
            key = self.random.randrange(KEYS)
            if self.random.random() < 0.2:
                records += delete(key)
            else:
                records.append(upsert(key, {"n": self.turn, "t": f"text {self.random.random()}"}))
        if self.turn % 4 == 3:
            middle = len(records) // 2  # so that no turn leaves an empty table
            records[middle:middle] = truncate(PARTITIONS, ts_us=self.turn)
        with Cluster(parse_bootstrap(self.bootstrap), retry=PATIENT.at_most(30)) as cluster:
            writer = Writer(cluster, TOPIC)
            for record in records:
                writer.add(record)
            writer.flush()

    def kill_something(self) -> None:
        # What is killed most is what this is about: the process that keeps in step.
        self.random.choice([self._kill_worker] * 3 + [self._kill_broker, self._kill_store, self._kill_store])()

    def _kill_worker(self) -> None:
        assert self.worker.poll() is None, (self.folder / "worker.log").read_text()
        self.worker.kill()
        self.worker.wait()
        self.worker = self._start_worker()

    def _kill_broker(self) -> None:
        os.kill(self.broker.pid, signal.SIGKILL)
        self.broker.stop()
        self.broker = self._broker()

    def _kill_store(self) -> None:
        store = self.random.choice([self.postgres, self.mariadb, self.redis])
        store.crash() if isinstance(store, PostgresServer) else store.kill()
        time.sleep(self.random.random() * 0.3)
        store.start()

    def end(self) -> None:
        self.worker.kill()
        self.worker.wait()
        self.broker.stop()

    # --- what should be, and what is

    def expected(self) -> Table:
        rows: Table = {}
        with Cluster(parse_bootstrap(self.bootstrap)) as cluster:
            partitions = cluster.partitions(TOPIC)
            for partition in partitions:
                mine: Table = {}
                ends = {partition: bounds(cluster, [partition])[partition].end}
                for records in read_records(cluster, {partition: 0}, until=ends):
                    for found in records:
                        record = found.record
                        key = json.loads(record.key or b"")["id"]
                        value = json.loads(record.value) if record.value is not None else None
                        if value is not None and value["op"] == "t":
                            mine.clear()
                        elif value is None or value["op"] == "d":
                            mine.pop(key, None)
                        else:
                            mine[key] = (value["after"]["n"], value["after"]["t"])
                rows |= mine
        return rows

    def actual(self) -> dict[str, Callable[[], Table]]:
        return {
            "postgres": self._of_postgres, "mariadb": self._of_mariadb, "redis": self._of_redis,
            "sqlite": self._of_sqlite, "duckdb": self._of_duckdb, "delta": self._of_delta,
            "parquet": lambda: _by_id(read_parquet(self.folder / "parquet").to_pylist()), "tantivy": self._of_tantivy,
        }  # fmt: skip

    def _of_postgres(self) -> Table:
        with psycopg.connect(self.postgres.url) as db:
            return _keyed(db.execute("SELECT id, n, t FROM orders").fetchall())

    def _of_mariadb(self) -> Table:
        connection = pymysql.connect(
            host="127.0.0.1", port=self.mariadb.port, user=USER, password=PASSWORD, database=DATABASE
        )
        with connection as db, db.cursor() as cursor:
            cursor.execute("SELECT id, n, t FROM orders")
            return _keyed(cursor.fetchall())

    def _of_redis(self) -> Table:
        with redis.Redis.from_url(self.redis.url, decode_responses=True) as client:
            rows = [client.hgetall(key) for key in client.scan_iter("orders:*")]
        return {int(row["id"]): (int(row["n"]), row["t"]) for row in rows}

    def _of_sqlite(self) -> Table:
        db = sqlite3.connect(self.folder / "target.sqlite")
        try:
            return _keyed(db.execute("SELECT id, n, t FROM orders").fetchall())
        finally:
            db.close()

    def _of_duckdb(self) -> Table:
        with duckdb.connect(str(self.folder / "target.duckdb")) as db:
            return _keyed(db.execute("SELECT id, n, t FROM orders").fetchall())

    def _of_delta(self) -> Table:
        return _by_id(deltalake.DeltaTable(str((self.folder / "delta").resolve())).to_pyarrow_table().to_pylist())

    def _of_tantivy(self) -> Table:
        index = tantivy.Index.open(str((self.folder / "index").resolve()))
        searcher = index.searcher()
        documents = [searcher.doc(address) for _, address in searcher.search(tantivy.Query.all_query(), 10_000).hits]
        return _by_id([json.loads(bytes(found["_source"][0])) for found in documents if found["_id"]])


def _keyed(rows: Any) -> Table:
    found = {row[0]: (row[1], row[2]) for row in rows}
    assert len(found) == len(rows)
    return found


def _by_id(rows: list[dict[str, Any]]) -> Table:
    return _keyed([(row["id"], row["n"], row["t"]) for row in rows])


def test_whatever_is_killed_targets_are_what_the_topic_says(
    tmp_path: Path, stores: tuple[PostgresServer, MariadbServer, RedisServer]
) -> None:
    print(f"HEADRACE_SEED={SEED}")
    world = World(tmp_path, stores)
    try:
        make_topic(world.bootstrap, TOPIC, PARTITIONS)
        for _ in range(KILLS):
            world.write_some()
            time.sleep(world.random.uniform(0.2, 2.5))  # a worker takes a second to begin
            world.kill_something()
        world.write_some()
        _wait_until_all_are_there(world)
        world.worker.kill()  # DuckDB and Tantivy give their files to one process at a time
        world.worker.wait()
        expected = world.expected()
        assert expected
        for name, read in world.actual().items():
            assert read() == expected, f"{name} differs; HEADRACE_SEED={SEED}"
        for settings in load_settings(world.file):
            sink = make_sink(settings, world.bootstrap)
            assert verify(settings, sink, connector(world.bootstrap, settings.name)).is_equal, settings.name
    finally:
        world.end()


def _wait_until_all_are_there(world: World) -> None:
    def lags() -> list[int | None]:
        with Cluster(parse_bootstrap(world.bootstrap)) as cluster:
            return [status_of(cluster, settings, 0).lag_records for settings in load_settings(world.file)]

    def is_done() -> bool:
        assert world.worker.poll() is None, (world.folder / "worker.log").read_text()
        return all(lag == 0 for lag in lags())

    wait_until(is_done, f"a sink does not catch up; HEADRACE_SEED={SEED}", patience_s=240)
