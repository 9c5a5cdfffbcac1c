"""A database on a real server: tables, whoever writes to them, and the comparison with a copy."""

import contextlib
import itertools
import random
from typing import Any

import pymysql

from headrace.connect.change import Change
from headrace.connect.mysql import MemoryHistory, MysqlSettings, MysqlSource
from tests.integration.cdc_replica import Follower, Replica
from tests.servers.mariadb import PASSWORD, USER, MariadbServer

Cursor = Any


def connect(server: MariadbServer, **more: Any) -> Any:
    given = {"host": "127.0.0.1", "port": server.port, "user": USER, "password": PASSWORD, "charset": "utf8mb4"}
    return pymysql.connect(**{**given, "autocommit": True, **more})


def end_others(cursor: Cursor) -> None:
    others = "FROM information_schema.processlist WHERE id <> connection_id() AND user = %s"
    while cursor.execute(f"SELECT id {others}", (USER,)):
        for (left,) in cursor.fetchall():
            with contextlib.suppress(pymysql.err.OperationalError):
                cursor.execute(f"KILL {left}")


def settings_of(server: MariadbServer, **more: Any) -> MysqlSettings:
    return MysqlSettings(**{"url": server.url, "heartbeat_s": 0.5, **more})


def follower_of(server: MariadbServer, **more: Any) -> Follower:
    history = MemoryHistory()
    return Follower(lambda: MysqlSource(settings_of(server, **more), history))


def is_read_again(follower: Follower) -> bool:
    """Whether a table was emptied and read again, and nothing of it is left to read."""
    follower.step(0.2)
    assert follower.source is not None
    was_begun = any("is emptied and read again" in event.what for event in follower.replica.schema_changes)
    return was_begun and follower.step(0.2) is None and not follower.source.facts()


def make_tables(db: Cursor) -> None:
    db.execute(
        "CREATE TABLE items (id INT PRIMARY KEY, name VARCHAR(40) UNIQUE, price DECIMAL(20, 6), body TEXT, "
        "seen DATETIME(6))"
    )
    db.execute("CREATE TABLE pairs (x VARCHAR(8) NOT NULL, y INT NOT NULL, z LONGBLOB, PRIMARY KEY (x, y))")
    db.execute(
        "CREATE TABLE other (id INT AUTO_INCREMENT PRIMARY KEY, e ENUM('a', 'b', 'ü'), s SET('x', 'y'), b BIT(9))"
    )


_NUMBERS = itertools.count(1)  # of what is added


class Worker:
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
        numbers = "WITH RECURSIVE n AS (SELECT 1 AS i UNION ALL SELECT i + 1 FROM n WHERE i < 1000) "
        self._db.execute(
            f"INSERT INTO other (e, s, b) {numbers} "
            "SELECT 1 + n.i % 3, n.i % 4, n.i % 512 FROM n, (SELECT 1 UNION SELECT 2 UNION SELECT 3) thrice"
        )
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


def assert_same(db: Cursor, replica: Replica) -> None:
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


def changes_of(source: MysqlSource) -> list[Any]:
    found = []
    while (batch := source.next_batch(1.0)) is not None:
        found += [event for event in batch.events if isinstance(event, Change)]
        if not batch.events and found:
            break
    return found
