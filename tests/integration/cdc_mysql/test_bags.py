"""Tables without a key, captured beside others: their rows are a bag, whatever happens to table and reader."""

import os
import random
import threading
from collections import Counter
from collections.abc import Callable

import pytest

from headrace.connect.filters import Filters
from headrace.connect.mysql import MemoryHistory, MysqlSource
from headrace.connect.mysql.signal_table import request_snapshot
from tests.integration.cdc_mysql.shop import Cursor, connect, follower_of, settings_of
from tests.integration.cdc_replica import Follower, counted
from tests.integration.waiting import wait_until
from tests.servers.mariadb import MariadbServer


def _held(db: Cursor, table: str) -> Counter[str]:
    db.execute(f"SELECT * FROM {table}")
    names = [column[0] for column in db.description]
    return Counter(counted(dict(zip(names, row, strict=True))) for row in db.fetchall())


def _copied(follower: Follower, table: str) -> Counter[str]:
    return Counter(map(counted, follower.replica.tables.get(f"shop.{table}", {}).values()))


def _until(follower: Follower, is_so: Callable[[], bool], what: str) -> None:
    def step() -> bool:
        if follower.source is None:
            follower.start()
        follower.step(0.05)
        return is_so()

    wait_until(step, what, patience_s=60)


def _write(db: Cursor, chance: random.Random) -> None:
    page, n = chance.choice(["'a'", "'b'", "NULL"]), chance.randrange(3)
    db.execute(
        chance.choice(
            [
                f"INSERT INTO visits (page, n) SELECT {page}, {n} FROM pages LIMIT {chance.randrange(9)}",
                f"UPDATE visits SET page = {page} WHERE n = {n} LIMIT {chance.randrange(5)}",
                f"DELETE FROM visits WHERE n = {n} LIMIT {chance.randrange(5)}",
                f"UPDATE visits SET n = {chance.randrange(3)} WHERE n = {n} LIMIT {chance.randrange(3)}",
                f"UPDATE pages SET n = n + 1 WHERE id = {n}",
            ]
        )
    )


def test_rows_are_counted_beside_writers_cuts_and_readings(server: MariadbServer, db: Cursor) -> None:
    seed = int(os.environ.get("HEADRACE_SEED", random.randrange(1 << 30)))
    print(f"HEADRACE_SEED={seed}")
    chance = random.Random(seed)
    db.execute("CREATE TABLE pages (id INT PRIMARY KEY, n INT)")
    db.executemany("INSERT INTO pages VALUES (%s, 0)", [(number,) for number in range(50)])
    db.execute("CREATE TABLE visits (page VARCHAR(9), n INT)")
    db.execute("INSERT INTO visits SELECT 'a', id % 3 FROM pages")
    db.execute("CREATE TABLE zones (id INT PRIMARY KEY)")
    db.execute("INSERT INTO zones SELECT id FROM pages")
    settings = settings_of(server, batch_rows=7)
    history = MemoryHistory()
    follower = Follower(lambda: MysqlSource(settings, history))
    permits = threading.Semaphore(0)

    def work() -> None:
        own, dice = connect(server, database="shop").cursor(), random.Random(seed + 1)
        for _ in range(12 * 40):
            permits.acquire()
            _write(own, dice)

    writer = threading.Thread(target=work)
    writer.start()
    for cut in range(12):  # in the snapshot, between its instants, in the log, while it is read again
        permits.release(40)
        follower.start()
        if cut >= 6:
            request_snapshot(settings, ["shop.visits"])
        for _ in range(chance.randrange(2, 25)):
            follower.step(0.02)
        if chance.random() < 0.5:
            follower.step(0.02, lose=True)
        follower.crash()
    writer.join()
    _until(
        follower,
        lambda: (
            not {"incremental", "snapshot"} & (follower.position or {}).keys()
            and _copied(follower, "visits") == _held(db, "visits")
        ),
        "the copy does not come in step",
    )
    follower.drain(0.3)
    follower.crash()
    assert {name: _copied(follower, name) for name in ("visits", "pages", "zones")} == {
        name: _held(db, name) for name in ("visits", "pages", "zones")
    }


