"""`headrace.changes` of a SQLite database."""

import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from headrace.connect.changes import PositionLost, changes
from headrace.connect.errors import SourceRefused
from headrace.connect.sqlite import uninstall
from headrace.testing.contracts.changes import ChangesContract, ids, read, rest
from tests.integration.waiting import wait_until


class SqliteStand:
    def __init__(self, path: Path) -> None:
        self.path = path
        self.url = f"sqlite:///{path}"
        self.tables = ["t"]
        self.settings: dict[str, Any] = {"slot": "mine"}
        with closing(self.connect()) as db:
            db.execute("PRAGMA journal_mode=WAL")
            db.execute("CREATE TABLE t (id INTEGER PRIMARY KEY, v TEXT)")

    def connect(self) -> sqlite3.Connection:
        db = sqlite3.connect(self.path, isolation_level=None, timeout=30)
        db.execute("PRAGMA synchronous=OFF")
        return db

    def execute(self, *statements: str) -> None:
        with closing(self.connect()) as db:
            for statement in statements:
                db.execute(statement)

    def put(self, rows: dict[int, str]) -> None:
        with closing(self.connect()) as db:
            db.execute("BEGIN IMMEDIATE")
            for row in rows.items():
                db.execute("INSERT INTO t VALUES (?, ?) ON CONFLICT (id) DO UPDATE SET v = excluded.v", row)
            db.execute("COMMIT")

    def remove(self, id_: int) -> None:
        self.execute(f"DELETE FROM t WHERE id = {int(id_)}")

    def lose(self) -> None:
        uninstall(self.path, "mine")

    def is_forgotten(self, change: int) -> bool:
        with closing(self.connect()) as db:
            return bool(db.execute("SELECT pruned >= ? FROM mine_state", [change]).fetchone()[0])

    def tables_there(self) -> set[str]:
        with closing(self.connect()) as db:
            return {name for (name,) in db.execute("SELECT name FROM sqlite_master")}


@pytest.fixture
def stand(tmp_path: Path) -> SqliteStand:
    return SqliteStand(tmp_path / "shop.db")


class TestSqlite(ChangesContract):
    pass


