"""SQLite: one file, one writer.

SQLite asks no column for its values' type; what a column was declared as decides how the log's values are stored:
times as ISO 8601 text, decimals and JSON as text so that no digit is lost, truth values as 0 and 1.
"""

import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import date, datetime, time
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any, Final

from headrace.stores.errors import RowRefused, SinkRefused, SinkUnavailable
from headrace.stores.sql.database import ColumnType, Rows, TableName, conflict_upsert, full_name
from headrace.stores.sql.derived import ADD, SqlSink, TableOptions
from headrace.stores.values import Family, Misfit

_BUSY_S: Final = 30.0  # how long to wait for another writer of the same file
_TYPES: Final = {
    Family.BOOLEAN: "BOOLEAN", Family.INTEGER: "INTEGER", Family.FLOAT: "REAL", Family.DECIMAL: "DECIMAL_TEXT",
    Family.TEXT: "TEXT", Family.JSON: "JSON_TEXT",
}  # fmt: skip
# The first that occurs in a declared type decides. A type that holds TEXT has SQLite's text affinity.
_FAMILIES: Final = (
    ("JSON", Family.JSON), ("DECIMAL", Family.DECIMAL), ("NUMERIC", Family.DECIMAL), ("BOOL", Family.BOOLEAN),
    ("TIMESTAMPTZ", Family.INSTANT), ("TIMESTAMP", Family.TIMESTAMP), ("DATETIME", Family.TIMESTAMP),
    ("DATE", Family.DATE), ("TIME", Family.TIME), ("INT", Family.INTEGER), ("BLOB", Family.BINARY),
    ("REAL", Family.FLOAT), ("FLOA", Family.FLOAT), ("DOUB", Family.FLOAT),
)  # fmt: skip
_NEVER_FITS: Final = (sqlite3.SQLITE_CONSTRAINT, sqlite3.SQLITE_MISMATCH, sqlite3.SQLITE_TOOBIG)
_PASSES: Final = (
    sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN,
)  # fmt: skip


def _family(declared: str) -> Family:
    upper = declared.upper()
    return next((family for word, family in _FAMILIES if word in upper), Family.TEXT)


def _as_text(column: str, family: Family) -> str:
    """A value as the text that JSON has for it."""
    if family is Family.BOOLEAN:
        return f"CASE {column} WHEN 1 THEN 'true' WHEN 0 THEN 'false' END"
    is_whole = f"abs({column}) < 1e15 AND {column} = CAST({column} AS INTEGER)"
    return f"CASE WHEN {is_whole} THEN CAST(CAST({column} AS INTEGER) AS TEXT) ELSE CAST({column} AS TEXT) END"


