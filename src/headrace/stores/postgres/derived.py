"""PostgreSQL's derived tables: a batch is copied into a temporary table and merged from there, in one transaction."""

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Final

from headrace.stores.errors import InvalidConnectSetting, RowRefused, SinkRefused, SinkUnavailable
from headrace.stores.postgres.database import STAGE, PostgresDatabase
from headrace.stores.sql.database import ColumnType, Rows, TableDatabase, fetch_chunks
from headrace.stores.sql.derived import SqlSink
from headrace.stores.sql.growth import ADD, TableOptions
from headrace.stores.sql.statements import TableName, list_names, quote, upsert_rows
from headrace.stores.values import Family

_FEW: Final = 8  # rows that are cheaper to insert one by one than to copy and merge
_CONNECT_S: Final = 10
_TYPES: Final = {
    Family.BOOLEAN: "boolean", Family.INTEGER: "bigint", Family.FLOAT: "double precision", Family.DECIMAL: "numeric",
    Family.TEXT: "text", Family.JSON: "jsonb",
}  # fmt: skip
_FAMILIES: Final = {
    "boolean": Family.BOOLEAN, "smallint": Family.INTEGER, "integer": Family.INTEGER, "bigint": Family.INTEGER,
    "oid": Family.INTEGER, "real": Family.FLOAT, "double precision": Family.FLOAT, "numeric": Family.DECIMAL,
    "money": Family.DECIMAL, "bit": Family.BITS,
    "text": Family.TEXT, "character varying": Family.TEXT, "character": Family.TEXT, "json": Family.JSON,
    "jsonb": Family.JSON, "bytea": Family.BINARY, "date": Family.DATE, "time without time zone": Family.TIME,
    "timestamp without time zone": Family.TIMESTAMP, "timestamp with time zone": Family.INSTANT,
}  # fmt: skip
_MODIFIER: Final = re.compile(r"\([^)]*\)")
# Data exceptions and violated constraints: the row is at fault, and will be the next time.
_ROW_CLASSES: Final = ("22", "23")
# Connections, resources, an operator's doing, a transaction that lost a race: it may go better the next time.
_PASSING_CLASSES: Final = ("08", "40", "53", "57", "58", "55")


def _family(spelling: str) -> Family:
    if spelling.endswith("[]"):
        return Family.ARRAY
    return _FAMILIES.get(_MODIFIER.sub("", spelling), Family.OTHER)