def test_without_a_slot_nothing_is_left_behind_not_even_by_who_was_killed(stand: SqliteStand) -> None:
    before = stand.tables_there()
    program = (
        "import os, signal, sys, headrace\n"
        "stream = headrace.changes(sys.argv[1], ['t']).open()\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    subprocess.run([sys.executable, "-c", program, stand.url], check=False)
    assert stand.tables_there() > before
    with changes(stand.url, ["t"]) as stream, changes(stand.url, ["t"]) as other:
        stand.put({1: "a"})
        assert ids(read(stream, 1)) == ids(read(other, 1)) == [1]
    assert stand.tables_there() - before <= {"sqlite_sequence"}


def test_a_slot_remembers_its_reader_without_a_token(stand: SqliteStand) -> None:
    with changes(stand.url, ["t"], slot="mine") as stream:
        stand.put({1: "a"})
        assert ids(rest(stream)) == [1]
    stand.put({2: "b"})
    with changes(stand.url, ["t"], slot="mine") as stream:
        assert ids(rest(stream)) == [2]
    with changes(stand.url, ["t"], slot="mine", acknowledge=False) as stream:
        stand.put({3: "c"})
        assert ids(rest(stream)) == [3]
    with changes(stand.url, ["t"], slot="mine", acknowledge=False) as stream:
        change = read(stream, 1)[0]
        assert ids([change]) == [3]
        stream.acknowledge(change)
    stand.put({4: "d"})
    with changes(stand.url, ["t"], slot="mine") as stream:
        assert ids(rest(stream)) == [4]


def test_a_token_of_a_stream_without_a_slot_is_refused(stand: SqliteStand) -> None:
    with changes(stand.url, ["t"]) as stream:
        stand.put({1: "a"})
        token = read(stream, 1)[0].position
    with pytest.raises(Exception, match="without a slot"):
        changes(stand.url, ["t"], resume=token)
    with pytest.raises(Exception, match="it is of slot"):
        changes(stand.url, ["t"], slot="mine", resume=token)


def test_columns_come_and_go_while_it_is_read(stand: SqliteStand) -> None:
    with changes(stand.url, slot="mine") as stream:
        stand.put({1: "a"})
        stand.execute("ALTER TABLE t ADD COLUMN w INTEGER DEFAULT 7", "INSERT INTO t VALUES (2, 'b', 8)")
        shapes, rows = [], {}
        while rows.get(2, {}).get("w") != 8:
            change = stream.next(10)
            assert change is not None
            if change.op == "s":
                shapes.append(change.after)
            elif change.key is not None:
                rows[change.key["id"]] = change.after or {}
    assert {"id", "v", "w"} == set(shapes[-1] or ())
    assert rows == {1: {"id": 1, "v": "a", "w": 7}, 2: {"id": 2, "v": "b", "w": 8}}


def test_a_backup_that_was_put_back_is_noticed(stand: SqliteStand, tmp_path: Path) -> None:
    with changes(stand.url, ["t"], slot="mine", acknowledge=False) as stream:
        stand.put({1: "a"})
        read(stream, 1)
        with closing(stand.connect()) as db, closing(sqlite3.connect(tmp_path / "backup.db")) as backup:
            db.backup(backup)
        stand.put({2: "b"})
        token = read(stream, 1)[0].position
    for suffix in ("", "-wal", "-shm"):
        Path(f"{stand.path}{suffix}").unlink(missing_ok=True)
    (tmp_path / "backup.db").rename(stand.path)
    with pytest.raises(PositionLost, match="older"):
        changes(stand.url, ["t"], slot="mine", resume=token).open()


def test_of_two_readers_of_one_slot_none_misses_a_change_in_silence(stand: SqliteStand) -> None:
    with changes(stand.url, ["t"], slot="mine") as one, changes(stand.url, ["t"], slot="mine") as other:
        stand.put(dict.fromkeys(range(4000), "x"))
        found = read(one, 1)
        assert len(read(other, 4000)) == 4000

        def goes_on() -> bool:
            stand.execute("INSERT INTO t (v) VALUES ('y')")
            return len(read(other, 1)) == 1 and stand.is_forgotten(4000)

        wait_until(goes_on, "what was read stays")
        with pytest.raises(PositionLost, match="another reader"):
            found += read(one, 4000)


def test_a_backup_that_was_put_back_and_written_to_is_noticed(stand: SqliteStand, tmp_path: Path) -> None:
    with changes(stand.url, ["t"], slot="mine", acknowledge=False) as stream:
        stand.put({1: "a"})
        read(stream, 1)
        with closing(stand.connect()) as db, closing(sqlite3.connect(tmp_path / "backup.db")) as backup:
            db.backup(backup)
        stand.put({2: "b"})
        token = read(stream, 1)[-1].position
    for path in stand.path.parent.glob("shop.db*"):
        path.unlink()
    (tmp_path / "backup.db").rename(stand.path)
    stand.put({3: "as many again", 4: "and more"})
    with pytest.raises(PositionLost, match="put back and written to"):
        changes(stand.url, ["t"], slot="mine", resume=token).open()


@pytest.mark.parametrize("written", [0, 3])
def test_a_backup_that_is_put_back_while_it_is_read_is_noticed(
    stand: SqliteStand, tmp_path: Path, written: int
) -> None:
    with changes(stand.url, ["t"], slot="mine", acknowledge=False) as stream:
        with closing(stand.connect()) as db, closing(sqlite3.connect(tmp_path / "backup.db")) as backup:
            db.backup(backup)
            stand.put({1: "a", 2: "b"})
            assert ids(read(stream, 2)) == [1, 2]
            with backup:
                backup.executemany("INSERT INTO t VALUES (?, 'x')", [(7 + number,) for number in range(written)])
            backup.backup(db)
        stand.put({3: "c"})
        with pytest.raises(PositionLost, match="backup was put back"):
            read(stream, 1)


def test_a_file_that_is_replaced_while_it_is_read_is_read_on(stand: SqliteStand, tmp_path: Path) -> None:
    with changes(stand.url, ["t"], slot="mine", acknowledge=False) as stream:
        stand.put({1: "a"})
        assert ids(read(stream, 1)) == [1]
        with closing(stand.connect()) as db, closing(sqlite3.connect(tmp_path / "copy.db")) as copy:
            db.backup(copy)
        for suffix in ("-wal", "-shm"):
            Path(f"{stand.path}{suffix}").unlink(missing_ok=True)
        (tmp_path / "copy.db").rename(stand.path)
        stand.put({2: "b"})
        assert ids(read(stream, 1)) == [2]
        stand.path.unlink()
        with pytest.raises(SourceRefused, match="there is no database"):
            read(stream, 1)


@pytest.mark.parametrize("count", [1, 2, 500])
def test_a_table_without_a_key_begins_again_behind_a_truncate(stand: SqliteStand, count: int) -> None:
    stand.execute(
        "CREATE TABLE bag (v TEXT)",
        "WITH n(v) AS (VALUES (1) UNION ALL SELECT v + 1 FROM n WHERE v < 600) INSERT INTO bag SELECT v FROM n",
    )
    with changes(stand.url, ["bag"], slot="mine", snapshot=True) as stream:
        found = read(stream, count)
    assert found[0].op == "t"
    with changes(stand.url, ["bag"], slot="mine", snapshot=True, resume=found[-1].position) as stream:
        assert [change.op for change in rest(stream)] == ["t", *["r"] * 600]


def test_a_snapshot_goes_on_behind_a_key_that_is_no_utf8(stand: SqliteStand) -> None:
    stand.execute(
        "CREATE TABLE odd (k PRIMARY KEY NOT NULL) WITHOUT ROWID", "INSERT INTO odd VALUES (1), ('a'), (x'61')"
    )
    with closing(stand.connect()) as db:
        db.executemany("INSERT INTO odd VALUES (CAST(? AS TEXT))", [(b"\xff%d" % number,) for number in range(5)])
    with changes(stand.url, ["odd"], slot="mine", snapshot=True, acknowledge=False) as stream:
        found = read(stream, 8)
    keys = [change.key for change in found]
    assert len({repr(key) for key in keys}) == 8
    for number, change in enumerate(found):
        with changes(stand.url, ["odd"], slot="mine", resume=change.position, acknowledge=False) as stream:
            assert [each.key for each in rest(stream)] == keys[number + 1 :]
