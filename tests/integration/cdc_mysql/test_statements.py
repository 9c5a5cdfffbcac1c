"""Statements in every form, from every default database: the changes folded by key are the table, or it says why not.

Each case has tables of its own, so that all of them run on one server and one capture. The list is generated: every
statement with every default database, the forms of names and comments taking turns.
"""

import contextlib
import itertools
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pymysql
import pytest

from headrace.connect.change import Change
from headrace.connect.mysql import MemoryHistory, MysqlSource
from tests.integration.cdc_mysql.shop import Cursor, connect, settings_of
from tests.integration.cdc_replica import Follower, Replica
from tests.servers.mariadb import MariadbServer

# {t}, {u} and {e} are alike, {p} has partitions, {x} is not there; {c} follows {t} by a foreign key, {v} is a view of
# {t}, {g} a table whose trigger writes to {t}, {f} a function that does, {r} a procedure.
STATEMENTS = [
    "ALTER TABLE {t} ADD COLUMN n INT AFTER id",
    "ALTER TABLE {t} ADD n INT FIRST, DROP COLUMN b",
    "ALTER TABLE {t} DROP COLUMN a",
    "ALTER TABLE {t} DROP COLUMN a, ADD COLUMN a INT",
    "ALTER TABLE {t} CONVERT TO CHARACTER SET ascii",
    "ALTER TABLE {t} MODIFY b VARCHAR(40) FIRST",
    "ALTER TABLE {t} CHANGE a other INT",
    "TRUNCATE TABLE {t}",
    "TRUNCATE {t}",
    "DROP TABLE {t}",
    "DROP TABLE IF EXISTS {t}, {u}",
    "RENAME TABLE {t} TO {x}",
    "RENAME TABLE {t} TO {x}, {u} TO {t}",
    "RENAME TABLE {t} TO {x}, {u} TO {t}, {x} TO {u}",
    "RENAME TABLE {t} TO {x}, {x} TO {t}",
    "ALTER TABLE {t} RENAME TO {x}",
    "ALTER TABLE {t} RENAME {x}, ADD n INT",
    "CREATE TABLE {x} LIKE {t}",
    "CREATE TABLE {x} (id INT PRIMARY KEY, z VARCHAR(5))",
    "CREATE TABLE {x} (PRIMARY KEY (id)) AS SELECT * FROM {t}",
    "ALTER TABLE {p} DROP PARTITION low",
    "ALTER TABLE {p} TRUNCATE PARTITION low",
    "ALTER TABLE {p} EXCHANGE PARTITION low WITH TABLE {e}",
    "ALTER TABLE {p} REMOVE PARTITIONING",
    "ALTER TABLE {p} ADD PARTITION (PARTITION top VALUES LESS THAN (1000))",
    "ALTER TABLE {t} PARTITION BY HASH (id) PARTITIONS 3",
    "CREATE TEMPORARY TABLE {t} (id INT PRIMARY KEY)",
    "INSERT INTO {t} VALUES (8, 8, 'eight')",
]  # fmt: skip
MARIADB_ONLY = [
    "CREATE OR REPLACE TABLE {t} (id INT PRIMARY KEY, z VARCHAR(5))",
    "CREATE OR REPLACE TABLE {t} LIKE {u}",
    "CREATE OR REPLACE TABLE {t} (PRIMARY KEY (id)) AS SELECT id, b FROM {u}",
    "ALTER IGNORE TABLE {t} ADD UNIQUE (a)",
    "ALTER TABLE {p} CONVERT PARTITION low TO TABLE {x}",
    "SET STATEMENT lock_wait_timeout = 5 FOR TRUNCATE TABLE {t}",
]
# Rows that no event of rows tells.
UNSEEN_ROWS = [
    ("", "DELETE FROM {t} WHERE id = 1"),  # {c} follows
    ("", "UPDATE {t} SET id = 60 WHERE id = 2"),
    ("binlog_format = STATEMENT", "INSERT INTO {u} VALUES (8, 8, 'eight')"),
    ("binlog_format = STATEMENT", "UPDATE {u} SET a = 4"),
    ("binlog_format = STATEMENT", "DELETE one FROM {u} one JOIN {e} two ON one.id = two.id"),
    ("binlog_format = STATEMENT", "REPLACE INTO {u} VALUES (1, 9, 'nine')"),
    ("binlog_format = STATEMENT", "INSERT INTO {v} VALUES (8, 8, 'eight')"),
    ("binlog_format = STATEMENT", "INSERT INTO {g} VALUES (1)"),
    ("binlog_format = STATEMENT", "CALL {r}()"),
    ("binlog_format = STATEMENT", "SELECT {f}()"),
    ("binlog_format = STATEMENT", "LOAD DATA LOCAL INFILE '{file}' INTO TABLE {u} FIELDS TERMINATED BY ','"),
    ("binlog_row_image = MINIMAL", "UPDATE {u} SET a = 4 WHERE id = 1"),
]
DEFAULTS = ["shop", "other", "mysql", "sys"]
COMMENTS = ["{}", "/* a comment */ {}", "-- a comment\n{}", "# a comment\n  {}", "/*My own*/{}", "/*!40000 {} */"]