class PostgresTables(PostgresDatabase, TableDatabase):
    lock = " FOR UPDATE"
    types = _TYPES

    def __init__(self, url: str) -> None:
        super().__init__(url, connect_timeout=_CONNECT_S, application_name="headrace-sync")

    def connect(self) -> None:
        super().connect()
        # What is read back shall look as the log has it.
        self.run(
            "SET client_min_messages = warning; SET intervalstyle = iso_8601; SET timezone = 'UTC'; "
            "SET lc_monetary = 'C'"
        )

    @contextmanager
    def translate_errors(self) -> Iterator[None]:
        """The class of the SQLSTATE decides."""
        try:
            yield
        except self._psycopg.Error as error:
            state = error.sqlstate or ""
            text = str(error).strip().split("\n")[0]
            # psycopg itself refuses a text with a zero byte, which PostgreSQL cannot hold.
            if state[:2] in _ROW_CLASSES or (not state and isinstance(error, self._psycopg.DataError)):
                raise RowRefused(f"PostgreSQL refuses the row: {text}") from error
            if not state or state[:2] in _PASSING_CLASSES:
                raise SinkUnavailable(f"PostgreSQL cannot be reached: {text}") from error
            if state == "42P10":
                raise SinkRefused(
                    "the table has no unique key over the columns of the record's key: "
                    "ALTER TABLE … ADD PRIMARY KEY (…)"
                ) from error
            raise SinkRefused(f"PostgreSQL refuses: {text}") from error

    def stream(self, statement: str, chunk_rows: int) -> Iterator[Rows]:
        with self.transaction(), self._db.cursor(name="headrace_scan") as cursor:
            cursor.execute(statement)
            yield from fetch_chunks(cursor, chunk_rows)

    def columns(self, table: TableName) -> dict[str, ColumnType]:
        """Without generated columns, which are not ours to write."""
        found = self.run(
            "SELECT attname, format_type(atttypid, atttypmod) FROM pg_attribute WHERE attrelid = to_regclass(?) "
            "AND attnum > 0 AND NOT attisdropped AND attgenerated = '' ORDER BY attnum",
            (str(table),),
        )
        return {name: ColumnType(spelling, _family(spelling)) for name, spelling in found}

    def readable(self, name: str, column: ColumnType) -> str:
        """What psycopg has types of its own for is read as PostgreSQL writes it."""
        if column.family is Family.BITS:
            return f"'b' || {quote(name)}::text"
        if column.spelling == "money":
            return f"{quote(name)}::numeric"
        return f"{quote(name)}::text" if column.family is Family.OTHER else quote(name)

    def key_columns(self, table: TableName) -> list[str]:
        found = self.run(
            "SELECT a.attname FROM pg_index i CROSS JOIN LATERAL unnest(i.indkey) WITH ORDINALITY AS k(number, place) "
            "JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k.number "
            "WHERE i.indrelid = to_regclass(?) AND i.indisprimary ORDER BY k.place",
            (str(table),),
        )
        return [name for (name,) in found]

    def retype(self, table: TableName, columns: Mapping[str, ColumnType], *, keys: Sequence[str]) -> None:  # noqa: ARG002
        for name, column in columns.items():
            kind = column.spelling
            self.run(f"ALTER TABLE {table} ALTER COLUMN {quote(name)} TYPE {kind} USING {quote(name)}::{kind}")

    def create_like(self, table: TableName, model: TableName) -> None:
        self.run(f"CREATE TABLE {table} (LIKE {model} INCLUDING ALL)")

    def upsert(self, table: TableName, columns: Mapping[str, ColumnType], keys: Sequence[str], rows: Rows) -> None:
        """Few rows directly, many through the stage."""
        names, rows = list(columns), _padded(columns, rows)
        if len(rows) <= _FEW and not any(column.family is Family.ARRAY for column in columns.values()):
            # No casts: a value that is too long for its column would be cut by one.
            self.run_many(upsert_rows(table, names, keys, f"VALUES ({', '.join('?' * len(names))})"), rows)
            return
        self._copy(columns, rows)
        self.run(upsert_rows(table, names, keys, f"SELECT {list_names(names)} FROM {STAGE}"))  # noqa: S608

    def delete(self, table: TableName, columns: Mapping[str, ColumnType], rows: Rows) -> None:
        self._copy(columns, _padded(columns, rows))
        same = " AND ".join(f"t.{quote(name)} = s.{quote(name)}" for name in columns)
        self.run(f"DELETE FROM {table} t USING {STAGE} s WHERE {same}")  # noqa: S608

    def _copy(self, columns: Mapping[str, ColumnType], rows: Rows) -> None:
        parts = ", ".join(f"{quote(name)} {column.spelling}" for name, column in columns.items())
        self.run(f"DROP TABLE IF EXISTS {STAGE}")
        self.run(f"CREATE TEMP TABLE {STAGE} ({parts}) ON COMMIT DROP")
        with self.copy(f"COPY {STAGE} FROM STDIN") as copy:
            for row in rows:
                copy.write_row(row)


def _padded(columns: Mapping[str, ColumnType], rows: Rows) -> Rows:
    """Bit strings as wide as their columns, which take no other."""
    widths = {
        place: int(column.spelling.strip("bit()") or "1")
        for place, column in enumerate(columns.values())
        if column.family is Family.BITS
    }
    if not widths:
        return rows
    return [
        tuple(
            f"{value:0{widths[place]}b}" if place in widths and value is not None else value
            for place, value in enumerate(row)
        )
        for row in rows
    ]


def postgres(
    name: str,
    topic: str,
    url: str,
    table: str,
    *,
    types: Mapping[str, str] | None = None,
    new_columns: str = ADD,
) -> SqlSink:
    """A sink to a table in PostgreSQL; `types` are those of columns that it makes."""
    if not url.startswith(("postgresql://", "postgres://")):
        raise InvalidConnectSetting("url", url.split("@")[-1], "write postgresql://USER:PASSWORD@HOST:PORT/DATABASE")
    options = TableOptions(TableName.parse(table), dict(types or {}), new_columns)
    return SqlSink(name, topic, partial(PostgresTables, url), options)
