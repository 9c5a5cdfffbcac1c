"""Triggers put in place, kept in step with the tables' shapes, and taken away again.

Everything here happens in one transaction that writes, so no change falls between an old trigger and a new one. What
was written between a change of shape and the moment at which it is noticed is captured then, in the same transaction:
values of a new column, the rows of a table that was dropped and made again, of which the old triggers knew nothing.

A column that a trigger names cannot be dropped; SQLite says so, and `uninstall` of the table goes before.

SQLite runs a table's triggers from the youngest to the oldest. One of the user's that is younger than ours, and writes
to the same table (`AFTER UPDATE … UPDATE t SET changed_at = …`), has its own change noted before the one that it
belongs to, and the last word about the row is an old one. So ours are made again whenever they are not the youngest.
"""

# ruff: noqa: S608 - the names in these statements are quoted, and the capture's own is checked

import re
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from headrace.connect.change import Position
from headrace.connect.errors import SourceRefused
from headrace.connect.filters import Filters, check_captured, check_key_columns, unknown_table
from headrace.connect.sqlite.connection import SqliteSettings, connect, translated, writing
from headrace.connect.sqlite.shape import Shape, difference, list_tables, read_shape
from headrace.connect.sqlite.statements import (
    FIXED_COLUMNS,
    KINDS,
    every_row,
    late_values,
    note,
    own_tables,
    quote,
    tables_of,
    trigger_name,
    triggers_of,
)
from headrace.connect.unseen import STOP
from headrace.telemetry.logs import get_logger

