"""Tables read again between marks in the log, while writers go on and the reader is cut off: the copy is the tables."""

import json
import os
import random
import threading
import time

import pymysql
import pytest

from headrace.broker.embedded import Broker
from headrace.client.address import parse_bootstrap
from headrace.client.admin import describe_configs
from headrace.client.cluster import Cluster
from headrace.connect.capture.running import make_runtime
from headrace.connect.capture.settings import from_section
from headrace.connect.change import Change
from headrace.connect.errors import SourceRefused
from headrace.connect.filters import Filters
from headrace.connect.mysql import MemoryHistory, MysqlSettings, MysqlSource
from headrace.connect.mysql.signal_table import request_snapshot, stop_snapshot
from tests.integration.cdc_mysql.shop import Cursor, Worker, assert_same, connect, follower_of, make_tables, settings_of
from tests.integration.cdc_postgres_topics import read_topic, replica_of, wait_for
from tests.integration.cdc_replica import Follower
from tests.reading import wait_for_markers
from tests.servers.mariadb import MariadbServer

TABLES = ["shop.items", "shop.pairs", "shop.many"]
ROWS = 2000


def write_many(server: MariadbServer, chance: random.Random, stop: threading.Event) -> None:
    """Changes all over a large table, its keys among them, until told to stop."""
    db = connect(server, database="shop").cursor()
    while not stop.is_set():
        number = chance.randrange(ROWS)
        db.execute(
            chance.choice(
                [
                    f"UPDATE many SET v = v + 1 WHERE id BETWEEN {number} AND {number + 20}",
                    f"UPDATE IGNORE many SET id = {ROWS} - id, v = v + 1 WHERE id = {number}",
                    f"DELETE FROM many WHERE id = {number}",
                    f"REPLACE INTO many (id, v) VALUES ({number}, 0)",
                ]
            )
        )


def test_tables_are_read_again_beside_writers_and_cuts(server: MariadbServer, db: Cursor) -> None:
    """The copy is strict: every image before a change must be what it holds, so a stale row would be noticed."""
    seed = int(os.environ.get("HEADRACE_SEED", random.randrange(1 << 30)))
    print(f"HEADRACE_SEED={seed}")
    chance = random.Random(seed)
    make_tables(db)
    db.execute("CREATE TABLE many (id INT PRIMARY KEY, v INT)")
    db.executemany("INSERT INTO many VALUES (%s, 0)", [(number,) for number in range(ROWS)])
    settings = settings_of(server, batch_rows=100, capture="mine")
    history = MemoryHistory()
    follower = Follower(lambda: MysqlSource(settings, history))
    follower.run()
    stop = threading.Event()
    threads = [
        threading.Thread(target=Worker(connect(server), random.Random(seed)).work, args=(300,)),
        threading.Thread(target=write_many, args=(server, random.Random(seed + 1), stop)),
    ]
    for thread in threads:
        thread.start()
    read, cuts, is_altered = 0, 0, False

    def read_on() -> None:
        """Until nothing is left to be read again."""
        nonlocal read, cuts, is_altered
        is_begun = False
        while not is_begun or "incremental" in (follower.position or {}):
            if follower.source is None:
                follower.start()
            is_lost = is_begun and cuts < 5 and chance.random() < 0.2
            batch = follower.step(0.05, lose=is_lost)
            if batch is not None and is_lost:
                cuts += 1
            elif batch is not None:
                read += sum(isinstance(event, Change) and event.op == "r" for event in batch.events)
                is_begun |= "incremental" in batch.position
            if read > ROWS // 4 and not is_altered:
                is_altered = True
                db.execute("ALTER TABLE many ADD note VARCHAR(10) DEFAULT 'x' FIRST")

    try:
        request_snapshot(settings, TABLES)
        read_on()
        assert (cuts, is_altered) == (5, True)
        assert read > ROWS * 0.7
        request_snapshot(settings, ["shop.many"])
        read_on()
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    follower.drain(0.5)
    follower.crash()
    assert_same(db, follower.replica)
    assert all("note" in row for row in follower.replica.tables["shop.many"].values())
    assert {event.table.full_name for event in follower.replica.schema_changes} == {"shop.many"}
    assert db.execute("SELECT * FROM headrace_signal") == 0


