"""MariaDB as a source, on a real server: random work and DDL, source and server cut off at any moment."""

import contextlib
import itertools
import json
import os
import random
import threading
from collections.abc import Iterator
from typing import Any

import pymysql
import pytest

from headrace.broker.embedded import Broker
from headrace.client.address import parse_bootstrap
from headrace.client.cluster import Cluster
from headrace.connect.change import Change, SchemaChange, TransactionEnd
from headrace.connect.envelope import EnvelopeSettings, EnvelopeWriter
from headrace.connect.errors import InvalidConnectSetting, SchemaChangeBlocked, SourceRefused, SourceUnavailable
from headrace.connect.filters import Filters
from headrace.connect.mysql import MemoryHistory, MysqlSettings, MysqlSource, TopicHistory, rebuild_history
from headrace.connect.naming import TopicNames
from tests.integration.cdc_replica import Follower, Replica
from tests.servers.mariadb import PASSWORD, USER, MariadbServer

Cursor = Any


@pytest.fixture(scope="module")
def server() -> Iterator[MariadbServer]:
    server = MariadbServer()
    yield server
    server.end()


def _connect(server: MariadbServer, **more: Any) -> Any:
    given = {"host": "127.0.0.1", "port": server.port, "user": USER, "password": PASSWORD, "charset": "utf8mb4"}
    return pymysql.connect(**{**given, "autocommit": True, **more})


def _end_others(cursor: Cursor) -> None:
    others = "FROM information_schema.processlist WHERE id <> connection_id() AND user = %s"
    while cursor.execute(f"SELECT id {others}", (USER,)):
        for (left,) in cursor.fetchall():
            with contextlib.suppress(pymysql.err.OperationalError):
                cursor.execute(f"KILL {left}")


@pytest.fixture
def db(server: MariadbServer) -> Iterator[Cursor]:
    """A database of its own, empty."""
    connection = _connect(server)
    cursor = connection.cursor()
    cursor.execute("SET sql_mode = ''")
    _end_others(cursor)  # a test that failed may have left some, with locks
    cursor.execute("DROP DATABASE IF EXISTS shop")
    cursor.execute("CREATE DATABASE shop CHARACTER SET utf8mb4")
    cursor.execute("USE shop")
    yield cursor
    with contextlib.suppress(pymysql.err.MySQLError):
        connection.close()


def _settings(server: MariadbServer, **more: Any) -> MysqlSettings:
    return MysqlSettings(**{"url": server.url, "heartbeat_s": 0.5, **more})


def _follower(server: MariadbServer, **more: Any) -> Follower:
    history = MemoryHistory()
    return Follower(lambda: MysqlSource(_settings(server, **more), history))


def _make_tables(db: Cursor) -> None:
    db.execute(
        "CREATE TABLE items (id INT PRIMARY KEY, name VARCHAR(40) UNIQUE, price DECIMAL(20, 6), body TEXT, "
        "seen DATETIME(6))"
    )
    db.execute("CREATE TABLE pairs (x VARCHAR(8) NOT NULL, y INT NOT NULL, z LONGBLOB, PRIMARY KEY (x, y))")
    db.execute(
        "CREATE TABLE other (id INT AUTO_INCREMENT PRIMARY KEY, e ENUM('a', 'b', 'ü'), s SET('x', 'y'), b BIT(9))"
    )


_NUMBERS = itertools.count(1)  # of what is added


