"""Views in a SQLite file: readers see the last whole batch while the next one is written.

The file keeps a write-ahead log, so that neither waits for the other. Values are kept as the table sink keeps them:
decimals, dates and times as text, arrays, structs and maps as JSON.
"""

import json
import sqlite3
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headrace.stores.errors import StoreAway
from headrace.stores.sql.answer import Dialect
from headrace.stores.sql.batch import Run
from headrace.stores.sql.statements import TableName, listed, quoted
from headrace.stores.sql.view import SqlReader, SqlStore
from headrace.stores.views.shape import Column, Kind
from headrace.stores.views.store import Label, never_written
from headrace.stores.views.values import loaded

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

    from headrace.stores.batch import Target
    from headrace.stores.frames import Spool


_BUSY_S = 120.0
_POLL_S = 0.03  # a look at a number in shared memory


@dataclass(frozen=True)
class SqliteStore(SqlStore):
    """Views in one file."""

    path: Path
    kind = "sqlite"
    mark = "?"
    moment = "TEXT"

    def __str__(self) -> str:
        return f"SQLite {self.path}"

    def prepared(self, found: "DataFrame") -> "DataFrame":
        """Nested columns as JSON."""
        from headrace.stores.frames import nested_as_json

        return nested_as_json(found, keep_scalar_arrays=False)

    def types(self, schema: "StructType", target: "Target") -> dict[str, str]:
        """SQLite's names."""
        from headrace.stores.frames import store_types
        from headrace.stores.sqlite.batch import TYPES

        return store_types(schema, target, TYPES.get, f"SQLite view {target.table}")

    def table(self, view: str) -> TableName:
        """The table of a view."""
        return TableName(view)

    def now(self, ms: int) -> str:
        """ISO 8601."""
        return datetime.fromtimestamp(ms / 1000, UTC).isoformat()

    @contextmanager
    def writing(self, label: Label) -> Iterator["_Writing"]:
        """A connection; the writer's lock is taken at the start of the transaction."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with closing(sqlite3.connect(self.path, timeout=_BUSY_S, isolation_level=None)) as db:
            db.execute("PRAGMA journal_mode = WAL")
            db.execute("PRAGMA synchronous = FULL")
            writing = _Writing(db)
            self.bookkeeping(writing.run, self.table(label.view))
            yield writing

    def reader(self, view: str, bootstrap: str | None = None) -> SqlReader:  # noqa: ARG002 - for topics
        """A reader of one view."""
        connections = _Connections(self.path, view)
        return SqlReader(
            view,
            self.table(view),
            connections.snapshot,
            _DIALECT,
            _value,
            wait=connections.wait,
            close=connections.close,
        )


class _Writing:
    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db
        self.run: Run = lambda statement, values: db.execute(statement, values).fetchall()

    @contextmanager
    def transaction(self) -> Iterator[None]:
        self._db.execute("BEGIN IMMEDIATE")
        try:
            yield
            self._db.execute("COMMIT")
        except BaseException:
            if self._db.in_transaction:
                self._db.execute("ROLLBACK")
            raise

    def stage(self, spool: "Spool", types: Mapping[str, str]) -> str:  # noqa: ARG002 - a stage needs none
        from headrace.stores.sqlite.batch import cell_values

        names = spool.schema.names
        self._db.execute(f"CREATE TEMP TABLE headrace_stage ({listed(names)})")
        marks = ", ".join("?" * len(names))
        for part in spool.batches():
            columns = [cell_values(part.column(index)) for index in range(part.num_columns)]
            self._db.executemany(f"INSERT INTO temp.headrace_stage VALUES ({marks})", zip(*columns, strict=True))  # noqa: S608
        return "temp.headrace_stage"

    def exists(self, table: TableName) -> bool:
        asked = self._db.execute("SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = ?", (table.name,))
        return asked.fetchone() is not None

    def tell(self, label: Label, revision: int) -> None:
        """Readers look for themselves: SQLite counts the commits of others (`PRAGMA data_version`)."""


class _Connections:
    """A connection for each thread that reads; a connection of SQLite's belongs to its thread."""

    def __init__(self, path: Path, view: str) -> None:
        self._path, self._view = path, view
        self._own = threading.local()
        self._all: list[sqlite3.Connection] = []
        self._closed = False

    @contextmanager
    def snapshot(self) -> Iterator[Run]:
        db = self._connection()
        try:
            db.execute("BEGIN")
            try:
                yield lambda statement, values: db.execute(statement, values).fetchall()
            finally:
                db.execute("ROLLBACK")
        except sqlite3.OperationalError as error:
            if "no such table" in str(error):
                raise never_written(self._view) from error
            raise StoreAway(f"SQLite {self._path} cannot be read: {error}") from error

    def _connection(self) -> sqlite3.Connection:
        db: sqlite3.Connection | None = getattr(self._own, "db", None)
        if db is None:
            if not self._path.exists():
                raise never_written(self._view)
            # It only reads; but a log that a killed writer left is put in order by whoever opens the file next.
            db = sqlite3.connect(self._path, timeout=_BUSY_S, isolation_level=None, check_same_thread=False)
            db.execute("PRAGMA query_only = ON")
            self._own.db = db
            self._all.append(db)
        return db

    def wait(self, revision: int, timeout_s: float) -> None:
        """Until somebody has written to the file and this view is past the revision."""
        until = time.monotonic() + timeout_s
        db, seen = self._connection(), None
        try:
            while not self._closed and time.monotonic() < until:
                (counted,) = db.execute("PRAGMA data_version").fetchone()
                if counted != seen:
                    seen = counted
                    found = db.execute("SELECT revision FROM headrace_views WHERE name = ?", (self._view,)).fetchone()
                    if found and found[0] > revision:
                        return
                time.sleep(_POLL_S)
        except sqlite3.Error as error:
            if not self._closed:  # else it was closed under our hands
                raise StoreAway(f"SQLite {self._path} cannot be read: {error}") from error

    def close(self) -> None:
        self._closed = True
        for db in self._all:
            db.close()


def _value(column: Column, value: Any) -> Any:
    if value is None:
        return None
    if column.kind is Kind.NESTED:
        return json.loads(value)
    if column.kind is Kind.BOOLEAN:
        return bool(value)
    return value if column.kind is Kind.BINARY else loaded(column, value)


def _stored(column: Column, value: Any) -> Any:
    """A value as the column holds it, so that equal values are equal texts."""
    if value is None:
        return None
    if column.kind is Kind.DECIMAL:
        rounded = Decimal(value).quantize(Decimal(1).scaleb(-column.scale))
        return f"{rounded if rounded == value else value:f}"
    if column.kind is Kind.INSTANT:
        return value.astimezone(UTC).isoformat(timespec="microseconds")
    if column.kind is Kind.LOCAL_TIME:
        return value.isoformat(timespec="microseconds")
    return value.isoformat() if column.kind is Kind.DATE else value


def _bound(column: Column, value: Any) -> Any:
    return float(value) if column.kind is Kind.DECIMAL and value is not None else _stored(column, value)


def _compared(column: Column) -> str:
    """Decimals are texts here, and are put in order as numbers of double precision."""
    return f"CAST({quoted(column.name)} AS REAL)" if column.kind is Kind.DECIMAL else quoted(column.name)


_DIALECT = Dialect("?", quoted, _compared, _bound, _stored)


def sqlite(path: str | Path) -> SqliteStore:
    """Keep views in a SQLite file, each as a table of its name."""
    return SqliteStore(Path(path))
