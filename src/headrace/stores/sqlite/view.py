"""Views in a SQLite file: readers see the last whole batch while the next one is written.

The file keeps a write-ahead log, so that neither waits for the other. Values are kept as the batch sink keeps them:
decimals, dates and times as text, arrays, structs and maps as JSON.
"""

import json
import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC
from decimal import Context, Decimal, InvalidOperation
from pathlib import Path
from typing import Any

from headrace.stores.errors import StoreAway
from headrace.stores.sql.answer import Dialect
from headrace.stores.sql.statements import quote
from headrace.stores.sql.view import Connections, Run, SqlReader, SqlStore
from headrace.stores.sqlite.database import SqliteDatabase
from headrace.stores.values import Family
from headrace.stores.views.shape import Column, load_value
from headrace.stores.views.store import Label, never_written

_WIDE = Context(prec=100)  # Python's own context rounds to 28 digits; Spark's decimals have 38
_POLL_S = 0.03  # a look at a number in shared memory


@dataclass(frozen=True)
class SqliteStore(SqlStore):
    """Views in one file."""

    path: Path
    kind = "sqlite"
    engine = SqliteDatabase

    def __str__(self) -> str:
        return f"SQLite {self.path}"

    @contextmanager
    def writing(self, label: Label) -> Iterator[SqliteDatabase]:
        with SqliteDatabase(self.path, has_wal=True).open() as db:
            self.make_books(db, label.view)
            yield db

    def reader(self, view: str, bootstrap: str | None = None) -> SqlReader:  # noqa: ARG002 - for topics
        reading = _Reading(self.path, view)
        return SqlReader(
            view, self.table(view), reading.snapshot, _DIALECT, wait=reading.wait, close=reading.connections.close
        )


class _Reading:
    def __init__(self, path: Path, view: str) -> None:
        self._path, self._view = path, view
        self.connections = Connections(self._connect)

    def _connect(self) -> SqliteDatabase:
        if not self._path.exists():
            raise never_written(self._view)
        # It only reads; but a log that a killed writer left is put in order by whoever opens the file next.
        db = SqliteDatabase(self._path)
        db.connect()
        db.run("PRAGMA query_only = ON")
        return db

    @contextmanager
    def snapshot(self) -> Iterator[Run]:
        try:
            db = self.connections.get()
            with db.transaction("BEGIN"):
                yield db.run
        except sqlite3.OperationalError as error:
            if "no such table" in str(error):
                raise never_written(self._view) from error
            raise StoreAway(f"SQLite {self._path} cannot be read: {error}") from error

    def wait(self, revision: int, timeout_s: float) -> None:
        """Until somebody has written to the file, whose commits SQLite counts, and this view is past the revision."""
        until, seen = time.monotonic() + timeout_s, None
        db = self.connections.get()
        try:
            while not self.connections.is_closed and time.monotonic() < until:
                counted = db.run("PRAGMA data_version")
                if counted != seen:
                    seen = counted
                    found = db.run("SELECT revision FROM headrace_views WHERE name = ?", (self._view,))
                    if found and found[0][0] > revision:
                        return
                time.sleep(_POLL_S)
        except sqlite3.Error as error:
            if not self.connections.is_closed:  # else it was closed under our hands
                raise StoreAway(f"SQLite {self._path} cannot be read: {error}") from error


def _value(column: Column, value: Any) -> Any:
    if value is None:
        return None
    if column.family is Family.JSON:
        return json.loads(value)
    if column.family is Family.BOOLEAN:
        return bool(value)
    return value if column.family is Family.BINARY else load_value(column, value)


def _stored(column: Column, value: Any) -> Any:
    """A value as the column holds it, so that equal values are equal texts."""
    if value is None:
        return None
    if column.family is Family.DECIMAL:
        with suppress(InvalidOperation):  # it has more digits than a decimal of Spark's
            rounded = Decimal(value).quantize(Decimal(1).scaleb(-column.scale), context=_WIDE)
            if rounded == value:
                return f"{rounded:f}"
        return str(value)
    if column.family is Family.INSTANT:
        return value.astimezone(UTC).isoformat(timespec="microseconds")
    if column.family is Family.TIMESTAMP:
        return value.isoformat(timespec="microseconds")
    return value.isoformat() if column.family is Family.DATE else value


def _bound(column: Column, value: Any) -> Any:
    return float(value) if column.family is Family.DECIMAL and value is not None else _stored(column, value)


def _compared(column: Column) -> str:
    """Decimals are texts here, and are put in order as numbers of double precision."""
    return f"CAST({quote(column.name)} AS REAL)" if column.family is Family.DECIMAL else quote(column.name)


_DIALECT = Dialect(_compared, _bound, _stored, _value)


def sqlite(path: str | Path) -> SqliteStore:
    """Keep views in a SQLite file, each as a table of its name."""
    return SqliteStore(Path(path))
