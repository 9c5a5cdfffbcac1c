"""SQLite as a source, on real files: random work of several writers, the reader cut off at any moment."""

import contextlib
import json
import os
import random
import sqlite3
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from headrace.broker.embedded import Broker
from headrace.client.address import parse_bootstrap
from headrace.client.cluster import Cluster
from headrace.client.errors import UnknownTopic
from headrace.client.fetch import FetchOptions
from headrace.client.offsets import bounds
from headrace.client.reader import read_records
from headrace.connect.change import Change
from headrace.connect.envelope import EnvelopeSettings, EnvelopeWriter, TopicNames
from headrace.connect.errors import SchemaChangeBlocked, SourceRefused
from headrace.connect.filters import Filters
from headrace.connect.runtime import Runtime
from headrace.connect.sqlite import SqliteSettings, SqliteSource, uninstall
from headrace.connect.sqlite.capture import read_anew
from tests.integration.cdc_replica import Follower, Replica, counted
from tests.integration.waiting import wait_until

_SCHEMA = """
PRAGMA journal_mode=WAL;
CREATE TABLE plain (id INTEGER PRIMARY KEY, a, b TEXT UNIQUE COLLATE NOCASE, c REAL);
CREATE TABLE pairs (x TEXT NOT NULL, y INTEGER NOT NULL, z BLOB, PRIMARY KEY (x, y)) WITHOUT ROWID;
CREATE TABLE parents (id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE);
CREATE TABLE children (id INTEGER PRIMARY KEY, parent INTEGER REFERENCES parents ON DELETE CASCADE ON UPDATE CASCADE);
"""
_VALUES: list[Any] = [
    None, 0, -1, 2**63 - 1, -(2**63), 0.1, -0.0, 1e308, float("inf"), "",
    "ä€😀", "nul\0inside", "'quote\"", b"", b"\x00\xff",
]  # fmt: skip


def _database(path: Path) -> sqlite3.Connection:
    db = sqlite3.connect(path, timeout=30, isolation_level=None)
    db.execute("PRAGMA foreign_keys=ON")
    return db


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "shop.db"
    db = _database(path)
    db.executescript(_SCHEMA)
    db.close()
    return path


def _work(db: sqlite3.Connection, chance: random.Random, statements: int) -> None:
    """Any statement that a writer may think of, some of them refused, some rolled back."""
    value = lambda: chance.choice(_VALUES)  # noqa: E731
    small = lambda: chance.randrange(12)  # noqa: E731
    name = lambda: chance.choice(["a", "A", "b", "c", "ä", "", None])  # noqa: E731
    how = lambda: chance.choice(["", "", "OR REPLACE", "OR IGNORE"])  # noqa: E731
    makers: list[Callable[[], tuple[str, list[Any]]]] = [
        lambda: (f"INSERT {how()} INTO plain VALUES (?, ?, ?, ?)", [small(), value(), name(), value()]),
        lambda: (f"INSERT {how()} INTO plain (a, b) VALUES (?, ?)", [value(), name()]),
        lambda: (f"UPDATE {how()} plain SET a = ?, b = ? WHERE id = ?", [value(), name(), small()]),
        lambda: (f"UPDATE {how()} plain SET id = ? WHERE id = ?", [small(), small()]),
        lambda: (
            "INSERT INTO plain VALUES (?, ?, ?, 1) ON CONFLICT (id) DO UPDATE SET a = excluded.a",
            [small(), value(), name()],
        ),
        lambda: ("DELETE FROM plain WHERE id = ?", [small()]),
        lambda: (f"INSERT {how()} INTO pairs VALUES (?, ?, ?)", [str(small()), small() % 3, value()]),
        lambda: (f"UPDATE {how()} pairs SET y = ?, z = ? WHERE x = ?", [small() % 3, value(), str(small())]),
        lambda: ("DELETE FROM pairs WHERE x = ?", [str(small())]),
        lambda: (f"INSERT {how()} INTO parents VALUES (?, ?)", [small(), str(small())]),
        lambda: ("UPDATE parents SET id = ? WHERE id = ?", [small(), small()]),
        lambda: ("DELETE FROM parents WHERE id = ?", [small()]),
        lambda: ("INSERT INTO children (parent) VALUES (?)", [small()]),
        lambda: ("DELETE FROM children", []),
    ]
    weights = [4] * (len(makers) - 1) + [1]
    done = 0
    while done < statements:
        db.execute("BEGIN IMMEDIATE")
        for _ in range(chance.randrange(1, 12)):
            done += 1
            with contextlib.suppress(sqlite3.IntegrityError):
                db.execute(*chance.choices(makers, weights)[0]())
        db.execute(chance.choice(["COMMIT", "COMMIT", "COMMIT", "ROLLBACK"]))