def test_signals_come_through_the_table_and_can_be_called_off(server: MariadbServer, db: Cursor) -> None:
    """A table without a key of its own is read in the order of the chosen one; the signal table is the user's own."""
    db.execute("CREATE TABLE t (id BINARY(2) NOT NULL, v INT)")
    db.execute("CREATE TABLE asked (id VARCHAR(42) PRIMARY KEY, type VARCHAR(32), data VARCHAR(2048))")
    db.execute("INSERT INTO t VALUES (0x0000, 1), (0x00ff, 2), (0x2700, 3), (0xffff, 4)")
    filters = Filters(key_columns={"shop.t": ["id"]}, exclude_tables=["shop.none"])
    settings = settings_of(server, signal_table="shop.asked", filters=filters, batch_rows=2, snapshot="never")
    follower = Follower(lambda: MysqlSource(settings, MemoryHistory()))
    follower.start()
    asked = json.dumps({"data-collections": ["shop.t", "shop.nowhere"]})
    db.execute("INSERT INTO asked VALUES ('1', 'execute-snapshot', %s)", (asked,))
    rows = []
    while len(rows) < 4:
        batch = follower.step(0.5)
        rows += [event.after for event in (batch.events if batch else []) if isinstance(event, Change)]
    assert rows == [(b"\x00\x00", 1), (b"\x00\xff", 2), (b"'\x00", 3), (b"\xff\xff", 4)]
    deadline = time.monotonic() + 30
    while "incremental" in (follower.position or {}):  # until the marks around the last chunk have come
        follower.step(0.5)
        assert time.monotonic() < deadline
    db.execute("INSERT INTO asked VALUES ('2', 'execute-snapshot', %s)", (asked,))
    stop_snapshot(settings)
    db.execute("INSERT INTO t VALUES (0xfffe, 5)")
    events = []
    while not events or events[-1].op != "c":
        batch = follower.step(0.5)
        events += [event for event in (batch.events if batch else []) if isinstance(event, Change)]
    follower.crash()
    assert [event.after for event in events if event.op == "c"] == [(b"\xff\xfe", 5)]
    assert len(events) < 5, "it was called off before it was read to its end"


def test_what_makes_marks_impossible_is_told(server: MariadbServer, db: Cursor) -> None:
    db.execute("CREATE TABLE t (id INT PRIMARY KEY)")

    def refusal(settings: MysqlSettings, table: str = "shop.t") -> str:
        with pytest.raises(SourceRefused) as refused:
            request_snapshot(settings, [table])
        return str(refused.value)

    assert "table shop.tt is not captured (captured are: shop.t)" in refusal(settings_of(server), "shop.tt")
    everywhere = settings_of(server, url=server.url.removesuffix("/shop"), filters=Filters(include_tables=["shop.t"]))
    assert 'add signal_table = "DATABASE.headrace_signal"' in refusal(everywhere)
    root = pymysql.connect(unix_socket=str(server.folder / "socket"), user="root").cursor()
    root.execute("CREATE USER marker@'%' IDENTIFIED BY 'right'")
    root.execute("GRANT SELECT, REPLICATION SLAVE, REPLICATION CLIENT, RELOAD ON *.* TO marker@'%'")
    marker = settings_of(server, url=f"mysql://marker:right@127.0.0.1:{server.port}/shop")
    try:
        said = refusal(marker)
        assert "user marker may not write to shop.headrace_signal" in said
        assert "CREATE TABLE IF NOT EXISTS `shop`.`headrace_signal`" in said
        for statement in said.partition(": ")[2].split("; "):
            root.execute(statement)
        request_snapshot(marker, ["shop.t"])
        follower = follower_of(server)
        db.execute("SET GLOBAL read_only = ON")
        assert "the server is read-only" in refusal(settings_of(server))
        db.execute("SET GLOBAL read_only = OFF")
        follower.run()
        follower.crash()
    finally:
        db.execute("SET GLOBAL read_only = OFF")
        root.execute("DROP USER marker@'%'")
    db.execute("CREATE OR REPLACE TABLE headrace_signal (id INT PRIMARY KEY)" if server.is_mariadb else "SELECT 1")
    if server.is_mariadb:
        assert "the signal table shop.headrace_signal does not take a mark" in refusal(settings_of(server))


def test_a_capture_makes_its_topics_and_reads_anew_when_asked(server: MariadbServer, db: Cursor) -> None:
    db.execute("CREATE TABLE t (id INT PRIMARY KEY, v INT)")
    db.execute("CREATE TABLE nothing (id INT PRIMARY KEY)")
    db.execute("INSERT INTO t VALUES (1, 1), (2, 2), (3, 3)")
    capture = from_section("shop", {"url": server.url, "tables": [r"shop\..*"], "batch_rows": 2})
    with Broker(durability="os") as broker, Cluster(parse_bootstrap(broker.bootstrap_servers)) as cluster:
        runtime = make_runtime(capture, parse_bootstrap(broker.bootstrap_servers), cluster)
        thread = threading.Thread(target=runtime.run)
        thread.start()
        try:
            wait_for(lambda: runtime.progress.records == 3)
            configs = {config.name: config.value for config in describe_configs(cluster, "shop.shop.nothing")}
            assert configs["cleanup.policy"] == "compact"
            capture.kind.read_anew(capture.source, ["shop.t", "shop.nothing"])
            wait_for(lambda: runtime.progress.records == 6)
            db.execute("UPDATE t SET v = 4 WHERE id = 3")
            wait_for(lambda: runtime.progress.records == 7)
        finally:
            runtime.stop()
            thread.join()
        wait_for_markers(broker.bootstrap_servers, "shop.shop.t")
        records = read_topic(broker.bootstrap_servers, "shop.shop.t")
        topics = {topic.name for topic in cluster.topics() if not topic.name.startswith("_")}
    assert replica_of(records) == {1: {"id": 1, "v": 1}, 2: {"id": 2, "v": 2}, 3: {"id": 3, "v": 4}}
    told = [(value["op"], value["source"]["snapshot"]) for _, value in records if value]
    assert told == [("r", "true")] * 3 + [("r", "incremental")] * 3 + [("u", "false")]
    assert topics == {"shop.shop.t", "shop.shop.nothing"}, "nothing is told of the signal table"
