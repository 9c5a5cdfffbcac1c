"""DuckDB's derived tables: rows go in as Arrow columns, in one transaction.

DuckDB locks its file for one process. So a sink lets go of it when there is nothing to do, and for a moment now and
then when there is: others get at it then, if they try again for a while, as `headrace sync verify` does. While they
read the sink waits.
"""

import re
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, Final

from headrace import extras
from headrace.stores.duckdb.database import DuckdbDatabase
from headrace.stores.errors import RowRefused, SinkRefused, SinkUnavailable
from headrace.stores.sql.database import ColumnType, Rows, TableDatabase, fetch_chunks, with_key
from headrace.stores.sql.derived import SqlSink
from headrace.stores.sql.growth import ADD, TableOptions
from headrace.stores.sql.statements import TableName, quote, upsert_rows
from headrace.stores.values import Family

_STAGE: Final = "headrace_stage"
_TYPES: Final = {
    Family.BOOLEAN: "BOOLEAN", Family.INTEGER: "BIGINT", Family.FLOAT: "DOUBLE", Family.DECIMAL: "DECIMAL(38,10)",
    Family.TEXT: "VARCHAR", Family.JSON: "JSON",
}  # fmt: skip
_FAMILIES: Final = {
    "BOOLEAN": Family.BOOLEAN, "TINYINT": Family.INTEGER, "SMALLINT": Family.INTEGER, "INTEGER": Family.INTEGER,
    "BIGINT": Family.INTEGER, "HUGEINT": Family.INTEGER, "UTINYINT": Family.INTEGER, "USMALLINT": Family.INTEGER,
    "UINTEGER": Family.INTEGER, "UBIGINT": Family.INTEGER, "FLOAT": Family.FLOAT, "DOUBLE": Family.FLOAT,
    "DECIMAL": Family.DECIMAL, "VARCHAR": Family.TEXT, "JSON": Family.JSON, "BLOB": Family.BINARY,
    "DATE": Family.DATE, "TIME": Family.TIME, "TIMESTAMP": Family.TIMESTAMP,
    "TIMESTAMP WITH TIME ZONE": Family.INSTANT,
}  # fmt: skip
_HELD_S: Final = 1.0  # then others have a turn
_TURN_S: Final = 0.1
_MODIFIER: Final = re.compile(r"\([^)]*\)$")


def _family(spelling: str) -> Family:
    if spelling.endswith("[]"):
        return Family.ARRAY
    return _FAMILIES.get(_MODIFIER.sub("", spelling), Family.OTHER)


def _as_text(column: str) -> str:
    """A double as the text that JSON has for it, where it is a whole number."""
    is_whole = f"abs({column}) < 1e15 AND {column} = trunc({column})"
    return f"CASE WHEN {is_whole} THEN CAST(CAST({column} AS BIGINT) AS VARCHAR) ELSE CAST({column} AS VARCHAR) END"