def _held(path: Path, table: str, key: int = 1) -> dict[tuple[Any, ...], dict[str, Any]]:
    db = _database(path)
    cursor = db.execute(f"SELECT * FROM {table}")
    names = [column[0] for column in cursor.description]
    found = {row[:key]: dict(zip(names, row, strict=True)) for row in cursor}
    db.close()
    return found


def _assert_same(path: Path, replica: Replica) -> None:
    for table, key in {"plain": 1, "pairs": 2, "parents": 1, "children": 1}.items():
        held, copied = _held(path, table, key), replica.tables.get(f"main.{table}", {})
        assert {k: _exact(v) for k, v in copied.items()} == {k: _exact(v) for k, v in held.items()}


def _exact(row: dict[str, Any]) -> dict[str, tuple[str, Any]]:
    return {name: (type(value).__name__, value) for name, value in row.items()}


@pytest.mark.parametrize("recursive", ["OFF", "ON"])
def test_random_work_and_a_reader_that_is_cut_off(path: Path, recursive: str) -> None:
    seed = int(os.environ.get("HEADRACE_SEED", random.randrange(1 << 30)))
    print(f"HEADRACE_SEED={seed}")
    chance = random.Random(seed)
    db = _database(path)
    db.execute(f"PRAGMA recursive_triggers={recursive}")
    _work(db, chance, 300)
    follower = Follower(
        lambda: SqliteSource(SqliteSettings(path, batch_rows=chance.choice([1, 3, 50]), poll_s=0.002)),
    )
    for _ in range(30):
        if follower.source is None:
            follower.start()
        _work(db, chance, 20)
        for _ in range(chance.randrange(10)):
            if follower.source is not None:
                follower.step(lose=chance.random() < 0.1)
        if chance.random() < 0.3:
            follower.crash()
    if follower.source is None:
        follower.start()
    follower.drain()
    _assert_same(path, follower.replica)


def test_every_image_fits_when_the_snapshot_is_not_interrupted(path: Path) -> None:
    chance = random.Random(7)
    db = _database(path)
    _work(db, chance, 500)
    follower = Follower(lambda: SqliteSource(SqliteSettings(path)))
    follower.start()
    for _ in range(60):
        follower.step()
        _work(db, chance, 25)
    follower.drain()
    _assert_same(path, follower.replica)
    assert follower.replica.events > 500


def test_several_writers_at_once(path: Path) -> None:
    def write(seed: int) -> None:
        db = _database(path)
        _work(db, random.Random(seed), 150)
        db.close()

    follower = Follower(lambda: SqliteSource(SqliteSettings(path, batch_rows=20)))
    follower.start()
    writers = [threading.Thread(target=write, args=(seed,)) for seed in range(3)]
    for writer in writers:
        writer.start()
    while any(writer.is_alive() for writer in writers):
        follower.step(0.01)
    follower.drain()
    _assert_same(path, follower.replica)


def test_acknowledged_changes_are_forgotten_and_positions_never_come_again(path: Path) -> None:
    follower = Follower(lambda: SqliteSource(SqliteSettings(path)))
    follower.start()
    follower.drain(0)
    db = _database(path)
    db.execute("INSERT INTO plain VALUES (1, 1, NULL, NULL)")
    assert follower.position is not None
    before = follower.position["change"]
    follower.crash()
    follower.start()  # the first acknowledgement after a start prunes
    follower.drain()
    assert db.execute("SELECT count(*) FROM headrace_changes").fetchone() == (0,)
    db.execute("DELETE FROM plain")
    follower.drain()
    assert follower.position["change"] > before + 1