class _Worker:
    """Writes whatever comes to its mind."""

    def __init__(self, connection: Any, chance: random.Random) -> None:
        self._connection = connection
        self._db = connection.cursor()
        self._db.execute("USE shop")
        self._db.execute("SET sql_mode = ''")
        self._chance = chance

    def work(self, statements: int) -> None:
        done = 0
        while done < statements:
            self._db.execute("BEGIN")
            try:
                for _ in range(self._chance.randrange(1, 10)):
                    done += 1
                    with contextlib.suppress(pymysql.err.IntegrityError):
                        self._one()
                    if self._chance.random() < 0.05:
                        self._db.execute("SAVEPOINT here")
                        with contextlib.suppress(pymysql.err.IntegrityError):
                            self._one()
                        self._db.execute("ROLLBACK TO here")
                self._db.execute(self._chance.choice(["COMMIT", "COMMIT", "COMMIT", "ROLLBACK"]))
            except pymysql.err.OperationalError as error:
                if error.args[0] not in (1205, 1213):  # a deadlock of two writers is rolled back
                    raise

    def _one(self) -> None:
        chance = self._chance
        small = chance.randrange(15)
        text = chance.choice(["", "a", "ä€😀", "x" * 300, "nul\0", None])
        name = chance.choice([None, *"abcdefgh"])
        statements: list[tuple[str, tuple[Any, ...]]] = [
            ("INSERT INTO items (id, name, price, body, seen) VALUES (%s, %s, %s, %s, now(6))",
             (small, name, chance.randrange(-(10**9), 10**9), text)),
            ("REPLACE INTO items (id, name, body) VALUES (%s, %s, %s)", (small, name, text)),
            ("UPDATE items SET body = %s, price = price / 3 WHERE id < %s", (text, small)),
            ("UPDATE items SET id = %s WHERE id = %s", (chance.randrange(15), small)),
            ("INSERT INTO items (id, name) VALUES (%s, %s) ON DUPLICATE KEY UPDATE body = 'again'", (small, name)),
            ("DELETE FROM items WHERE id = %s", (small,)),
            ("INSERT INTO pairs VALUES (%s, %s, %s)", (str(small), small % 3, bytes([small] * small))),
            ("UPDATE pairs SET y = y + 1 WHERE x = %s ORDER BY y DESC", (str(small),)),
            ("DELETE FROM pairs WHERE x = %s", (str(small),)),
            ("INSERT INTO other (e, s, b) VALUES (%s, %s, %s)", (chance.randrange(4), chance.randrange(4), small)),
            ("DELETE FROM other WHERE id %% 7 = %s", (small,)),
        ]  # fmt: skip
        self._db.execute(*chance.choice(statements))

    def large(self) -> None:
        """One transaction of many events."""
        self._db.execute("BEGIN")
        self._db.execute("DELETE FROM other")
        self._db.execute("INSERT INTO other (e, s, b) SELECT 1 + seq % 3, seq % 4, seq % 512 FROM seq_1_to_3000")
        self._db.execute("UPDATE other SET b = 511 - b")
        self._db.execute("COMMIT")

    def change_shape(self) -> None:
        number = next(_NUMBERS)
        chance = self._chance
        statement = chance.choice(
            [
                f"ALTER TABLE items ADD COLUMN c{number} INT DEFAULT {number} AFTER id",
                f"ALTER TABLE items ADD c{number} VARCHAR(20) NOT NULL DEFAULT 'x' FIRST, ADD KEY k{number} (price)",
                f"ALTER TABLE items ADD COLUMN (c{number} BIGINT UNSIGNED, d{number} ENUM('it''s', 'b,c') NULL)",
                "ALTER TABLE items MODIFY body MEDIUMTEXT COMMENT 'now, (larger)' FIRST",
                f"ALTER TABLE items RENAME COLUMN seen TO seen{number}, RENAME COLUMN price TO cost",
                f"ALTER TABLE items CHANGE COLUMN name name VARCHAR({40 + number}) CHARACTER SET utf8mb4",
                f"CREATE TABLE made{number} LIKE items",
                f"CREATE TABLE /* new */ `made{number}` (`k` INT UNSIGNED NOT NULL, v DOUBLE, PRIMARY KEY (`k`))",
                "TRUNCATE TABLE pairs",
            ]
        )
        if "RENAME COLUMN" in statement:
            self._db.execute(statement)
            self._db.execute(f"ALTER TABLE items RENAME COLUMN cost TO price, RENAME COLUMN seen{number} TO seen")
        else:
            self._db.execute(statement)
        if statement.startswith("CREATE") and "LIKE" not in statement:
            self._db.execute(f"INSERT INTO made{number} VALUES (4000000000, 0.1)")