class DuckdbTables(DuckdbDatabase, TableDatabase):
    """Several of one process have the file together: DuckDB lets them, and fails one of two that change one row."""

    types = _TYPES
    patience_s = 10.0

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self._arrow = extras.load("pyarrow")
        self._since_s = 0.0  # when it was opened
        self._turn_s = 0.0  # not to be opened before

    @property
    def _open(self) -> Any:
        if self._connection is None:
            time.sleep(max(self._turn_s - time.monotonic(), 0.0))
            self._connection = self._take_file()
            self._connection.execute("SET TimeZone = 'UTC'")
            self._since_s = time.monotonic()
        return self._connection

    def connect(self) -> None:
        self.close()
        assert self._open is not None

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def rest(self, *, is_idle: bool) -> None:
        """Let others have the file, if there is nothing to do or it is their turn."""
        now_s = time.monotonic()
        if self._connection is not None and (is_idle or now_s - self._since_s > _HELD_S):
            self.close()
            self._turn_s = 0.0 if is_idle else now_s + _TURN_S

    @contextmanager
    def translate_errors(self) -> Iterator[None]:
        """DuckDB's kinds of errors decide."""
        duckdb = self._duckdb
        try:
            yield
        except (duckdb.ConstraintException, duckdb.ConversionException, duckdb.OutOfRangeException) as error:
            raise RowRefused(f"DuckDB refuses the row: {error}") from error
        except (duckdb.IOException, duckdb.TransactionException, duckdb.OutOfMemoryException) as error:
            what = f"the lock on {self._path}" if "lock" in str(error) else "its target"
            raise SinkUnavailable(f"DuckDB file {self._path} cannot be opened: {error}", what=what) from error
        except duckdb.Error as error:
            raise SinkRefused(f"DuckDB file {self._path}: {error}") from error
        except self._arrow.ArrowInvalid as error:
            raise RowRefused(f"DuckDB refuses the row: {error}") from error

    def stream(self, statement: str, chunk_rows: int) -> Iterator[Rows]:
        return fetch_chunks(self._open.execute(statement), chunk_rows)

    def columns(self, table: TableName) -> dict[str, ColumnType]:
        found = self.run(
            "SELECT column_name, data_type FROM duckdb_columns() WHERE database_name = current_database() "
            "AND schema_name = ? AND table_name = ? ORDER BY column_index",
            (table.schema or "main", table.name),
        )
        return {name: ColumnType(spelling, _family(spelling)) for name, spelling in found}

    def readable(self, name: str, column: ColumnType) -> str:
        """Types that we do not know are read as text."""
        return f"CAST({quote(name)} AS VARCHAR)" if column.family is Family.OTHER else quote(name)

    def key_columns(self, table: TableName) -> list[str]:
        found = self.run(
            "SELECT constraint_column_names FROM duckdb_constraints() WHERE database_name = current_database() "
            "AND schema_name = ? AND table_name = ? AND constraint_type = 'PRIMARY KEY'",
            (table.schema or "main", table.name),
        )
        return list(found[0][0]) if found else []

    def retype(self, table: TableName, columns: Mapping[str, ColumnType], *, keys: Sequence[str]) -> None:
        """DuckDB alters no column of a table with a key."""
        held = self.columns(table)
        texts = [
            name
            for name, column in columns.items()
            if column.family is Family.TEXT and held[name].family is Family.FLOAT
        ]
        self.retype_beside(table, columns, keys, {name: _as_text(quote(name)) for name in texts})

    def create_like(self, table: TableName, model: TableName) -> None:
        parts = [f"{quote(name)} {column.spelling}" for name, column in self.columns(model).items()]
        self.run(f"CREATE TABLE {table} ({', '.join(with_key(parts, self.key_columns(model)))})")

    def upsert(self, table: TableName, columns: Mapping[str, ColumnType], keys: Sequence[str], rows: Rows) -> None:
        """From the stage, each column cast to the table's type."""
        with self._staged(columns, rows):
            chosen = ", ".join(f"CAST({quote(name)} AS {column.spelling})" for name, column in columns.items())
            self.run(upsert_rows(table, list(columns), keys, f"SELECT {chosen} FROM {_STAGE}"))  # noqa: S608

    def delete(self, table: TableName, columns: Mapping[str, ColumnType], rows: Rows) -> None:
        with self._staged(columns, rows):
            same = " AND ".join(
                f"t.{quote(name)} = CAST(s.{quote(name)} AS {column.spelling})" for name, column in columns.items()
            )
            self.run(f"DELETE FROM {table} t USING {_STAGE} s WHERE {same}")  # noqa: S608

    @contextmanager
    def _staged(self, columns: Mapping[str, ColumnType], rows: Rows) -> Iterator[None]:
        arrays = [self._arrow.array(list(values)) for values in zip(*rows, strict=True)]
        self._open.register(_STAGE, self._arrow.table(arrays, names=list(columns)))
        try:
            yield
        finally:
            with suppress(self._duckdb.TransactionException):  # one that failed goes back, and the stage with it
                self._open.unregister(_STAGE)


def duckdb(
    name: str,
    topic: str,
    path: str | Path,
    table: str,
    *,
    types: Mapping[str, str] | None = None,
    new_columns: str = ADD,
) -> SqlSink:
    """A sink to a table in a DuckDB file; `types` are those of columns that it makes."""
    options = TableOptions(TableName.parse(table), dict(types or {}), new_columns)
    return SqlSink(name, topic, partial(DuckdbTables, Path(path)), options)