log = get_logger(__name__)
REPLACED = "it was replaced by another table of its name, or its triggers were taken away"
_REKEYED = "its rows are known by another key or by other values than before"
_OVERTAKEN = "a trigger that was added to it writes to it as well, and came before the triggers of the capture"
_BEGIN = re.compile(r"\bBEGIN\b", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Known:
    """A shape that was stored; `active` if triggers write it."""

    id: int
    shape: Shape
    active: bool


class Capture:
    """What capture keeps in one database; the connection is its own."""

    def __init__(self, connection: sqlite3.Connection, settings: SqliteSettings) -> None:
        self._connection = connection
        self._settings = settings
        self._name = settings.capture

    def install(self) -> None:
        """Put triggers on every captured table, or bring them up to date."""
        connection = self._connection
        with translated(self._settings.path):
            mode = connection.execute("PRAGMA journal_mode=WAL").fetchone()[0]
            if mode != "wal":
                raise SourceRefused(
                    f"database {self._settings.path} stays in journal mode {mode}, in which a reader stops writers",
                    "PRAGMA journal_mode=WAL",
                )
            with writing(connection):
                for statement in tables_of(self._name):
                    connection.execute(statement)
                self._bring_up_to_date(self.captured())

    def refresh(self) -> None:
        """Follow whatever happened to the tables; a new one that cannot be captured is told and left out."""
        with translated(self._settings.path), writing(self._connection):
            self._bring_up_to_date(self._filtered(list_tables(self._connection)), is_running=True)

    def captured(self) -> list[str]:
        """The tables that the filters let through."""
        every = list_tables(self._connection)
        filters = self._settings.filters
        for pattern in filters.include_tables:
            if not any(_captures(Filters(include_tables=[pattern]), table) for table in every):
                raise unknown_table(pattern.removeprefix("main."), every, str(self._settings.path))
        found = self._filtered(every)
        for name in filters.key_columns:
            if name.removeprefix("main.") not in found or not name.startswith("main."):
                check_key_columns({name: ()}, {f"main.{table}": {} for table in found})
        return found

    def _filtered(self, every: list[str]) -> list[str]:
        return [table for table in every if _captures(self._settings.filters, table)]

    def known(self) -> list[Known]:
        """Every shape that captured changes may have, the oldest first."""
        return [
            Known(id_, Shape.from_json(name, text), bool(active))
            for id_, name, text, active in self._connection.execute(
                f"SELECT id, name, shape, active FROM {self._name}_shapes ORDER BY id"
            )
        ]

    def state(self) -> tuple[str, int, int]:
        """Which installation this is, up to where changes were pruned, and the last position that was given."""
        installed, pruned = self._connection.execute(f"SELECT installed, pruned FROM {self._name}_state").fetchone()
        row = self._connection.execute(
            "SELECT seq FROM sqlite_sequence WHERE name = ?", [f"{self._name}_changes"]
        ).fetchone()
        return installed, pruned, row[0] if row else 0

    def prune(self, position: int) -> None:
        """Forget changes up to here, in portions; a writer in the way is no reason to fail, the next time will do."""
        connection = self._connection
        if position <= connection.execute(f"SELECT pruned FROM {self._name}_state").fetchone()[0]:
            return
        try:
            while True:
                with writing(connection):
                    gone = connection.execute(
                        f"DELETE FROM {self._name}_changes WHERE position IN (SELECT position FROM "
                        f"{self._name}_changes WHERE position <= ? ORDER BY position LIMIT ?)",
                        [position, self._settings.prune_rows],
                    ).rowcount
                    # With the first portion already: from then on something is missing for who stands before it.
                    connection.execute(f"UPDATE {self._name}_state SET pruned = ?", [position])
                if gone < self._settings.prune_rows:
                    return
        except sqlite3.OperationalError as error:
            log.info("pruning put off", path=str(self._settings.path), reason=str(error))

    # --- in one transaction

    def _bring_up_to_date(self, tables: list[str], *, is_running: bool = False) -> None:
        every_known = self.known()
        active = {known.shape.table: known for known in every_known if known.active}
        for name, known in active.items():
            if name not in tables:
                self._retire(known)
                self._connection.execute(note(self._name, known.id, "t"))
                log.info("capture ended", table=name)
        for name in tables:
            known_now = active.get(name)
            try:
                shape = read_shape(self._connection, name, self._settings.filters.key_of(f"main.{name}"))
            except SourceRefused as refused:
                if not is_running or known_now is not None:
                    raise
                log.warning("new table left out", table=name, reason=str(refused))
                continue
            if known_now is None:
                shape_id = self._store(shape)
                self._write_triggers(shape, shape_id)
                if every_known:  # capture has begun before, so no snapshot need come that reads what the table holds
                    self._connection.execute(every_row(self._name, shape, shape_id))
            elif not self._has_triggers(known_now):
                self._begin_again(known_now, shape, REPLACED)
            elif not shape.has_same_identity(known_now.shape):
                self._begin_again(known_now, shape, _REKEYED)
            elif self._is_overtaken(known_now):
                self._begin_again(known_now, shape, _OVERTAKEN)
            elif known_now.shape != shape:
                self._change(known_now, shape)

    def _begin_again(self, before: Known, shape: Shape, why: str) -> None:
        """All that is known of a table is what it holds now."""
        self._retire(before)
        shape_id = self._store(shape)
        self._write_triggers(shape, shape_id)
        if shape != before.shape:
            self._connection.execute(note(self._name, shape_id, "s"))
        if self._settings.unseen_changes == STOP:
            self._connection.execute(note(self._name, shape_id, "h", why))
            return
        self._connection.execute(note(self._name, shape_id, "t"))
        self._connection.execute(every_row(self._name, shape, shape_id))
        log.warning("table is read again", table=shape.table, reason=why)

    def _change(self, before: Known, shape: Shape) -> None:
        self._retire(before)
        shape_id = self._store(shape)
        self._write_triggers(shape, shape_id)
        self._connection.execute(note(self._name, shape_id, "s"))
        added = [name for name in shape.names if name not in before.shape.names]
        if added:
            self._connection.execute(late_values(self._name, shape, shape_id, added))
        log.info("shape changed", table=shape.table, what=difference(before.shape, shape))

    def _store(self, shape: Shape) -> int:
        stored = self._connection.execute(
            f"INSERT INTO {self._name}_shapes (name, shape, active) VALUES (?, ?, 1)", [shape.table, shape.as_json()]
        ).lastrowid
        assert stored is not None
        return stored

    def _write_triggers(self, shape: Shape, shape_id: int) -> None:
        have = len(self._connection.execute(f"PRAGMA table_info({self._name}_changes)").fetchall()) - FIXED_COLUMNS
        for place in range(have, 2 * len(shape.columns) + bool(shape.rowid)):
            self._connection.execute(f"ALTER TABLE {self._name}_changes ADD COLUMN v{place}")
        for statement in triggers_of(self._name, shape, shape_id):
            self._connection.execute(statement)

    def _has_triggers(self, known: Known) -> bool:
        wanted = {trigger_name(self._name, known.id, kind) for kind in KINDS}
        return wanted <= {
            name
            for (name,) in self._connection.execute(
                "SELECT name FROM sqlite_master WHERE type = 'trigger' AND tbl_name = ?", [known.shape.table]
            )
        }

    def _is_overtaken(self, known: Known) -> bool:
        """Whether a trigger that is no capture's runs before ours, and may have written to the table itself.

        By the words of all triggers, for one may set off another; what a foreign key does is in none of them.
        """
        table = known.shape.table
        captures = {trigger for one in _captures_in(self._connection) for trigger in self._triggers_of(one)}
        theirs = [
            (number, on, sql)
            for number, name, on, sql in self._connection.execute(
                "SELECT rowid, name, tbl_name, sql FROM sqlite_master WHERE type = 'trigger'"
            )
            if name not in captures
        ]
        (oldest,) = self._connection.execute(
            "SELECT min(rowid) FROM sqlite_master WHERE type = 'trigger' AND name IN (?, ?, ?, ?, ?)",
            [trigger_name(self._name, known.id, kind) for kind in KINDS],
        ).fetchone()
        if not any(on.lower() == table.lower() and number > oldest for number, on, _ in theirs):
            return False
        if self._connection.execute("SELECT 1 FROM pragma_foreign_key_list(?)", [table]).fetchone():
            return True
        word = re.escape(quote(table)[1:-1])
        named = re.compile(rf"(?<!\w){word}(?!\w)", re.IGNORECASE)
        return any(named.search(_BEGIN.split(sql, maxsplit=1)[-1]) for _, _, sql in theirs)

    def _triggers_of(self, capture: str) -> set[str]:
        shapes = self._connection.execute(f"SELECT id FROM {quote(capture + '_shapes')}").fetchall()
        return {trigger_name(capture, shape_id, kind) for (shape_id,) in shapes for kind in KINDS}

    def _retire(self, known: Known) -> None:
        for kind in KINDS:
            self._connection.execute(f"DROP TRIGGER IF EXISTS {trigger_name(self._name, known.id, kind)}")
        self._connection.execute(f"UPDATE {self._name}_shapes SET active = 0 WHERE id = ?", [known.id])


def read_anew(settings: SqliteSettings, tables: Sequence[str]) -> None:
    """Have a running source read every row of these tables (`main.table`) again, while changes go on.

    The rows are written among the changes, in one transaction: no other writes meanwhile, so each stands where it was
    true, and nothing newer can come before it.
    """
    with closing(connect(settings.path, settings.busy_timeout_s)) as connection:
        capture = Capture(connection, settings)
        capture.refresh()
        with translated(settings.path), writing(connection):
            active = {f"main.{known.shape.table}": known for known in capture.known() if known.active}
            check_captured(tables, active, "main.table")
            for name in tables:
                connection.execute(note(settings.capture, active[name].id, "e"))
                if not active[name].shape.key:
                    connection.execute(note(settings.capture, active[name].id, "t"))
                connection.execute(every_row(settings.capture, active[name].shape, active[name].id))


def _captures(filters: Filters, table: str) -> bool:
    """A table may be named with or without its schema, as there is hardly another."""
    if filters.include_tables:
        return filters.captures(f"main.{table}") or filters.captures(table)
    return filters.captures(f"main.{table}") and filters.captures(table)


def uninstall(path: Path, capture: str = "headrace", busy_timeout_s: float = 10.0) -> None:
    """Take away every trigger and table of a capture; the user's own stay as they are."""
    with closing(connect(path, busy_timeout_s)) as connection, translated(path), writing(connection):
        if connection.execute(
            "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = ?", [f"{capture}_shapes"]
        ).fetchone():
            for (shape_id,) in connection.execute(f"SELECT id FROM {capture}_shapes").fetchall():
                for kind in KINDS:
                    connection.execute(f"DROP TRIGGER IF EXISTS {trigger_name(capture, shape_id, kind)}")
        for table in own_tables(capture):
            connection.execute(f"DROP TABLE IF EXISTS {quote(table)}")


def list_captures(path: Path, busy_timeout_s: float = 10.0) -> list[str]:
    """The captures that are installed in a database."""
    with closing(connect(path, busy_timeout_s)) as connection, translated(path):
        return _captures_in(connection)


def _captures_in(connection: sqlite3.Connection) -> list[str]:
    tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    names = [name.removesuffix("_state") for name in tables if name.endswith("_state")]
    return [name for name in names if tables.issuperset(own_tables(name))]


def acknowledged(path: Path, capture: str, busy_timeout_s: float = 10.0) -> Position | None:
    """The position up to which a capture was acknowledged; None if it is not installed."""
    if capture not in list_captures(path, busy_timeout_s):
        return None
    with closing(connect(path, busy_timeout_s)) as connection, translated(path):
        row = connection.execute(f"SELECT installed, pruned FROM {capture}_state").fetchone()
    return {"capture": row[0], "change": row[1]}