def test_a_new_column_is_followed_and_nothing_of_it_is_missed(path: Path) -> None:
    db = _database(path)
    db.execute("INSERT INTO plain VALUES (1, 'a', 'x', 1), (2, 'b', 'y', 2)")
    follower = Follower(lambda: SqliteSource(SqliteSettings(path)))
    follower.start()
    follower.drain(0)
    db.execute("ALTER TABLE plain ADD COLUMN d INTEGER DEFAULT 5")
    db.execute("UPDATE plain SET d = 6 WHERE id = 1")  # before the triggers know the column
    follower.drain()
    db.execute("INSERT INTO plain VALUES (3, 'c', 'z', 3, 7)")
    follower.drain()
    [event] = follower.replica.schema_changes
    assert event.what == "column d was added"
    rows = follower.replica.tables["main.plain"]
    assert rows[(1,)]["d"] == 6
    assert rows[(2,)]["d"] == 5, "the default, which every row had at once"
    assert rows[(3,)]["d"] == 7


def test_a_table_that_is_dropped_and_made_again_is_read_again(path: Path) -> None:
    db = _database(path)
    db.execute("INSERT INTO plain VALUES (1, 'a', 'x', 1)")
    follower = Follower(lambda: SqliteSource(SqliteSettings(path)))
    follower.start()
    follower.drain(0)
    db.execute("DROP TABLE plain")
    db.execute("CREATE TABLE plain (id INTEGER PRIMARY KEY, a, b TEXT UNIQUE COLLATE NOCASE, c REAL)")
    db.execute("INSERT INTO plain VALUES (8, 'n', 'n', 1)")
    follower.drain()
    assert set(follower.replica.tables["main.plain"]) == {(8,)}
    db.execute("DROP TABLE plain")
    follower.drain()
    assert follower.replica.tables["main.plain"] == {}


def test_what_comes_and_goes_while_it_runs_does_not_stop_it(path: Path) -> None:
    db = _database(path)
    follower = Follower(lambda: SqliteSource(SqliteSettings(path, filters=Filters(include_tables=["p.*", "bare"]))))
    db.execute("CREATE TABLE bare (id INTEGER PRIMARY KEY)")
    follower.run()
    db.execute("DROP TABLE bare")
    db.execute("CREATE TABLE pure (a)")  # without a key
    db.execute("INSERT INTO pure VALUES (1), (1)")
    db.execute("INSERT INTO parents VALUES (1, 'a')")
    db.execute("CREATE TABLE plenty (id INTEGER PRIMARY KEY)")
    db.execute("INSERT INTO plenty VALUES (1), (2)")  # before anybody knows the table
    db.execute(f"CREATE TABLE panorama (id INTEGER PRIMARY KEY, {', '.join(f'c{at}' for at in range(1100))})")
    follower.drain()
    db.execute("INSERT INTO plenty VALUES (3)")
    follower.drain()
    assert (1,) in follower.replica.tables["main.parents"]
    assert len(follower.replica.tables["main.pure"]) == 2
    assert set(follower.replica.tables["main.plenty"]) == {(1,), (2,), (3,)}
    follower.crash()
    db.execute("CREATE TABLE piece (id INTEGER PRIMARY KEY)")
    db.execute("INSERT INTO piece VALUES (1)")
    db.execute("DROP TABLE pure")
    db.execute("DROP TABLE panorama")  # too wide, so it was left out
    db.execute("CREATE TABLE bare (id INTEGER PRIMARY KEY)")
    follower.run()
    assert set(follower.replica.tables["main.piece"]) == {(1,)}
    follower.crash()