@dataclass(frozen=True)
class Case:
    """A statement as one session runs it, and its number, which is that of its tables."""

    number: int
    statement: str
    default: str
    setting: str
    is_ansi: bool
    letters: str  # of the tables that it names


def cases(templates: list[tuple[str, str]], file: Path, *, upper: bool = False, every: bool = False) -> Iterator[Case]:
    """Each statement, with `every` default database or with one of them in turn."""
    quotes = itertools.cycle(["", "`", '"'])
    comments = itertools.cycle(COMMENTS)
    numbers = itertools.count()
    for round_number in range(len(DEFAULTS) if every else 1):
        for place, (setting, template) in enumerate(templates):
            default = DEFAULTS[(place + round_number) % len(DEFAULTS)]
            number, mark = next(numbers), next(quotes)

            def named(letter: str, number: int = number, mark: str = mark, default: str = default) -> str:
                name = f"{letter}{number}".upper() if upper else f"{letter}{number}"
                database = "SHOP" if upper else "shop"
                is_bare = default == "shop" and number % 2
                return f"{mark}{name}{mark}" if is_bare else f"{mark}{database}{mark}.{mark}{name}{mark}"

            statement = template.format(**{letter: named(letter) for letter in "tuepxcvgfr"}, file=file)
            yield Case(number, next(comments).format(statement), default, setting, mark == '"', _letters(template))


def _letters(template: str) -> str:
    return "".join(letter for letter in "tuep" if f"{{{letter}}}" in template)


class Folded(Replica):
    """The last change of each key, as whoever reads a compacted topic has it."""

    def _apply(self, change: Change) -> None:
        rows = self.tables.setdefault(change.table.full_name, {})
        if change.op == "t":
            rows.clear()
        for image, is_there in ((change.before, False), (change.after, True)):
            row = change.table.python_row(image)
            if row is not None:
                key = tuple(row[column.name] for column in change.table.key_columns)
                rows.pop(key, None)
                if is_there:
                    rows[key] = row


def make_tables(db: Cursor, number: int, letters: str) -> None:
    for name in set(letters) - {"p"}:
        db.execute(f"CREATE TABLE {name}{number} (id INT PRIMARY KEY, a INT, b VARCHAR(20))")
        db.execute(f"INSERT INTO {name}{number} VALUES (1, 1, '{name}'), (2, 1, '{name}ä{number}'), (3, 3, NULL)")
    if "p" not in letters:
        return
    db.execute(
        f"CREATE TABLE p{number} (id INT PRIMARY KEY, a INT, b VARCHAR(20)) PARTITION BY RANGE (id) "
        "(PARTITION low VALUES LESS THAN (10), PARTITION high VALUES LESS THAN (100))"
    )
    db.execute(f"INSERT INTO p{number} VALUES (1, 1, 'p'), (2, 2, 'p'), (30, 3, 'p')")


def make_followers(db: Cursor, number: int) -> None:
    db.execute(
        f"CREATE TABLE c{number} (id INT PRIMARY KEY, a INT, FOREIGN KEY (a) REFERENCES t{number} (id) "
        "ON DELETE CASCADE ON UPDATE CASCADE)"
    )
    db.execute(f"INSERT INTO c{number} VALUES (1, 1), (2, 2), (3, 2)")
    db.execute(f"CREATE VIEW v{number} AS SELECT * FROM t{number}")
    db.execute(f"CREATE TABLE g{number} (id INT PRIMARY KEY)")
    insert = f"INSERT INTO t{number} VALUES (40, 4, 'forty')"
    db.execute(f"CREATE TRIGGER w{number} AFTER INSERT ON g{number} FOR EACH ROW {insert}")
    db.execute(f"CREATE PROCEDURE r{number}() {insert}")
    db.execute(f"CREATE FUNCTION f{number}() RETURNS INT DETERMINISTIC BEGIN {insert}; RETURN 1; END")


def tables_of(db: Cursor) -> dict[str, dict[tuple[Any, ...], dict[str, Any]]]:
    db.execute(
        "SELECT table_name FROM information_schema.tables WHERE table_schema = 'shop' AND table_type = 'BASE TABLE'"
    )
    found = {}
    for (table,) in db.fetchall():
        if table == "headrace_signal":
            continue
        db.execute(f"SELECT * FROM shop.{table}")
        names = [column[0] for column in db.description]
        rows = (dict(zip(names, row, strict=True)) for row in db.fetchall())
        found[f"shop.{table}"] = {(row["id"],): row for row in rows}
    return found