def _assert_same(db: Cursor, replica: Replica) -> None:
    db.execute("SELECT table_name FROM information_schema.tables WHERE table_schema = 'shop'")
    for (table,) in db.fetchall():
        db.execute(
            "SELECT column_name FROM information_schema.key_column_usage WHERE table_schema = 'shop' "
            "AND table_name = %s AND constraint_name = 'PRIMARY'",
            (table,),
        )
        key = [name for (name,) in db.fetchall()]
        db.execute(f"SELECT * FROM {table}")
        names = [column[0] for column in db.description]
        held = {}
        for row in db.fetchall():
            found = dict(zip(names, row, strict=True))
            held[tuple(sorted((name, found[name]) for name in key))] = found
        copied = replica.tables.get(f"shop.{table}", {})
        assert len(copied) == len(held), table
        for row in copied.values():
            mine = held[tuple(sorted((name, row[name]) for name in key))]
            for name, value in row.items():
                other = mine[name]
                if name == "b" and table == "other" and other is not None:
                    other = int.from_bytes(other)
                assert value == other, (table, name, row, mine)


def test_random_work_with_cuts_of_source_and_server(server: MariadbServer, db: Cursor) -> None:
    seed = int(os.environ.get("HEADRACE_SEED", random.randrange(1 << 30)))
    print(f"HEADRACE_SEED={seed}")
    chance = random.Random(seed)
    _make_tables(db)
    worker = _Worker(_connect(server), chance)
    worker.work(300)
    history = MemoryHistory()
    follower = Follower(lambda: MysqlSource(_settings(server, batch_rows=chance.choice([1, 7, 100, 1000])), history))
    for turn in range(25):
        if follower.source is None:
            follower.start()
        worker.work(30)
        if turn % 5 == 2:
            if follower.position is None or "snapshot" in follower.position:
                follower.crash()  # a table that is being read would hold the statement up, and nobody else reads on
            worker.change_shape()
            if follower.source is None:
                follower.start()
        if turn in (6, 13):
            worker.large()
        for _ in range(chance.randrange(12)):
            if follower.source is not None:
                follower.step(0.01, lose=chance.random() < 0.1)
        if chance.random() < 0.3:
            follower.crash()
        if turn in (8, 17):
            server.kill()
            if follower.source is not None:
                with pytest.raises(SourceUnavailable):
                    follower.drain(10)
                follower.crash()
            server.start()
            worker = _Worker(_connect(server), chance)
    if follower.source is None:
        follower.start()
    follower.drain(1)
    follower.crash()
    cursor = _connect(server).cursor()
    cursor.execute("USE shop")
    _assert_same(cursor, follower.replica)


def test_writers_beside_each_other_and_the_snapshot(server: MariadbServer, db: Cursor) -> None:
    _make_tables(db)
    workers = [_Worker(_connect(server), random.Random(seed)) for seed in range(3)]
    threads = [threading.Thread(target=worker.work, args=(250,)) for worker in workers]
    for thread in threads:
        thread.start()
    follower = _follower(server, batch_rows=5)
    follower.start()
    while any(thread.is_alive() for thread in threads):
        follower.step(0.01)
    follower.drain(0.5)
    follower.crash()
    _assert_same(db, follower.replica)


