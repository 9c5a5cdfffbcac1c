"""The merge as SQL, run on SQLite: any order of batches that respects versions ends in the same table."""

import random
import sqlite3

import pytest

from headrace.stores.sql.statements import Merge, TableName, create_table

COLUMNS = ("k", "v", "n")


def database() -> sqlite3.Connection:
    db = sqlite3.connect(":memory:")
    db.execute(create_table(TableName("t"), [("k", "INTEGER"), ("v", "TEXT"), ("n", "INTEGER")], ["k"]))
    db.execute(create_table(TableName("t").tombstones, [("k", "INTEGER"), ("n", "INTEGER")], ["k"]))
    db.execute('CREATE TEMP TABLE stage (k, v, n, "headrace_deleted")')
    return db


def merge(db: sqlite3.Connection, rows: list[tuple[int, str | None, int | None, bool]], version: str | None) -> None:
    db.execute("DELETE FROM stage")
    db.executemany("INSERT INTO stage VALUES (?, ?, ?, ?)", rows)
    for statement in Merge(TableName("t"), "temp.stage", COLUMNS, ("k",), version, deletes=True).statements():
        db.execute(statement)


def table(db: sqlite3.Connection) -> list[tuple[object, ...]]:
    return db.execute("SELECT k, v, n FROM t ORDER BY k").fetchall()


def test_the_newest_version_wins_in_whatever_order_changes_come() -> None:
    chance = random.Random(7)
    for _ in range(200):
        history = [(chance.randrange(4), f"v{n}", n, chance.random() < 0.3) for n in range(12)]
        state = {k: (k, v, n, gone) for k, v, n, gone in history}
        expected = sorted((k, v, n) for k, v, n, gone in state.values() if not gone)
        chance.shuffle(history)
        db = database()
        for change in history:
            merge(db, [change], "n")
        assert table(db) == expected
        # and once more: what is old changes nothing
        for change in history:
            merge(db, [change], "n")
        assert table(db) == expected
        db.close()


def test_without_a_version_the_last_batch_wins() -> None:
    db = database()
    merge(db, [(1, "a", 9, False), (2, "b", 9, False)], None)
    merge(db, [(1, "c", 1, False), (2, None, 1, True)], None)
    assert table(db) == [(1, "c", 1)]
    db.close()


def test_a_row_without_a_version_does_not_overwrite_one_that_has_it() -> None:
    db = database()
    merge(db, [(1, "a", None, False), (2, "b", 2, False)], "n")
    merge(db, [(1, "c", 1, False), (2, "d", None, False)], "n")
    assert table(db) == [(1, "c", 1), (2, "b", 2)]
    db.close()


def test_appending_and_keys_alone() -> None:
    assert Merge(TableName("t"), "s", ("a", "b")).statements() == [
        'INSERT INTO "t" ("a", "b") SELECT "a", "b" FROM s s WHERE true'
    ]
    assert Merge(TableName("t"), "s", ("a",), ("a",)).statements()[0].endswith('ON CONFLICT ("a") DO NOTHING')


@pytest.mark.parametrize(("text", "written"), [("t", '"t"'), ("s.t", '"s"."t"'), ('we"ird', '"we""ird"')])
def test_names(text: str, written: str) -> None:
    assert str(TableName.parse(text)) == written


def test_the_name_of_a_side_table_is_never_cut() -> None:
    one, other = (TableName("x" * 60 + end).tombstones.name for end in "ab")
    assert one != other
    assert len(one) <= 63