class SqliteDatabase:
    """A `Database`."""

    kind = "SQLite"
    lock = ""  # a transaction of ours holds the whole file
    is_ddl_transactional = True

    def __init__(self, path: Path) -> None:
        self._path = path
        self._open: sqlite3.Connection | None = None

    @property
    def _db(self) -> sqlite3.Connection:
        assert self._open is not None
        return self._open

    def connect(self) -> None:
        """Open the file."""
        self.close()
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self._open = sqlite3.connect(self._path, timeout=_BUSY_S, isolation_level=None, check_same_thread=False)
        self._open.execute("PRAGMA synchronous = FULL")

    def close(self) -> None:
        """Close it."""
        if self._open is not None:
            self._open.close()
            self._open = None

    def rest(self, *, is_idle: bool) -> None:
        """Others are not kept from anything."""

    @contextmanager
    def translated(self) -> Iterator[None]:
        """SQLite's primary result code decides."""
        try:
            yield
        except sqlite3.Error as error:
            code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF
            if code in _NEVER_FITS or isinstance(error, sqlite3.IntegrityError):
                raise RowRefused(f"SQLite refuses the row: {error}") from error
            if code in _PASSES:
                what = f"the lock on {self._path}" if "lock" in str(error) else "its target"
                raise SinkUnavailable(f"SQLite file {self._path}: {error}", what=what) from error
            if "ON CONFLICT clause does not match" in str(error):
                raise SinkRefused(
                    f"the table in {self._path} has no unique key over the columns of the record's key: make one with "
                    "CREATE UNIQUE INDEX"
                ) from error
            raise SinkRefused(f"SQLite file {self._path}: {error}") from error
        except OverflowError as error:
            raise RowRefused(f"SQLite refuses the row: {error}") from error

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """The writer's lock is taken at the start."""
        self._db.execute("BEGIN IMMEDIATE")
        try:
            yield
            self._db.execute("COMMIT")
        except BaseException:
            if self._db.in_transaction:
                self._db.execute("ROLLBACK")
            raise

    def quoted(self, name: str) -> str:
        """In double quotes."""
        return '"' + name.replace('"', '""') + '"'

    def run(self, statement: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """One statement."""
        return self._db.execute(statement, tuple(values)).fetchall()

    def stream(self, statement: str, chunk_rows: int) -> Iterator[Rows]:
        """A read transaction sees one moment."""
        cursor = self._db.execute(statement)
        while chunk := cursor.fetchmany(chunk_rows):
            yield chunk

    def columns(self, table: TableName) -> dict[str, ColumnType]:
        """As they were declared."""
        found = self._db.execute(f"PRAGMA table_info({self.quoted(table.name)})").fetchall()
        return {name: ColumnType(declared, _family(declared)) for _, name, declared, *_ in found}

    def readable(self, name: str, column: ColumnType) -> str:  # noqa: ARG002 - the same for all types
        """As it is."""
        return self.quoted(name)

    def key_columns(self, table: TableName) -> list[str]:
        """In the key's order."""
        found = self._db.execute(f"PRAGMA table_info({self.quoted(table.name)})").fetchall()
        return [row[1] for row in sorted((row for row in found if row[5]), key=lambda row: row[5])]

    def type_for(self, family: Family, *, is_key: bool) -> str:  # noqa: ARG002 - the same for keys
        """The type of a new column."""
        return _TYPES[family]

    def retype(self, table: TableName, columns: Mapping[str, ColumnType], *, keys: Sequence[str]) -> None:
        """Through a table beside it, because SQLite changes no declared type; indexes are made again."""
        indexes = self._db.execute(
            "SELECT sql FROM sqlite_master WHERE type = 'index' AND tbl_name = ? AND sql IS NOT NULL", (table.name,)
        ).fetchall()
        held = self.columns(table)
        beside, there = table.with_suffix("retyped"), self.quoted(table.name)
        parts = [f"{self.quoted(name)} {columns.get(name, column).spelling}" for name, column in held.items()]
        chosen = [
            _as_text(self.quoted(name), column.family) if name in columns and columns[name].family is Family.TEXT
            else self.quoted(name)
            for name, column in held.items()
        ]  # fmt: skip
        key = f", PRIMARY KEY ({', '.join(map(self.quoted, keys))})" if keys else ""
        self._db.execute(f"CREATE TABLE {self.quoted(beside.name)} ({', '.join(parts)}{key})")
        self._db.execute(f"INSERT INTO {self.quoted(beside.name)} SELECT {', '.join(chosen)} FROM {there}")  # noqa: S608
        self._db.execute(f"DROP TABLE {there}")
        self._db.execute(f"ALTER TABLE {self.quoted(beside.name)} RENAME TO {there}")
        for (statement,) in indexes:
            self._db.execute(statement)

    def create_like(self, table: TableName, model: TableName) -> None:
        """From the statement's parts; SQLite has no LIKE for tables."""
        found = self._db.execute(f"PRAGMA table_info({self.quoted(model.name)})").fetchall()
        parts = [
            f"{self.quoted(name)} {declared}{' NOT NULL' if required else ''}"
            f"{f' DEFAULT {default}' if default is not None else ''}"
            for _, name, declared, required, default, _ in found
        ]
        if keys := self.key_columns(model):
            parts.append(f"PRIMARY KEY ({', '.join(map(self.quoted, keys))})")
        self._db.execute(f"CREATE TABLE {full_name(self, table)} ({', '.join(parts)})")

    def rename(self, moves: Sequence[tuple[TableName, TableName]]) -> None:
        """Indexes go over to the table that takes the name."""
        (replaced, _), *_ = moves
        indexes = self._db.execute(
            "SELECT name, sql FROM sqlite_master WHERE type = 'index' AND tbl_name = ? AND sql IS NOT NULL",
            (replaced.name,),
        ).fetchall()
        for name, _ in indexes:
            self._db.execute(f"DROP INDEX {self.quoted(name)}")
        for old, new in moves:
            self._db.execute(f"ALTER TABLE {self.quoted(old.name)} RENAME TO {self.quoted(new.name)}")
        for _, statement in indexes:
            self._db.execute(statement)

    def bind(self, value: Any, family: Family) -> Any:
        """SQLite holds numbers, texts and bytes; what is not a number would become null."""
        if family is Family.FLOAT and value != value:
            raise Misfit("NaN is not among SQLite's numbers")
        if isinstance(value, datetime):
            return value.isoformat(timespec="microseconds")
        if isinstance(value, date | time):
            return value.isoformat()
        if isinstance(value, Decimal):
            return f"{value:f}" if value.is_finite() else str(value)
        return int(value) if family is Family.BOOLEAN else value

    def upsert(self, table: TableName, columns: Mapping[str, ColumnType], keys: Sequence[str], rows: Rows) -> None:
        """One prepared statement for all rows."""
        names = list(columns)
        marks = f"VALUES ({', '.join('?' * len(names))})"
        self._db.executemany(conflict_upsert(self.quoted, full_name(self, table), names, keys, marks), rows)

    def delete(self, table: TableName, columns: Mapping[str, ColumnType], rows: Rows) -> None:
        """One prepared statement for all keys."""
        same = " AND ".join(f"{self.quoted(name)} = ?" for name in columns)
        self._db.executemany(f"DELETE FROM {full_name(self, table)} WHERE {same}", rows)  # noqa: S608


def sqlite(
    name: str,
    topic: str,
    path: str | Path,
    table: str,
    *,
    types: Mapping[str, str] | None = None,
    new_columns: str = ADD,
) -> SqlSink:
    """A sink to a table in a SQLite file; `types` are those of columns that it makes."""
    # The dot of a schema means nothing here: the file is the schema.
    options = TableOptions(TableName.parse(table.replace(".", "_")), dict(types or {}), new_columns)
    return SqlSink(name, topic, partial(SqliteDatabase, Path(path)), options)