def test_log_and_query_give_the_same_for_every_type(server: MariadbServer, db: Cursor) -> None:
    columns = {
        "t": "TINYINT", "tu": "TINYINT UNSIGNED", "s": "SMALLINT", "m": "MEDIUMINT UNSIGNED", "b": "BIGINT UNSIGNED",
        "f": "FLOAT", "d": "DOUBLE", "n": "DECIMAL(30, 10)", "nz": "DECIMAL(5, 1) UNSIGNED ZEROFILL", "bi": "BIT",
        "bn": "BIT(13)", "da": "DATE", "dt": "DATETIME", "dt3": "DATETIME(3)", "dt6": "DATETIME(6)",
        "ts": "TIMESTAMP NULL", "ts6": "TIMESTAMP(6) NULL", "ti": "TIME", "ti2": "TIME(2)", "ti6": "TIME(6)",
        "y": "YEAR",
        "c": "CHAR(5)", "v": "VARCHAR(300)", "vl": "VARCHAR(20) CHARACTER SET latin1",
        "vu": "CHAR(20) CHARACTER SET utf16",
        "tx": "TEXT", "bl": "BLOB", "bin": "BINARY(4)", "vb": "VARBINARY(10)", "e": "ENUM('a', 'b''c', 'ü')",
        "st": "SET('x', 'y', 'z')", "j": "JSON", "g": "GEOMETRY", "p": "POINT", "u": "UUID", "i6": "INET6",
        "virt": "INT AS (t + 1) VIRTUAL", "kept": "INT AS (t + 2) STORED",
    }  # fmt: skip
    rows = [
        [-128, 255, -32768, 16777215, 2**64 - 1, 0.1, 0.1, "-12345678901234567890.0123456789", 42.5, 1, 5461,
         "2024-02-29",
         "1000-01-01 00:00:00", "9999-12-31 23:59:59.999", "2024-01-01 12:34:56.789012", "2024-06-01 00:00:00",
         "2038-01-19 03:14:07.999999", "-838:59:59", "12:34:56.78", "-00:00:00.000001", 1901, "ab  ", "ä€😀", "é€", "µ",
         "text \0 nul", b"\0\xff", b"ab", b"a\0", "b'c", "x,z", '{"a": [1, 2.5, "ü"]}', "POINT(1 2)", "POINT(3 4)",
         "123e4567-e89b-12d3-a456-426655440000", "2001:db8::ff"],
        [1, 2, 3, 4, 5, 3.4e38, 1.7976931348623157e308, 0, 0, 0, 1, "0000-00-00", "0000-00-00 00:00:00", "2024-02-00",
         "0000-00-00", "0000-00-00", "0000-00-00", "00:00:00", "-1:02:03.45", "838:59:59.999999", 0, "", "", "", "", "",
         b"",
         b"", b"", "", "", "null", None, None, "00000000-0000-0000-0000-000000000000", "::"],
        [None] * 36,
    ]  # fmt: skip
    db.execute(
        f"CREATE TABLE kinds (id INT PRIMARY KEY, {', '.join(f'{name} {kind}' for name, kind in columns.items())})"
    )
    named = [name for name in columns if name not in ("virt", "kept")]
    marks = ", ".join("ST_GeomFromText(%s, 4326)" if name in ("g", "p") else "%s" for name in named)
    insert = f"INSERT INTO kinds (id, {', '.join(named)}) VALUES (%s, {marks})"
    for number, row in enumerate(rows):
        db.execute(insert, [number, *row])
    source = MysqlSource(_settings(server), MemoryHistory())
    source.open(None)
    read = {change.after[0]: change for change in _changes(source)}
    for number, row in enumerate(rows):
        db.execute(insert, [number + 10, *row])
    logged = {change.after[0] - 10: change for change in _changes(source)}
    source.close()
    assert read.keys() == logged.keys() == {0, 1, 2}
    for number, change in read.items():
        for column, queried, found in zip(change.table.columns, change.after, logged[number].after, strict=True):
            if column.name != "id":
                assert (type(queried), queried) == (type(found), found), column.name
    writer = EnvelopeWriter(EnvelopeSettings("mysql", "shop", "0", TopicNames("p")), Filters())
    [record] = writer.write([logged[0]], 1)
    after = json.loads(record.value)["after"]
    shown = {name: after[name] for name in ("b", "f", "n", "bi", "da", "ti", "ts6", "vl", "vu", "e", "st", "u", "bin")}
    assert shown == {
        "b": 2**64 - 1, "f": 0.1, "n": "-12345678901234567890.0123456789", "bi": True, "da": 19782,
        "ti": -3020399000000,
        "ts6": "2038-01-19T03:14:07.999999Z", "vl": "é€", "vu": "µ", "e": "b'c", "st": "x,z",
        "u": "123e4567-e89b-12d3-a456-426655440000", "bin": "YWIAAA==",
    }  # fmt: skip


def _changes(source: MysqlSource) -> list[Any]:
    found = []
    while (batch := source.next_batch(1.0)) is not None:
        found += [event for event in batch.events if isinstance(event, Change)]
        if not batch.events and found:
            break
    return found


