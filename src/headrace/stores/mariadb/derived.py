"""Derived tables of MariaDB and MySQL: rows go in as many-valued inserts.

Definitions of tables end a transaction there, so the table is made, and columns are added, before the transaction
that needs them: a crash in between leaves an empty column, which the next try finds. A switch is one `RENAME TABLE`,
which is atomic. Tables that the sink makes compare texts byte by byte, as the log does: two keys that differ only in
case are two.
"""

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from datetime import UTC, datetime
from functools import partial
from typing import Any, Final
from urllib.parse import unquote, urlsplit

from headrace import extras
from headrace.stores.errors import InvalidConnectSetting, RowRefused, SinkRefused, SinkUnavailable
from headrace.stores.sql.database import (
    ColumnType,
    Rows,
    TableDatabase,
    commit_or_roll_back,
    fetch_chunks,
    with_format_marks,
)
from headrace.stores.sql.derived import SqlSink
from headrace.stores.sql.growth import ADD, TableOptions
from headrace.stores.sql.statements import TableName, list_names, quote
from headrace.stores.values import Family, Misfit

_CONNECT_S: Final = 10
_KEYS_AT_ONCE: Final = 500
_ROWS_AT_ONCE: Final = 500
# Byte by byte, and a space at the end counts: MariaDB's and MySQL's names for it.
_COLLATIONS: Final = {True: "utf8mb4_nopad_bin", False: "utf8mb4_0900_bin"}
_TYPES: Final = {
    Family.BOOLEAN: "BOOLEAN", Family.INTEGER: "BIGINT", Family.FLOAT: "DOUBLE", Family.DECIMAL: "DECIMAL(65,10)",
    Family.TEXT: "LONGTEXT", Family.JSON: "LONGTEXT",
}  # fmt: skip
_FAMILIES: Final = {
    "bit(1)": Family.BOOLEAN, "tinyint": Family.INTEGER, "smallint": Family.INTEGER,
    "mediumint": Family.INTEGER, "int": Family.INTEGER, "bigint": Family.INTEGER, "float": Family.FLOAT,
    "double": Family.FLOAT, "decimal": Family.DECIMAL, "json": Family.JSON, "date": Family.DATE, "time": Family.TIME,
    "datetime": Family.TIMESTAMP, "timestamp": Family.INSTANT, "binary": Family.BINARY, "varbinary": Family.BINARY,
    "blob": Family.BINARY, "tinyblob": Family.BINARY, "mediumblob": Family.BINARY, "longblob": Family.BINARY,
}  # fmt: skip
_WORD: Final = re.compile(r"[a-z]+")
# Values out of range, too long, malformed, or against a constraint.
_ROW_CODES: Final = frozenset(
    {1048, 1062, 1264, 1265, 1292, 1364, 1366, 1406, 1451, 1452, 1690, 3140, 3819, 4025, 1216, 1217, 1411, 1118}
)
# Lost or refused connections, shutting down, lock waits and deadlocks, a full disk.
_PASSING_CODES: Final = frozenset({1040, 1053, 1205, 1213, 1021, 1041, 1203, 1226, 1290, 1927, 4031, 1317, 1129})


def _family(spelling: str) -> Family:
    word = _WORD.match(spelling)
    return _FAMILIES.get(spelling) or _FAMILIES.get(word[0] if word else "") or Family.TEXT


