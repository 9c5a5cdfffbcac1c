"""SQLite's derived tables. What a column was declared as decides how the log's values are stored in it."""

import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import date, datetime, time
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any, Final

from headrace.stores.errors import RowRefused, SinkRefused, SinkUnavailable
from headrace.stores.sql.database import ColumnType, Rows, TableDatabase, fetch_chunks, with_key
from headrace.stores.sql.derived import SqlSink
from headrace.stores.sql.growth import ADD, TableOptions
from headrace.stores.sql.statements import TableName, quote, upsert_rows
from headrace.stores.sqlite.database import SqliteDatabase
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


class SqliteTables(SqliteDatabase, TableDatabase):
    types = _TYPES

    def __init__(self, path: Path) -> None:
        super().__init__(path, busy_s=_BUSY_S)

    @contextmanager
    def translate_errors(self) -> Iterator[None]:
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

    def stream(self, statement: str, chunk_rows: int) -> Iterator[Rows]:
        return fetch_chunks(self._db.execute(statement), chunk_rows)

    def _info(self, table: TableName) -> list[tuple[Any, ...]]:
        return self.run(f"PRAGMA table_info({quote(table.name)})")

    def _indexes(self, table: TableName) -> list[tuple[Any, ...]]:
        return self.run(
            "SELECT name, sql FROM sqlite_master WHERE type = 'index' AND tbl_name = ? AND sql IS NOT NULL",
            (table.name,),
        )

    def columns(self, table: TableName) -> dict[str, ColumnType]:
        return {name: ColumnType(declared, _family(declared)) for _, name, declared, *_ in self._info(table)}

    def key_columns(self, table: TableName) -> list[str]:
        return [row[1] for row in sorted((row for row in self._info(table) if row[5]), key=lambda row: row[5])]

    def retype(self, table: TableName, columns: Mapping[str, ColumnType], *, keys: Sequence[str]) -> None:
        """SQLite changes no declared type; indexes are made again."""
        indexes, held = self._indexes(table), self.columns(table)
        texts = [name for name, column in columns.items() if column.family is Family.TEXT]
        self.retype_beside(table, columns, keys, {name: _as_text(quote(name), held[name].family) for name in texts})
        for _, statement in indexes:
            self.run(statement)

    def create_like(self, table: TableName, model: TableName) -> None:
        """From the columns; SQLite has no LIKE for tables, and indexes come with the switch."""
        parts = [
            f"{quote(name)} {declared}{' NOT NULL' if required else ''}"
            f"{f' DEFAULT {default}' if default is not None else ''}"
            for _, name, declared, required, default, _ in self._info(model)
        ]
        self.run(f"CREATE TABLE {table} ({', '.join(with_key(parts, self.key_columns(model)))})")

    def rename(self, moves: Sequence[tuple[TableName, TableName]]) -> None:
        """Indexes go over to the table that takes the name."""
        indexes = self._indexes(moves[0][0])
        for name, _ in indexes:
            self.run(f"DROP INDEX {quote(name)}")
        super().rename(moves)
        for _, statement in indexes:
            self.run(statement)

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
        marks = f"VALUES ({', '.join('?' * len(columns))})"
        self.run_many(upsert_rows(table, list(columns), keys, marks), rows)

    def delete(self, table: TableName, columns: Mapping[str, ColumnType], rows: Rows) -> None:
        same = " AND ".join(f"{quote(name)} = ?" for name in columns)
        self.run_many(f"DELETE FROM {table} WHERE {same}", rows)  # noqa: S608


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
    return SqlSink(name, topic, partial(SqliteTables, Path(path)), options)