def test_shapes_survive_a_restart_in_a_topic(server: MariadbServer, db: Cursor) -> None:
    """The reader is away while a column is added and dropped again: each row comes with the shape of its time."""
    db.execute("CREATE TABLE t (id INT PRIMARY KEY, a INT)")
    with Broker() as broker, Cluster(parse_bootstrap(broker.bootstrap_servers)) as cluster:
        follower = Follower(lambda: MysqlSource(_settings(server), TopicHistory(cluster, "shop")))
        follower.start()
        follower.drain(0.2)
        follower.crash()
        db.execute("INSERT INTO t VALUES (1, 1)")
        db.execute("ALTER TABLE t ADD b VARCHAR(5) FIRST")
        db.execute("INSERT INTO t VALUES ('x', 2, 2)")
        db.execute("ALTER TABLE t DROP b, CHANGE a c BIGINT")
        db.execute("INSERT INTO t VALUES (3, 3)")
        follower.start()
        follower.step(1, lose=True)  # the history is ahead of the position now
        follower.start()
        follower.drain(0.5)
        follower.crash()
        assert [event.what for event in follower.replica.schema_changes] == [
            "column b was added",
            "column c was added; column b was dropped; column a was dropped",
        ]
        assert follower.replica.tables["shop.t"] == {(1,): {"id": 1}, (2,): {"id": 2}, (3,): {"id": 3, "c": 3}}
        numbers = [record.number for record in TopicHistory(cluster, "shop").load()]
        assert numbers == [1, 2, 3]
        assert TopicHistory(cluster, "another").load() == []


def test_a_lost_history_is_rebuilt_from_the_database(server: MariadbServer, db: Cursor) -> None:
    db.execute("CREATE TABLE t (id INT PRIMARY KEY, a INT)")
    history = MemoryHistory()
    follower = Follower(lambda: MysqlSource(_settings(server), history))
    follower.run()
    follower.crash()
    db.execute("INSERT INTO t VALUES (1, 1)")
    history.forget([record.number for record in history.load()])
    with pytest.raises(SourceRefused, match=r"schema history is missing.*rebuild-history"):
        follower.start()
    assert follower.position is not None
    follower.position = rebuild_history(_settings(server), history, follower.position)
    follower.crash()
    follower.run()
    follower.crash()
    assert follower.replica.tables["shop.t"] == {(1,): {"id": 1, "a": 1}}


def test_an_online_schema_change_swaps_tables(server: MariadbServer, db: Cursor) -> None:
    db.execute("CREATE TABLE t (id INT PRIMARY KEY, a INT)")
    db.execute("INSERT INTO t VALUES (1, 1)")
    history = MemoryHistory()
    settings = _settings(server, filters=Filters(include_tables=[r"shop\.t"]))
    follower = Follower(lambda: MysqlSource(settings, history))
    follower.run()
    db.execute("CREATE TABLE _t_new LIKE t")
    db.execute("ALTER TABLE _t_new ADD b INT DEFAULT 7")
    db.execute("INSERT INTO _t_new (id, a) SELECT id, a FROM t")
    db.execute("RENAME TABLE t TO _t_old, _t_new TO t")
    db.execute("DROP TABLE _t_old")
    db.execute("UPDATE t SET a = 2")
    follower.drain(0.5)
    follower.crash()
    [event] = follower.replica.schema_changes
    assert event.what == "column b was added"
    assert follower.replica.tables == {"shop.t": {(1,): {"id": 1, "a": 2, "b": 7}}}


def test_policies_for_a_change_of_shape(server: MariadbServer, db: Cursor) -> None:
    db.execute("CREATE TABLE t (id INT PRIMARY KEY)")
    blocking, skipping = _follower(server, schema_changes="block"), _follower(server, schema_changes="skip")
    blocking.run()
    skipping.run()
    db.execute("INSERT INTO t VALUES (1)")
    db.execute("ALTER TABLE t ADD a INT")
    db.execute("INSERT INTO t VALUES (2, 2)")
    with pytest.raises(SchemaChangeBlocked, match=r"shop\.t .*column a was added"):
        blocking.drain(1)
    blocking.crash()
    assert set(blocking.replica.tables["shop.t"]) == {(1,)}
    skipping.drain(0.3)
    skipping.crash()
    db.execute("INSERT INTO t VALUES (3, 3)")
    skipping.run()
    skipping.crash()
    assert set(skipping.replica.tables["shop.t"]) == {(1,)}
    assert len(skipping.replica.schema_changes) == 1