class MariadbTables(TableDatabase):
    kind = "MariaDB"
    moment = "DATETIME(6)"
    types = _TYPES
    lock = " FOR UPDATE"
    is_ddl_transactional = False

    def __init__(self, url: str) -> None:
        self._parts = urlsplit(url)
        self._pymysql = extras.load("pymysql")
        self._open: Any = None

    @property
    def _schema(self) -> str:
        return unquote(self._parts.path.lstrip("/"))

    def connect(self) -> None:
        """A new session, strict about values and in UTC."""
        self.close()
        parts = self._parts
        self._open = self._pymysql.connect(
            host=parts.hostname or "127.0.0.1",
            port=parts.port or 3306,
            user=unquote(parts.username or ""),
            password=unquote(parts.password or ""),
            database=self._schema,
            charset="utf8mb4",
            autocommit=True,
            connect_timeout=_CONNECT_S,
            init_command="SET time_zone = '+00:00', sql_mode = 'ANSI_QUOTES,STRICT_ALL_TABLES'",
        )

    def close(self) -> None:
        if self._open is not None:
            with suppress(self._pymysql.Error, OSError):
                self._open.close()
            self._open = None

    @contextmanager
    def translate_errors(self) -> Iterator[None]:
        """The server's error number decides."""
        try:
            yield
        except self._pymysql.MySQLError as error:
            code = error.args[0] if error.args and isinstance(error.args[0], int) else 0
            text = str(error.args[1] if len(error.args) > 1 else error)
            if code in _ROW_CODES:
                raise RowRefused(f"MariaDB refuses the row: {text}") from error
            # Numbers from 2000 on are the client's own: it is the connection that failed.
            if code in _PASSING_CODES or 2000 <= code < 3000 or code == 0:
                raise SinkUnavailable(f"MariaDB cannot be reached: {text}") from error
            raise SinkRefused(f"MariaDB refuses: {text}") from error
        except OSError as error:
            raise SinkUnavailable(f"MariaDB cannot be reached: {error}") from error

    def transaction(self) -> AbstractContextManager[None]:
        """All or nothing, but for definitions."""
        return commit_or_roll_back(self._open, self._pymysql.Error, OSError)

    def run(self, statement: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        with self._open.cursor() as cursor:
            cursor.execute(with_format_marks(statement) if values else statement, tuple(values) or None)
            return list(cursor.fetchall())

    def stream(self, statement: str, chunk_rows: int) -> Iterator[Rows]:
        """Unbuffered; a consistent read sees one moment."""
        with self._open.cursor(self._pymysql.cursors.SSCursor) as cursor:
            cursor.execute(statement)
            yield from fetch_chunks(cursor, chunk_rows)

    def columns(self, table: TableName) -> dict[str, ColumnType]:
        """From the information schema. A column of JSON is text with a check, as MariaDB has it."""
        found = self.run(
            "SELECT c.column_name, c.column_type, EXISTS (SELECT 1 FROM information_schema.check_constraints k "
            "WHERE k.constraint_schema = c.table_schema AND k.table_name = c.table_name AND k.constraint_name = "
            "c.column_name AND k.check_clause LIKE 'json_valid(%') FROM information_schema.columns c "
            "WHERE c.table_schema = ? AND c.table_name = ? AND c.extra NOT LIKE '%GENERATED%' "
            "ORDER BY c.ordinal_position",
            (table.schema or self._schema, table.name),
        )
        return {name: ColumnType(kind, Family.JSON if is_json else _family(kind)) for name, kind, is_json in found}

    def key_columns(self, table: TableName) -> list[str]:
        found = self.run(
            "SELECT column_name FROM information_schema.key_column_usage WHERE table_schema = ? AND table_name = ? "
            "AND constraint_name = 'PRIMARY' ORDER BY ordinal_position",
            (table.schema or self._schema, table.name),
        )
        return [name for (name,) in found]

    def type_for(self, family: Family, *, is_key: bool) -> str:
        """The type of a new column; a key must have a length."""
        spelling = "VARCHAR(255)" if is_key and family is Family.TEXT else _TYPES[family]
        if family not in (Family.TEXT, Family.JSON):
            return spelling
        collation = _COLLATIONS["MariaDB" in self._open.get_server_info()]
        return f"{spelling} CHARACTER SET utf8mb4 COLLATE {collation}"

    def retype(self, table: TableName, columns: Mapping[str, ColumnType], *, keys: Sequence[str]) -> None:
        """In one statement, before the transaction that needs it."""
        parts = [
            f"MODIFY {quote(name)} {column.spelling}{' NOT NULL' if name in keys else ''}"
            for name, column in columns.items()
        ]
        self.run(f"ALTER TABLE {table} {', '.join(parts)}")

    def create_like(self, table: TableName, model: TableName) -> None:
        self.run(f"CREATE TABLE {table} LIKE {model}")

    def rename(self, moves: Sequence[tuple[TableName, TableName]]) -> None:
        self.run("RENAME TABLE " + ", ".join(f"{a} TO {b}" for a, b in moves))

    def bind(self, value: Any, family: Family) -> Any:
        """Times in UTC, which is the session's zone; arrays have no type here and become JSON."""
        if family is Family.FLOAT and not math.isfinite(value):
            raise Misfit(f"{value} is not among MariaDB's numbers")
        if family is Family.INSTANT and isinstance(value, datetime):
            return value.astimezone(UTC).replace(tzinfo=None)
        return value

    def upsert(self, table: TableName, columns: Mapping[str, ColumnType], keys: Sequence[str], rows: Rows) -> None:
        names = list(columns)
        rest = [name for name in names if name not in keys] or [keys[0]]
        sets = ", ".join(f"{quote(name)} = VALUES({quote(name)})" for name in rest)
        head = f"INSERT INTO {table} ({list_names(names)}) VALUES ".replace("%", "%%")  # noqa: S608
        tail = f" ON DUPLICATE KEY UPDATE {sets}".replace("%", "%%")
        row_marks = f"({', '.join(['%s'] * len(names))})"
        self._in_chunks(head, row_marks, tail, rows, _ROWS_AT_ONCE)

    def delete(self, table: TableName, columns: Mapping[str, ColumnType], rows: Rows) -> None:
        head = f"DELETE FROM {table} WHERE ({list_names(columns)}) IN ("  # noqa: S608
        self._in_chunks(head.replace("%", "%%"), f"({', '.join(['%s'] * len(columns))})", ")", rows, _KEYS_AT_ONCE)

    def _in_chunks(self, head: str, row_marks: str, tail: str, rows: Rows, size: int) -> None:
        with self._open.cursor() as cursor:
            for at in range(0, len(rows), size):
                chunk = rows[at : at + size]
                flat = [value for row in chunk for value in row]
                cursor.execute(head + ", ".join([row_marks] * len(chunk)) + tail, flat)


def mariadb(
    name: str,
    topic: str,
    url: str,
    table: str,
    *,
    types: Mapping[str, str] | None = None,
    new_columns: str = ADD,
) -> SqlSink:
    """A sink to a table in MariaDB or MySQL; `types` are those of columns that it makes."""
    parts = urlsplit(url)
    if parts.scheme not in ("mariadb", "mysql") or not parts.path.strip("/"):
        raise InvalidConnectSetting("url", url.split("@")[-1], "write mariadb://USER:PASSWORD@HOST:PORT/DATABASE")
    options = TableOptions(TableName.parse(table), dict(types or {}), new_columns)
    return SqlSink(name, topic, partial(MariadbTables, url), options)