def run(server: MariadbServer, db: Cursor, chosen: list[Case], policy: str) -> tuple[Follower, dict[str, str]]:
    """Run the cases behind a snapshot; the follower at the end, and the tables that stopped."""
    for database in ("other", "sys"):
        db.execute(f"CREATE DATABASE IF NOT EXISTS {database}")
    db.execute("CREATE TABLE the_end (id INT PRIMARY KEY)")
    history = MemoryHistory()
    follower = Follower(lambda: MysqlSource(settings_of(server, unseen_changes=policy), history), Folded())
    follower.run()
    for case in chosen:
        session = connect(server, database=case.default, local_infile=True).cursor()
        session.execute(f"SET sql_mode = '{'ANSI_QUOTES' if case.is_ansi else ''}'")
        if case.setting:
            session.execute(f"SET SESSION {case.setting}")
        session.execute(case.statement)
        session.connection.close()
        for table in (f"t{case.number}", f"u{case.number}", f"x{case.number}"):
            with contextlib.suppress(pymysql.err.MySQLError):  # not every one is there, or has these columns
                db.execute(f"UPDATE shop.{table} SET b = 'later' WHERE id = 3")
                db.execute(f"INSERT INTO shop.{table} (id) VALUES (77)")
    db.execute("INSERT INTO the_end VALUES (1)")
    source = follower.source
    assert source is not None
    deadline = time.monotonic() + 120
    while not follower.replica.tables.get("shop.the_end") or source.facts().get("snapshot_left"):
        assert time.monotonic() < deadline, source.facts()
        if follower.step(0.5) is None and "shop.the_end" in source.facts().get("stopped_tables", {}):
            break  # a statement may have concerned every table
    stopped = source.facts().get("stopped_tables", {})
    follower.crash()
    return follower, stopped


def differences(db: Cursor, follower: Follower) -> dict[str, Any]:
    """Tables of which the copy is not the table; rows from before a column came are without it, which is null."""
    found = {}
    held = tables_of(db)
    for name in held.keys() | follower.replica.tables.keys():
        if name.startswith("shop.headrace"):
            continue
        rows, copied = held.get(name, {}), follower.replica.tables.get(name, {})
        filled = {key: {**dict.fromkeys(rows.get(key, {})), **row} for key, row in copied.items()}
        if rows != filled:
            found[name] = (rows, copied)
    return found


def templates_for(server: MariadbServer) -> list[tuple[str, str]]:
    return [("", statement) for statement in STATEMENTS + (MARIADB_ONLY if server.is_mariadb else [])]


@pytest.fixture
def loaded(tmp_path: Path) -> Path:
    file = tmp_path / "rows.csv"
    file.write_text("50,5,fifty\n51,5,more\n")
    return file


EVERY = [False, pytest.param(True, marks=pytest.mark.long)]


@pytest.mark.parametrize("every", EVERY)
@pytest.mark.parametrize("policy", ["reread", "stop"])
def test_statements_that_define(server: MariadbServer, db: Cursor, loaded: Path, policy: str, every: bool) -> None:
    chosen = list(cases(templates_for(server), loaded, every=every))
    for case in chosen:
        make_tables(db, case.number, case.letters)
    follower, stopped = run(server, db, chosen, policy)
    different = differences(db, follower)
    unexplained = {name: rows for name, rows in different.items() if name not in stopped}
    by_number = {case.number: case for case in chosen}
    assert not unexplained, [(by_number[int(name[6:])].statement, *rows) for name, rows in unexplained.items()]
    if policy == "reread":
        assert not stopped
    else:
        assert stopped
        assert all("headrace cdc snapshot" in sentence for sentence in stopped.values())


@pytest.mark.parametrize("every", EVERY)
@pytest.mark.parametrize("policy", ["reread", "stop"])
def test_rows_that_no_event_tells(server: MariadbServer, db: Cursor, loaded: Path, policy: str, every: bool) -> None:
    db.execute("SET GLOBAL local_infile = ON")
    db.execute("SET GLOBAL log_bin_trust_function_creators = ON")
    chosen = list(cases(UNSEEN_ROWS, loaded, every=every))
    for case in chosen:
        make_tables(db, case.number, "tue")
        make_followers(db, case.number)
    follower, stopped = run(server, db, chosen, policy)
    different = differences(db, follower)
    unexplained = {name: rows for name, rows in different.items() if name not in stopped}
    assert not unexplained, unexplained
    assert bool(stopped) == (policy == "stop")


def test_names_in_any_case(loaded: Path) -> None:
    """lower_case_table_names = 1: what a statement calls SHOP.T is shop.t everywhere else."""
    server = MariadbServer(["--lower-case-table-names=1"])
    try:
        db = connect(server, database="shop").cursor()
        chosen = list(cases(templates_for(server), loaded, upper=True))
        for case in chosen:
            make_tables(db, case.number, case.letters)
        follower, stopped = run(server, db, chosen, "reread")
        assert not differences(db, follower)
        assert not stopped
    finally:
        server.end()