def test_a_truncated_and_a_dropped_table_are_emptied(server: MariadbServer, db: Cursor) -> None:
    db.execute("CREATE TABLE t (id INT PRIMARY KEY)")
    db.execute("INSERT INTO t VALUES (1), (2)")
    follower = _follower(server)
    follower.run()
    assert len(follower.replica.tables["shop.t"]) == 2
    db.execute("TRUNCATE t")
    follower.drain(0.3)
    assert follower.replica.tables["shop.t"] == {}
    db.execute("INSERT INTO t VALUES (3)")
    db.execute("DROP TABLE t")
    follower.drain(0.3)
    follower.crash()
    assert follower.replica.tables["shop.t"] == {}


def test_a_new_table_without_a_key_is_told_and_left_out(server: MariadbServer, db: Cursor) -> None:
    db.execute("CREATE TABLE t (id INT PRIMARY KEY)")
    follower = _follower(server)
    follower.run()
    db.execute("CREATE TABLE bare (a INT)")
    db.execute("INSERT INTO bare VALUES (1)")
    db.execute("INSERT INTO t VALUES (1)")
    follower.drain(0.3)
    follower.crash()
    assert [event.what for event in follower.replica.schema_changes] == [
        "the table was made; it has no primary key, so its changes are left out"
    ]
    assert set(follower.replica.tables["shop.t"]) == {(1,)}


def test_compressed_events_are_read(server: MariadbServer, db: Cursor) -> None:
    db.execute("CREATE TABLE t (id INT PRIMARY KEY, a TEXT)")
    follower = _follower(server)
    follower.run()
    db.execute("SET GLOBAL log_bin_compress = ON")
    try:
        other = _connect(server, database="shop").cursor()
        other.execute("INSERT INTO t VALUES (1, %s), (2, 'b')", ("x" * 2000,))
        other.execute("UPDATE t SET a = concat(a, 'y') WHERE id = 1")
        other.execute(f"ALTER TABLE t ADD b INT COMMENT '{'long ' * 100}'")
        other.execute("DELETE FROM t WHERE id = 2")
    finally:
        db.execute("SET GLOBAL log_bin_compress = OFF")
    follower.drain(0.3)
    follower.crash()
    assert follower.replica.tables["shop.t"] == {(1,): {"id": 1, "a": "x" * 2000 + "y"}}


def test_the_position_moves_while_others_write(server: MariadbServer, db: Cursor) -> None:
    db.execute("CREATE TABLE t (id INT PRIMARY KEY)")
    db.execute("CREATE TABLE quiet (id INT PRIMARY KEY)")
    follower = _follower(server, filters=Filters(include_tables=[r"shop\.quiet"]), heartbeat_s=0.1)
    follower.run()
    assert follower.position is not None
    before = follower.position["gtid"]
    db.execute("INSERT INTO t VALUES (1)")
    for _ in range(20):
        follower.step(0.2)
        if follower.position["gtid"] != before:
            break
    follower.crash()
    assert follower.position["gtid"] != before


def test_transactions_end_and_have_their_gtid(server: MariadbServer, db: Cursor) -> None:
    db.execute("CREATE TABLE t (id INT PRIMARY KEY)")
    source = MysqlSource(_settings(server, snapshot="never"), MemoryHistory())
    source.open(None)
    db.execute("BEGIN")
    db.execute("INSERT INTO t VALUES (1)")
    db.execute("INSERT INTO t VALUES (2)")
    db.execute("COMMIT")
    events = []
    while len(events) < 3:
        batch = source.next_batch(5)
        assert batch is not None
        events += batch.events
    source.close()
    assert [type(event) for event in events] == [Change, Change, TransactionEnd]
    assert len({event.origin.transaction_id for event in events if not isinstance(event, SchemaChange)}) == 1