def test_a_change_of_shape_can_block_or_leave_the_table_out(path: Path) -> None:
    db = _database(path)
    follower = Follower(lambda: SqliteSource(SqliteSettings(path, schema_changes="block", capture="one")))
    skipping = Follower(lambda: SqliteSource(SqliteSettings(path, schema_changes="skip", capture="two")))
    for one in (follower, skipping):
        one.start()
        one.drain(0)
    db.execute("INSERT INTO parents VALUES (1, 'a')")
    db.execute("ALTER TABLE parents ADD COLUMN d")
    db.execute("INSERT INTO parents VALUES (2, 'b', 1)")
    with pytest.raises(SchemaChangeBlocked, match=r"main\.parents .*column d was added"):
        follower.drain()
    assert set(follower.replica.tables["main.parents"]) >= {(1,)}
    skipping.drain()
    db.execute("INSERT INTO parents VALUES (3, 'c', 1)")
    skipping.crash()
    skipping.start()
    skipping.drain()
    assert (3,) not in skipping.replica.tables["main.parents"]
    assert len(skipping.replica.schema_changes) == 1


def test_two_captures_do_not_disturb_each_other_and_can_be_taken_away(path: Path) -> None:
    settings = [SqliteSettings(path, capture=name) for name in ("one", "two")]
    followers = [Follower(lambda one=one: SqliteSource(one)) for one in settings]
    for follower in followers:
        follower.start()
        follower.drain(0)
    db = _database(path)
    _work(db, random.Random(3), 100)
    for follower in followers:
        follower.drain()
        _assert_same(path, follower.replica)
        follower.crash()
    for name in ("one", "two"):
        uninstall(path, name)
    left = {name for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type IN ('table', 'trigger')")}
    assert left == {"plain", "pairs", "parents", "children", "sqlite_sequence"}
    with pytest.raises(SourceRefused, match="taken away and installed again"):
        followers[0].start()


def test_the_envelope_tells_every_value_apart(path: Path) -> None:
    db = _database(path)
    for number, value in enumerate(_VALUES):
        db.execute("INSERT INTO pairs VALUES ('k', ?, ?)", [number, value])
        db.execute("INSERT INTO plain (id, a) VALUES (?, ?)", [number, value])
    source = SqliteSource(
        SqliteSettings(path, filters=Filters(include_tables=["plain", "pairs"]), snapshot="initial-only")
    )
    source.open(None)
    events = []
    while not (batch := source.next_batch(0)).is_last:
        events += batch.events
    events += batch.events
    source.close()
    writer = EnvelopeWriter(EnvelopeSettings("sqlite", "shop", "0", TopicNames("p")), Filters())
    for column in ("a", "z"):
        written = [
            json.loads(record.value)["after"][column]
            for event in events
            if isinstance(event, Change) and any(c.name == column for c in event.table.columns)
            for record in writer.write([event], 1)
            if record.value
        ]
        assert len({json.dumps(value) for value in written}) == len(_VALUES)


@pytest.mark.parametrize(
    ("statement", "tables", "said"),
    [
        ("SELECT 1", ["nowhere"], r"there is no table nowhere .*CREATE TABLE nowhere"),
        (
            "CREATE TABLE loose (a TEXT PRIMARY KEY); INSERT INTO loose VALUES (NULL)",
            ["loose"],
            r"a row of loose has no a.*DELETE FROM",
        ),
        (
            f"CREATE TABLE wide (id INTEGER PRIMARY KEY, {', '.join(f'c{at}' for at in range(1100))})",
            ["wide"],
            r"table wide has 1101 columns.*leave the table out",
        ),
    ],
)
def test_mistakes_are_told_in_one_sentence(path: Path, statement: str, tables: list[str], said: str) -> None:
    _database(path).executescript(statement)
    follower = Follower(
        lambda: SqliteSource(SqliteSettings(path, filters=Filters(include_tables=tables), batch_rows=1))
    )
    with pytest.raises(SourceRefused, match=said):
        follower.run()
    follower.crash()


def test_a_file_that_is_no_database_is_told(tmp_path: Path) -> None:
    with pytest.raises(SourceRefused, match="there is no database"):
        SqliteSource(SqliteSettings(tmp_path / "none.db")).open(None)
    (tmp_path / "text.db").write_text("hello, this is no database at all" * 100)
    with pytest.raises(SourceRefused, match="is not a SQLite database"):
        SqliteSource(SqliteSettings(tmp_path / "text.db")).open(None)


def test_topics_hold_the_tables(path: Path) -> None:
    """The whole way: triggers, runtime, a real broker, and back from compacted topics."""
    db = _database(path)
    _work(db, random.Random(11), 200)
    envelope = EnvelopeSettings("sqlite", "shop", "0", TopicNames("p"))
    with Broker() as broker, Cluster(parse_bootstrap(broker.bootstrap_servers)) as cluster:
        running = Runtime(
            "shop",
            lambda: SqliteSource(SqliteSettings(path)),
            lambda _: EnvelopeWriter(envelope, Filters()),
            parse_bootstrap(broker.bootstrap_servers),
        )
        thread = threading.Thread(target=running.run)
        thread.start()
        try:
            wait_until(lambda: running.progress.batches > 0, "the snapshot is delivered")
            _work(db, random.Random(12), 200)
            db.execute("INSERT INTO parents VALUES (99, 'the last')")
            wait_until(lambda: (99,) in _rows_of(cluster, "p.main.parents", "id"), "the last change is there")
        finally:
            running.stop()
            thread.join()
        for table, key in {"plain": ["id"], "pairs": ["x", "y"], "parents": ["id"], "children": ["id"]}.items():
            assert _rows_of(cluster, f"p.main.{table}", *key).keys() == _held(path, table, len(key)).keys()


def _rows_of(cluster: Cluster, topic: str, *key: str) -> dict[tuple[Any, ...], Any]:
    try:
        held = bounds(cluster, cluster.partitions(topic))
    except UnknownTopic:
        return {}
    rows: dict[tuple[Any, ...], Any] = {}
    starts = {where: bound.start for where, bound in held.items() if bound.end > bound.start}
    ends = {where: held[where].end for where in starts}
    for records in read_records(cluster, starts, until=ends, options=FetchOptions(committed=True)):
        for _, record in records:
            name = tuple(json.loads(bytes(record.key or b""))[part] for part in key)
            after = json.loads(bytes(record.value))["after"] if record.value is not None else None
            rows.pop(name, None)
            if after is not None:
                rows[name] = after
    return rows


def test_a_table_that_is_made_again_stops_alone_if_that_is_wanted(path: Path) -> None:
    follower = Follower(lambda: SqliteSource(SqliteSettings(path, unseen_changes="stop")))
    with contextlib.closing(_database(path)) as db:
        db.execute("INSERT INTO plain VALUES (1, 'a', 'b', 0.5), (2, 'a', 'c', 0.5)")
        follower.run()
        db.execute("DROP TABLE plain")
        db.execute("CREATE TABLE plain (id INTEGER PRIMARY KEY, a, b TEXT UNIQUE COLLATE NOCASE, c REAL)")
        db.execute("INSERT INTO plain VALUES (3, 'new', 'd', 1.5)")
        follower.drain()
        db.execute("INSERT INTO plain VALUES (4, 'late', 'e', 1.5)")
        db.execute("INSERT INTO parents VALUES (7, 'goes on')")
        follower.drain()
        assert isinstance(follower.source, SqliteSource)
        (sentence,) = follower.source.facts()["stopped_tables"].values()
        assert "capture of table main.plain stopped, because it was replaced by another table" in sentence
        assert {key[0] for key in follower.replica.tables["main.plain"]} == {1, 2}
        assert {key[0] for key in follower.replica.tables["main.parents"]} == {7}
        follower.crash()
        again = Follower(lambda: SqliteSource(SqliteSettings(path)), follower.replica)
        again.position = follower.position
        again.run()
        assert isinstance(again.source, SqliteSource)
        assert not again.source.facts()
        assert {key[0] for key in again.replica.tables["main.plain"]} == {3, 4}
        again.crash()


def _bag(db: sqlite3.Connection, table: str) -> Counter[str]:
    cursor = db.execute(f"SELECT * FROM {table}")
    names = [column[0] for column in cursor.description]
    return Counter(counted(dict(zip(names, row, strict=True))) for row in cursor.fetchall())


def _copied(follower: Follower, table: str) -> Counter[str]:
    return Counter(map(counted, follower.replica.tables.get(f"main.{table}", {}).values()))


@pytest.mark.parametrize("columns", ["page, n, u UNIQUE", "page, n, u UNIQUE, rowid, oid, _rowid_"])
def test_rows_without_a_key_are_counted_beside_cuts_and_readings(path: Path, columns: str) -> None:
    seed = int(os.environ.get("HEADRACE_SEED", random.randrange(1 << 30)))
    print(f"HEADRACE_SEED={seed}")
    chance = random.Random(seed)
    db = _database(path)
    db.execute(f"CREATE TABLE visits ({columns})")
    db.executemany("INSERT INTO visits (page, n) VALUES ('a', ?)", [(number % 3,) for number in range(40)])
    settings = SqliteSettings(path, batch_rows=7)
    follower = Follower(lambda: SqliteSource(settings))

    def work(statements: int) -> None:
        for _ in range(statements):
            page, n, u = chance.choice(["'a'", "'b'", "NULL", "x'00'"]), chance.randrange(3), chance.randrange(6)
            some = f"page IS {page} AND n = {n}"
            named, numbered = ("rowid, ", f"{u}, ") if "oid" not in columns else ("", "")
            db.execute(
                chance.choice(
                    [
                        f"INSERT INTO visits (page, n) VALUES ({page}, {n}), ({page}, {n})",
                        f"INSERT OR IGNORE INTO visits (page, n, u) VALUES ({page}, {n}, {u})",
                        f"REPLACE INTO visits (page, n, u) VALUES ({page}, {n}, {u})",
                        f"REPLACE INTO visits ({named}page) VALUES ({numbered}{page})",
                        f"UPDATE OR REPLACE visits SET u = {u} WHERE {some}",
                        f"UPDATE visits SET n = {n} WHERE page IS {page}",
                        f"DELETE FROM visits WHERE {some} AND u IS NULL",
                    ]
                )
            )

    for cut in range(12):
        follower.start()
        if cut in (5, 8):
            read_anew(settings, ["main.visits"])
        for _ in range(chance.randrange(1, 8)):
            work(5)
            follower.step(0.0)
        if chance.random() < 0.5:
            follower.step(0.0, lose=True)
        follower.crash()
        if cut == 6:
            db.execute("VACUUM")  # numbers rows anew
    follower.run()
    follower.crash()
    assert _copied(follower, "visits") == _bag(db, "visits")


@pytest.mark.parametrize(
    "statement",
    [
        "ALTER TABLE t ADD COLUMN c DEFAULT 5",
        "ALTER TABLE t ADD COLUMN c",
        "CREATE UNIQUE INDEX by_id ON t (id)",
        "DROP INDEX by_code",
        "DELETE FROM t",
        "DROP TABLE t; CREATE TABLE t (id INT NOT NULL, v)",
        "CREATE TABLE new (v); INSERT INTO new VALUES (1), (1)",
    ],
)
def test_what_is_done_to_tables_without_a_key(path: Path, statement: str) -> None:
    db = _database(path)
    db.execute("CREATE TABLE t (id INT NOT NULL, v)")
    db.execute("INSERT INTO t VALUES (1, 'a'), (2, 'a'), (3, 'a')")
    db.execute("CREATE TABLE keyed (code NOT NULL, v)")
    db.execute("CREATE UNIQUE INDEX by_code ON keyed (code)")
    db.execute("INSERT INTO keyed VALUES (1, 'x'), (2, 'x')")
    follower = Follower(lambda: SqliteSource(SqliteSettings(path)))
    follower.run()
    db.executescript(statement)
    db.execute("DELETE FROM t WHERE id = 1")
    db.execute("INSERT INTO t (id, v) VALUES (8, 'b'), (9, 'b')")
    db.execute("DELETE FROM keyed WHERE code = 1")
    follower.drain()
    db.execute("UPDATE t SET v = 'c' WHERE id = 8")
    db.execute("INSERT INTO keyed VALUES (7, 'y')")
    follower.crash()
    follower.run()
    follower.crash()
    tables = ["t", "keyed", *(["new"] if "new" in statement else [])]
    assert {name: _copied(follower, name) for name in tables} == {name: _bag(db, name) for name in tables}


def _add_triggers(db: sqlite3.Connection) -> None:
    # SQLite keeps the table's name as it is written here.
    touch = "UPDATE touched SET at = 'touched' WHERE rowid = NEW.rowid"
    db.execute(f"CREATE TRIGGER touch AFTER UPDATE OF v ON Touched BEGIN {touch}; END")
    refuse = "DELETE FROM touched WHERE rowid = NEW.rowid"
    db.execute(f"CREATE TRIGGER refuse AFTER INSERT ON touched WHEN NEW.v = 'b' BEGIN {refuse}; END")


@pytest.mark.parametrize("columns", ["id INTEGER PRIMARY KEY, v, at", "id INTEGER, v, at"])
def test_what_a_trigger_of_the_user_does_comes_behind_what_set_it_off(path: Path, columns: str) -> None:
    db = _database(path)
    db.execute(f"CREATE TABLE touched ({columns})")
    db.execute("INSERT INTO touched VALUES (1, 'a', NULL)")
    follower = Follower(lambda: SqliteSource(SqliteSettings(path, poll_s=0.002)))
    follower.start()
    follower.drain()
    _add_triggers(db)
    follower.drain()
    db.execute("UPDATE touched SET v = 'c' WHERE id = 1")
    db.execute("INSERT INTO touched VALUES (2, 'b', NULL), (3, 'd', NULL)")
    follower.drain()
    assert _bag(db, "touched") == _copied(follower, "touched")
    assert {row["v"] for row in follower.replica.tables["main.touched"].values()} == {"c", "d"}


@pytest.mark.parametrize("is_running", [True, False])
def test_what_was_written_before_a_new_trigger_was_seen_is_read_again(path: Path, is_running: bool) -> None:
    db = _database(path)
    db.execute("CREATE TABLE touched (id INTEGER PRIMARY KEY, v, at)")
    db.execute("INSERT INTO touched VALUES (1, 'a', NULL)")
    source = SqliteSource(SqliteSettings(path))
    source.open(None)
    while source.next_batch(0) is not None:
        pass
    position = source.position()
    if not is_running:
        source.close()
    _add_triggers(db)
    db.execute("UPDATE touched SET v = 'c' WHERE id = 1")
    db.execute("INSERT INTO touched VALUES (2, 'b', NULL)")
    if not is_running:
        source = SqliteSource(SqliteSettings(path))
        source.open(position)
    rows: dict[Any, Any] = {}
    while (batch := source.next_batch(0)) is not None:
        for event in batch.events:
            if not isinstance(event, Change) or event.table.name != "touched":
                continue
            if event.op == "t":
                rows.clear()
            elif event.after is not None:
                rows[event.after[0]] = event.table.python_row(event.after)
            elif event.before is not None:
                rows.pop(event.before[0], None)
    source.close()
    assert list(rows.values()) == [{"id": 1, "v": "c", "at": "touched"}]


def test_a_trigger_that_leaves_the_table_alone_has_nothing_read_again(path: Path) -> None:
    db = _database(path)
    db.execute("CREATE TABLE log (what TEXT)")
    follower = Follower(lambda: SqliteSource(SqliteSettings(path, filters=Filters(include_tables=["main.plain"]))))
    follower.start()
    db.execute("INSERT INTO plain VALUES (1, 1, NULL, NULL)")
    follower.drain()
    before = follower.replica.events
    db.execute("CREATE TRIGGER audit AFTER UPDATE ON plain BEGIN INSERT INTO log VALUES ('plain_sailing'); END")
    db.execute("UPDATE plain SET a = 2 WHERE id = 1")
    follower.drain()
    assert follower.replica.events == before + 1