@pytest.mark.parametrize(
    "statement",
    [
        "ALTER TABLE t DROP COLUMN n",
        "ALTER TABLE t MODIFY at DATETIME(6)",
        "ALTER TABLE t ADD c INT DEFAULT 5",
        "ALTER TABLE t ADD c INT",
        "ALTER TABLE t ADD id INT AUTO_INCREMENT PRIMARY KEY FIRST",
        "TRUNCATE t",
        "ALTER TABLE keyed DROP PRIMARY KEY",
        "DROP INDEX by_code ON coded",
        "ALTER TABLE coded DROP INDEX by_code",
        "CREATE UNIQUE INDEX by_code ON words (code)",
        "CREATE TABLE new (v INT)",
    ],
)
def test_what_is_done_to_tables_without_a_key(server: MariadbServer, db: Cursor, statement: str) -> None:
    db.execute("CREATE TABLE t (n INT, at DATETIME(3), v TEXT)")
    db.execute("INSERT INTO t VALUES (1, '2026-01-01 10:00:00.125', 'a'), (1, '2026-01-01 10:00:00.125', 'a')")
    db.execute("CREATE TABLE keyed (id INT PRIMARY KEY, v TEXT)")
    db.execute("INSERT INTO keyed VALUES (1, 'x'), (2, 'x')")
    for table in ("coded", "words"):
        db.execute(f"CREATE TABLE {table} (code INT NOT NULL, v TEXT)")
        db.execute(f"INSERT INTO {table} VALUES (1, 'x'), (2, 'x')")
    db.execute("CREATE UNIQUE INDEX by_code ON coded (code)")
    follower = follower_of(server)
    follower.run()
    db.execute(statement)
    db.execute(f"INSERT INTO coded VALUES ({2 if 'coded' in statement else 3}, 'y')")
    db.execute("DELETE FROM t LIMIT 1")
    db.execute("DELETE FROM keyed LIMIT 1")
    db.execute("INSERT INTO t (v) VALUES ('b'), ('b')")
    if "new" in statement:
        db.execute("INSERT INTO new VALUES (1), (1), (NULL)")

    def counts() -> list[int]:
        tables = ("shop.t", "shop.keyed", "shop.coded", "shop.words", "shop.new")
        return [len(follower.replica.tables.get(name, ())) for name in tables]

    def rows(name: str) -> int:
        return int(db.execute(f"SELECT * FROM {name}")) if name != "new" or name in statement else 0

    expected = [rows(name) for name in ("t", "keyed", "coded", "words", "new")]
    is_left = lambda: "incremental" in (follower.position or {})  # noqa: E731
    _until(follower, lambda: counts() == expected and not is_left(), f"{statement} is not followed")
    follower.drain(0.3)
    assert counts() == expected
    db.execute("UPDATE t SET v = 'c' LIMIT 1")
    follower.crash()
    follower.run()
    held = Counter(row["v"] for row in follower.replica.tables["shop.t"].values())
    db.execute("SELECT v FROM t")
    assert held == Counter(v for (v,) in db.fetchall())
    follower.crash()


def test_a_table_that_an_older_position_left_out_is_taken_in(server: MariadbServer, db: Cursor) -> None:
    db.execute("CREATE TABLE t (id INT PRIMARY KEY)")
    follower = follower_of(server)
    follower.run()
    db.execute("CREATE TABLE bare (a INT)")
    follower.drain(0.3)
    follower.crash()
    assert follower.position is not None
    follower.position["left_out"] = ["shop.bare"]
    db.execute("INSERT INTO bare VALUES (1), (1)")
    _until(follower, lambda: _copied(follower, "bare") == _held(db, "bare"), "the table is not taken in")
    assert "left_out" not in follower.position
    follower.crash()


@pytest.mark.parametrize("unseen_changes", ["reread", "stop"])
def test_a_table_that_the_filters_left_out_for_a_while_is_read_when_it_is_back(
    server: MariadbServer, db: Cursor, unseen_changes: str
) -> None:
    db.execute("CREATE TABLE t (id INT PRIMARY KEY)")
    db.execute("CREATE TABLE other (id INT PRIMARY KEY)")
    db.execute("INSERT INTO t VALUES (1), (2)")
    filters, history = [Filters()], MemoryHistory()
    follower = Follower(
        lambda: MysqlSource(settings_of(server, filters=filters[0], unseen_changes=unseen_changes), history)
    )
    follower.run()
    follower.crash()
    filters[0] = Filters(exclude_tables=["shop.t"])
    follower.start()
    db.execute("DELETE FROM t WHERE id = 1")
    db.execute("INSERT INTO t VALUES (3)")
    db.execute("INSERT INTO other VALUES (1)")
    _until(follower, lambda: _copied(follower, "other") == _held(db, "other"), "the other table is not followed")
    follower.crash()
    assert _copied(follower, "t") != _held(db, "t")
    filters[0] = Filters()
    follower.start()
    if unseen_changes == "stop":
        assert follower.source is not None
        (sentence,) = follower.source.facts()["stopped_tables"].values()
        assert sentence.startswith("table shop.t was not captured for a while: headrace cdc snapshot")
        request_snapshot(settings_of(server), ["shop.t"])
    _until(follower, lambda: _copied(follower, "t") == _held(db, "t"), "the table is not read again")
    follower.drain()
    follower.crash()
    follower.replica.schema_changes.clear()
    follower.run()
    assert not follower.replica.schema_changes  # it is read again once
    follower.crash()