def test_a_purged_log_is_told_at_once_and_snapshot_again_if_allowed(server: MariadbServer, db: Cursor) -> None:
    db.execute("CREATE TABLE t (id INT PRIMARY KEY)")
    history = MemoryHistory()
    modes = iter(["initial", "initial", "when-needed"])
    follower = Follower(lambda: MysqlSource(_settings(server, snapshot=next(modes)), history))
    follower.run()
    follower.crash()
    db.execute("INSERT INTO t VALUES (1)")
    _end_others(db)  # what a reader is about to read is not purged, even if it went away a moment ago
    while True:  # nor is what the server would need after a crash of its own; it finds out a moment later
        db.execute("FLUSH BINARY LOGS")
        db.execute("SHOW MASTER STATUS")
        db.execute(f"PURGE BINARY LOGS TO '{db.fetchone()[0]}'")
        if db.execute("SHOW BINARY LOGS") == 1:
            break
    db.execute("INSERT INTO t VALUES (2)")
    with pytest.raises(SourceRefused, match=r"no longer has the binary log.*when-needed"):
        follower.start()
    follower.crash()
    follower.run()
    follower.crash()
    assert set(follower.replica.tables["shop.t"]) == {(1,), (2,)}


def test_mistakes_are_told_with_the_statement_that_mends_them(server: MariadbServer, db: Cursor) -> None:
    db.execute("CREATE TABLE bare (id INT)")
    root = pymysql.connect(unix_socket=str(server.folder / "socket"), user="root").cursor()
    root.execute("CREATE OR REPLACE USER reader@'%' IDENTIFIED BY 'right'")
    root.execute("GRANT SELECT ON shop.* TO reader@'%'")

    def refusal(url: str, **more: Any) -> str:
        follower = Follower(lambda: MysqlSource(MysqlSettings(url, **more), MemoryHistory()))
        with pytest.raises(SourceRefused) as refused:
            follower.run()
        follower.crash()
        return str(refused.value)

    there = f"127.0.0.1:{server.port}/shop"
    assert "password of reader: ALTER USER" in refusal(f"mysql://reader:wrong@{there}")
    assert "has no primary key" in refusal(server.url)
    assert "ALTER TABLE `shop`.`bare` ADD PRIMARY KEY" in refusal(server.url)
    assert "there is no table shop.nowhere" in refusal(
        f"mysql://root@{there}", filters=Filters(include_tables=["shop.nowhere"])
    )
    db.execute("DROP TABLE bare")
    db.execute("CREATE TABLE t (id INT PRIMARY KEY)")
    assert "GRANT REPLICATION SLAVE" in refusal(f"mysql://reader:right@{there}")
    db.execute("CREATE TABLE aria (id INT PRIMARY KEY) ENGINE=Aria")
    assert "ENGINE = InnoDB" in refusal(server.url)
    db.execute("DROP TABLE aria")
    for setting, wrong, right in (("binlog_format", "'MIXED'", "'ROW'"), ("binlog_row_image", "'MINIMAL'", "'FULL'")):
        db.execute(f"SET GLOBAL {setting} = {wrong}")
        assert f"SET GLOBAL {setting} =" in refusal(server.url)
        db.execute(f"SET GLOBAL {setting} = {right}")
    with pytest.raises(InvalidConnectSetting, match=r"write mysql://user:password@host:3306/database"):
        MysqlSettings("mysql://u:secret@h/x?what=1")


def test_changes_written_as_statements_or_parts_of_rows_are_refused(server: MariadbServer, db: Cursor) -> None:
    for setting in ("binlog_format = STATEMENT", "binlog_row_image = MINIMAL"):
        db.execute("CREATE OR REPLACE TABLE t (id INT PRIMARY KEY, a INT, b INT)")
        follower = _follower(server)
        follower.run()
        other = _connect(server, database="shop").cursor()
        other.execute(f"SET SESSION {setting}")
        other.execute("INSERT INTO t VALUES (1, 1, 1)")
        other.execute("UPDATE t SET a = 2")
        with pytest.raises(SourceRefused, match="SET GLOBAL binlog_"):
            follower.drain(1)
        follower.crash()


def test_a_server_without_a_log_is_told() -> None:
    plain = MariadbServer(["--skip-log-bin"])
    try:
        with pytest.raises(SourceRefused, match=r"log_bin is OFF.*--log-bin"):
            MysqlSource(MysqlSettings(plain.url), MemoryHistory()).open(None)
    finally:
        plain.end()
    with pytest.raises(SourceUnavailable, match="does not answer"):
        MysqlSource(MysqlSettings(plain.url), MemoryHistory()).open(None)
