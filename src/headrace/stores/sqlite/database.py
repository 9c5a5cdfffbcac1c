"""SQLite: one file, one writer, for all of its faces.

SQLite asks no column for its values' type. Values are kept so that nothing is lost: decimals, dates and times as text
in ISO 8601 (instants in UTC), truth values as 0 and 1, Spark's arrays, structs and maps as JSON. SQLite has no NaN:
Spark's becomes NULL.
"""

import fcntl
import hashlib
import os
import sqlite3
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from headrace.stores.batch import TableColumn
from headrace.stores.sql.database import StagingDatabase
from headrace.stores.sql.statements import TableName, list_names, quote

if TYPE_CHECKING:
    import pyarrow as pa

    from headrace.stores.frames import Spool

BUSY_S = 120.0  # how long to wait for another writer of the same file
_LOOK_S = 0.005


class SqliteDatabase(StagingDatabase):
    """With `has_wal` readers see the last whole transaction while the next one is written.

    Another thread than the one that reads may close it: that waits for the statement that runs, as SQLite's driver does
    not (it would crash the process).
    """

    kind: ClassVar[str] = "SQLite"
    moment: ClassVar[str] = "TEXT"
    json_type: ClassVar[str] = "TEXT"
    column_types: ClassVar[Mapping[str, str]] = {
        **dict.fromkeys(("boolean", "byte", "short", "integer", "long"), "INTEGER"),
        **dict.fromkeys(("float", "double"), "REAL"),
        **dict.fromkeys(("decimal", "string", "date", "timestamp", "timestamp_ntz"), "TEXT"),
        "binary": "BLOB",
    }

    def __init__(self, path: Path, *, busy_s: float = BUSY_S, has_wal: bool = False) -> None:
        self._path, self._busy_s, self._has_wal = path, busy_s, has_wal
        self._open: sqlite3.Connection | None = None
        self._lock: int | None = None
        self._statement = threading.RLock()

    @property
    def _db(self) -> sqlite3.Connection:
        if self._open is None:  # perhaps by another thread, which closed it
            raise sqlite3.ProgrammingError("the database is closed")
        return self._open

    @staticmethod
    def driver_error() -> type[Exception]:
        return sqlite3.Error

    def connect(self) -> None:
        self.close()
        self._path.parent.mkdir(parents=True, exist_ok=True)
        # Transactions are ours to open and end.
        self._open = sqlite3.connect(self._path, timeout=self._busy_s, isolation_level=None, check_same_thread=False)
        if self._has_wal:
            self._begin_wal(self._open)
        self._open.execute("PRAGMA synchronous = FULL")

    def _begin_wal(self, db: sqlite3.Connection) -> None:
        """Once for a file, which remembers it. SQLite waits for others with everything but this, so that is for us."""
        until = time.monotonic() + self._busy_s
        while True:
            try:
                if db.execute("PRAGMA journal_mode").fetchone() != ("wal",):
                    db.execute("PRAGMA journal_mode = WAL")
            except sqlite3.OperationalError as error:
                is_busy = error.sqlite_errorcode & 0xFF == sqlite3.SQLITE_BUSY  # the rest of it says with what
                if not is_busy or time.monotonic() > until:
                    raise
                time.sleep(_LOOK_S)
            else:
                return

    def try_lock(self, name: str) -> bool:
        """By a file beside: SQLite's own locks keep other writers out of everything."""
        if self._lock is not None:
            return True
        digest = hashlib.sha256(name.encode()).hexdigest()[:16]
        lock = os.open(f"{self._path}.{digest}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(lock)
            return False
        self._lock = lock
        return True

    def close(self) -> None:
        with self._statement:
            if self._lock is not None:
                os.close(self._lock)
                self._lock = None
            if self._open is not None:
                self._open.close()
                self._open = None

    @contextmanager
    def transaction(self, start: str = "BEGIN IMMEDIATE") -> Iterator[None]:
        """The writer's lock is taken at the start."""
        self.run(start)
        try:
            yield
            self.run("COMMIT")
        except BaseException:
            with self._statement:
                if self._db.in_transaction:
                    self._db.execute("ROLLBACK")
            raise

    def run(self, statement: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        with self._statement:
            return self._db.execute(statement, tuple(values)).fetchall()

    def run_many(self, statement: str, rows: Iterable[Sequence[Any]]) -> None:
        with self._statement:
            self._db.executemany(statement, rows)

    def exists(self, table: TableName) -> bool:
        return bool(self.run("SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = ?", (table.name,)))

    def instant(self, ms: int | None = None) -> str:
        return str(super().instant(ms).isoformat())

    def describe(self, table: TableName) -> tuple[list[TableColumn], list[list[str]]]:
        held = self.run(f"PRAGMA table_info({quote(table.name)})")
        columns = [
            TableColumn(name, kind, bool(required) and default is None and not key)
            for _, name, kind, required, default, key in held
        ]
        uniques = [[name for _, name, _, _, _, key in held if key]]
        for _, index, is_unique, _, is_partial in self.run(f"PRAGMA index_list({quote(table.name)})"):
            if is_unique and not is_partial:
                uniques.append([row[2] for row in self.run(f"PRAGMA index_info({quote(index)})")])
        return columns, uniques

    def stage(self, spool: "Spool", types: Mapping[str, str]) -> str:  # noqa: ARG002 - it needs none
        names = spool.schema.names
        self.run(f"CREATE TEMP TABLE headrace_stage ({list_names(names)})")
        statement = f"INSERT INTO temp.headrace_stage VALUES ({', '.join('?' * len(names))})"  # noqa: S608
        # One transaction, and not one for each row; it only reads the file, so others are not kept from it.
        with nullcontext() if self._db.in_transaction else self.transaction("BEGIN"):
            for part in spool.batches():
                columns = [cell_values(part.column(index)) for index in range(part.num_columns)]
                self.run_many(statement, zip(*columns, strict=True))
        return "temp.headrace_stage"


def cell_values(column: "pa.Array") -> list[Any]:
    """Python values that SQLite keeps without loss."""
    import pyarrow as pa
    import pyarrow.compute as pc

    kind = column.type
    if pa.types.is_timestamp(kind):
        text = pc.strftime(column.cast(pa.timestamp("us")), format="%Y-%m-%dT%H:%M:%S")
        if kind.tz is not None:
            text = pc.binary_join_element_wise(text, "+00:00", "")
        return text.to_pylist()  # type: ignore[no-any-return]
    if pa.types.is_decimal(kind) or pa.types.is_date(kind):
        return column.cast(pa.string()).to_pylist()  # type: ignore[no-any-return]
    return column.to_pylist()  # type: ignore[no-any-return]
