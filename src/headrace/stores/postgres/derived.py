"""PostgreSQL: a batch is copied into a temporary table and merged from there, in one transaction."""

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, Final

from headrace import extras
from headrace.stores.errors import InvalidConnectSetting, RowRefused, SinkRefused, SinkUnavailable
from headrace.stores.sql.database import ColumnType, Rows, TableName, conflict_upsert, full_name, listed
from headrace.stores.sql.derived import ADD, SqlSink, TableOptions
from headrace.stores.values import Family

_STAGE: Final = "headrace_stage"
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


class PostgresDatabase:
    """A `Database`."""

    kind = "PostgreSQL"
    lock = " FOR UPDATE"
    is_ddl_transactional = True

    def __init__(self, url: str) -> None:
        self._url = url
        self._psycopg = extras.load("psycopg")
        self._open: Any = None

    def connect(self) -> None:
        """A new session."""
        self.close()
        settings = {"connect_timeout": _CONNECT_S, "application_name": "headrace-sync"}
        self._open = self._psycopg.connect(self._url, autocommit=True, **settings)
        # What is read back shall look as the log has it.
        self._open.execute(
            "SET client_min_messages = warning; SET intervalstyle = iso_8601; SET timezone = 'UTC'; "
            "SET lc_monetary = 'C'"
        )

    def close(self) -> None:
        """End the session."""
        if self._open is not None:
            self._open.close()
            self._open = None

    def rest(self, *, is_idle: bool) -> None:
        """Others are not kept from anything."""

    @contextmanager
    def translated(self) -> Iterator[None]:
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
            raise SinkRefused(f"PostgreSQL says no: {text}") from error

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """All or nothing."""
        with self._open.transaction():
            yield

    def quoted(self, name: str) -> str:
        """In double quotes."""
        return '"' + name.replace('"', '""') + '"'

    def run(self, statement: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """One statement."""
        if values:
            statement = statement.replace("%", "%%").replace("?", "%s")
        cursor = self._open.execute(statement, tuple(values) or None)
        return cursor.fetchall() if cursor.description else []

    def stream(self, statement: str, chunk_rows: int) -> Iterator[Rows]:
        """Through a cursor of the server's."""
        with self._open.transaction(), self._open.cursor(name="headrace_scan") as cursor:
            cursor.execute(statement)
            while chunk := cursor.fetchmany(chunk_rows):
                yield chunk

    def columns(self, table: TableName) -> dict[str, ColumnType]:
        """From the catalog; generated columns are not ours to write."""
        found = self._open.execute(
            "SELECT attname, format_type(atttypid, atttypmod) FROM pg_attribute WHERE attrelid = to_regclass(%s) "
            "AND attnum > 0 AND NOT attisdropped AND attgenerated = '' ORDER BY attnum",
            (full_name(self, table),),
        ).fetchall()
        return {name: ColumnType(spelling, _family(spelling)) for name, spelling in found}

    def readable(self, name: str, column: ColumnType) -> str:
        """What psycopg has types of its own for is read as PostgreSQL writes it."""
        quoted = self.quoted(name)
        if column.family is Family.BITS:
            return f"'b' || {quoted}::text"
        if column.spelling == "money":
            return f"{quoted}::numeric"
        return f"{quoted}::text" if column.family is Family.OTHER else quoted

    def key_columns(self, table: TableName) -> list[str]:
        """In the key's order."""
        found = self._open.execute(
            "SELECT a.attname FROM pg_index i CROSS JOIN LATERAL unnest(i.indkey) WITH ORDINALITY AS k(number, place) "
            "JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k.number "
            "WHERE i.indrelid = to_regclass(%s) AND i.indisprimary ORDER BY k.place",
            (full_name(self, table),),
        ).fetchall()
        return [name for (name,) in found]

    def type_for(self, family: Family, *, is_key: bool) -> str:  # noqa: ARG002 - the same for keys
        """The type of a new column."""
        return _TYPES[family]

    def retype(self, table: TableName, columns: Mapping[str, ColumnType], *, keys: Sequence[str]) -> None:  # noqa: ARG002
        """The table is written anew, in the caller's transaction."""
        for name, column in columns.items():
            kind = column.spelling
            self._open.execute(
                f"ALTER TABLE {full_name(self, table)} ALTER COLUMN {self.quoted(name)} TYPE {kind} "
                f"USING {self.quoted(name)}::{kind}"
            )

    def create_like(self, table: TableName, model: TableName) -> None:
        """With defaults, keys and indexes."""
        self._open.execute(f"CREATE TABLE {full_name(self, table)} (LIKE {full_name(self, model)} INCLUDING ALL)")

    def rename(self, moves: Sequence[tuple[TableName, TableName]]) -> None:
        """In the caller's transaction."""
        for old, new in moves:
            self._open.execute(f"ALTER TABLE {full_name(self, old)} RENAME TO {self.quoted(new.name)}")

    def bind(self, value: Any, family: Family) -> Any:  # noqa: ARG002 - psycopg knows them all
        """As it is; PostgreSQL has no zero bytes in text."""
        return value

    def upsert(self, table: TableName, columns: Mapping[str, ColumnType], keys: Sequence[str], rows: Rows) -> None:
        """Few rows directly, many through the stage."""
        names, rows = list(columns), _padded(columns, rows)
        target = full_name(self, table)
        if len(rows) <= _FEW and not any(column.family is Family.ARRAY for column in columns.values()):
            # No casts: a value that is too long for its column would be cut by one.
            marks = ", ".join(["%s"] * len(names))
            statement = conflict_upsert(_escaped(self.quoted), target, names, keys, f"VALUES ({marks})")
            with self._open.cursor() as cursor:
                cursor.executemany(statement, rows)
            return
        self._copy(columns, rows)
        chosen = f"SELECT {listed(self.quoted, names)} FROM {_STAGE}"  # noqa: S608
        self._open.execute(conflict_upsert(self.quoted, target, names, keys, chosen))

    def delete(self, table: TableName, columns: Mapping[str, ColumnType], rows: Rows) -> None:
        """By a join with the keys."""
        self._copy(columns, _padded(columns, rows))
        same = " AND ".join(f"t.{self.quoted(name)} = s.{self.quoted(name)}" for name in columns)
        self._open.execute(f"DELETE FROM {full_name(self, table)} t USING {_STAGE} s WHERE {same}")  # noqa: S608

    def _copy(self, columns: Mapping[str, ColumnType], rows: Rows) -> None:
        parts = ", ".join(f"{self.quoted(name)} {column.spelling}" for name, column in columns.items())
        self._open.execute(f"DROP TABLE IF EXISTS {_STAGE}")
        self._open.execute(f"CREATE TEMP TABLE {_STAGE} ({parts}) ON COMMIT DROP")
        with self._open.cursor() as cursor, cursor.copy(f"COPY {_STAGE} FROM STDIN") as copy:
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


def _escaped(quoted: Any) -> Any:
    """A name in a statement that has places for values."""
    return lambda name: quoted(name).replace("%", "%%")


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
    return SqlSink(name, topic, partial(PostgresDatabase, url), options)
