"""What is there already: every row in one consistent read, and the transactions that it holds.

MariaDB says itself which place in the log a consistent read belongs to. MySQL does not, so writers wait there for the
moment in which the read begins (`FLUSH TABLES WITH READ LOCK`). While rows of a table are read, a statement that
changes its shape waits, and no other does; if it is one that is still to be read, the snapshot begins again there.
"""

import base64
from collections.abc import Callable, Iterator
from typing import Any

import pymysql.cursors

from headrace.connect.errors import SourceRefused
from headrace.connect.mysql.catalog import CatalogTable, quote
from headrace.connect.mysql.connection import ask, connect, translated
from headrace.connect.mysql.flavor import Server, current_state
from headrace.connect.mysql.gtid import GtidState
from headrace.connect.mysql.settings import Address
from headrace.connect.mysql.shape import Shape, ShapeColumn
from headrace.connect.table import Raw, Row, from_wire

_TRANSACTIONAL = ("innodb", "rocksdb", "tokudb", "ndbcluster")
_INTEGERS = ("tinyint", "smallint", "mediumint", "int", "bigint", "year")
_SAVEPOINT = "SAVEPOINT headrace"
_MEASURED = ("enum", "set", "bit")  # ordered by number, shown otherwise


class Snapshot:
    """The rows of some tables as of one instant, on from a place."""

    def __init__(
        self, address: Address, server: Server, tables: list[CatalogTable], place: dict[str, Any] | None
    ) -> None:
        for table in tables:
            if table.engine.lower() not in _TRANSACTIONAL:
                raise SourceRefused(
                    f"table {table.shape.full_name} has the engine {table.engine}, of which no consistent snapshot can "
                    "be taken",
                    f"ALTER TABLE {table.shape.full_name} ENGINE = InnoDB, or start with snapshot='never'",
                )
        self._address = address
        shapes = sorted((table.shape for table in tables), key=lambda shape: shape.full_name)
        self._after: list[Any] | None = None
        if place is not None:
            shapes = [shape for shape in shapes if shape.full_name >= place["table"]]
            if shapes and shapes[0].full_name == place["table"]:
                self._after = place["after"]
        self._shapes = shapes
        self._rows: Iterator[Row] | None = None
        self._connection = connect(address)
        with translated(address):
            self.state = self._begin(server)
            ask(self._connection, _SAVEPOINT)

    def _begin(self, server: Server) -> GtidState:
        connection = self._connection
        ask(connection, "SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        if server.is_mariadb:
            ask(connection, "START TRANSACTION WITH CONSISTENT SNAPSHOT")
            found = {name.lower(): value for name, value in ask(connection, "SHOW STATUS LIKE 'binlog_snapshot_%'")}
            where = f"'{found['binlog_snapshot_file']}', {found['binlog_snapshot_position']}"
            return server.parse_state(ask(connection, f"SELECT BINLOG_GTID_POS({where})")[0][0] or "")
        guard = connect(self._address)
        try:
            ask(guard, "FLUSH TABLES WITH READ LOCK")
            ask(connection, "START TRANSACTION WITH CONSISTENT SNAPSHOT")
            return current_state(guard, server)
        finally:
            guard.close()  # and with it the lock goes

    @property
    def is_done(self) -> bool:
        """Whether every row was read."""
        return not self._shapes

    @property
    def place(self) -> dict[str, Any]:
        """Behind the last row that was read."""
        return {"table": self._shapes[0].full_name, "after": self._after}

    def read(self, count: int) -> tuple[Shape, list[Row]]:
        """Some rows of the first table that has any left."""
        shape = self._shapes[0]
        with translated(self._address):
            if self._rows is None:
                self._rows = self._select(shape)
            rows = [row for _, row in zip(range(count), self._rows, strict=False)]
        if len(rows) < count:
            with translated(self._address):
                ask(self._connection, f"ROLLBACK TO {_SAVEPOINT}")  # lets go of the table, and keeps the instant
            self._rows = None
            self._after = None
            self._shapes = self._shapes[1:]
        else:
            places = [shape.names.index(name) for name in shape.key]
            self._after = [_to_position(rows[-1][place]) for place in places]
        return shape, rows

    def _select(self, shape: Shape) -> Iterator[Row]:
        readers = [_reader(column) for column in shape.columns]
        # Only what a query counts with keeps all digits of a FLOAT.
        chosen = ", ".join(
            f"{quote(column.name)} + 0e0" if column.base == "float" else quote(column.name) for column in shape.columns
        )
        by_name = {column.name: column for column in shape.columns}
        key = [_ordered(by_name[name]) for name in shape.key]
        statement = f"SELECT {chosen} FROM {quote(shape.database)}.{quote(shape.table)}"  # noqa: S608 - quoted
        if self._after is not None:
            values = [_literal(by_name[name], value) for name, value in zip(shape.key, self._after, strict=True)]
            statement += f" WHERE {_behind(key, values)}"
        cursor = pymysql.cursors.SSCursor(self._connection)
        cursor.execute(f"{statement} ORDER BY {', '.join(key)}")
        while rows := cursor.fetchmany(1000):
            for row in rows:
                yield tuple(None if value is None else read(value) for read, value in zip(readers, row, strict=True))
        cursor.close()

    def close(self) -> None:
        """Let go of the instant."""
        force: Any = self._connection._force_close  # type: ignore[attr-defined]  # noqa: SLF001 - the rest need not come
        force()


def _reader(column: ShapeColumn) -> Callable[[bytes], Raw]:
    """From the text of a query's answer to what the log would give."""
    base = column.base
    if base in _INTEGERS:
        return int
    if base in ("float", "double"):
        return float
    if base == "bit":
        return int.from_bytes
    if base == "decimal" and "zerofill" in column.type:
        return _plain
    if base in ("decimal", "date", "datetime", "timestamp", "time", "uuid", "inet6", "inet4"):
        return bytes.decode
    if column.charset is None and not column.is_json and base != "json":
        return bytes
    return lambda data: data.decode("latin-1")


def _plain(data: bytes) -> str:
    """A number without the zeros that fill it up."""
    text = data.decode().lstrip("0")
    return f"0{text}" if not text or text[0] == "." else text


def _ordered(column: ShapeColumn) -> str:
    return f"{quote(column.name)} + 0" if column.base in _MEASURED else quote(column.name)


def _behind(key: list[str], values: list[str]) -> str:
    """That a row's key is behind these values; spelt out, because row values use no index here."""
    parts = []
    for index in range(len(key)):
        same = [f"{key[before]} = {values[before]}" for before in range(index)]
        parts.append("(" + " AND ".join([*same, f"{key[index]} > {values[index]}"]) + ")")
    return "(" + " OR ".join(parts) + ")"


def _to_position(value: Raw) -> Any:
    """A value of a key, so that it comes back from JSON as it was."""
    return ["bytes", base64.b64encode(value).decode()] if isinstance(value, bytes) else value


def _literal(column: ShapeColumn, stored: Any) -> str:
    """A value of a key in a statement."""
    if isinstance(stored, list):
        return f"x'{base64.b64decode(stored[1]).hex()}'" if stored[1] else "''"
    if isinstance(stored, int | float):
        return repr(stored)
    if column.base == "set":
        chosen = from_wire(stored).split(",")
        return str(sum(1 << place for place, label in enumerate(column.labels) if label in chosen))
    if column.base == "enum":
        return str(["", *column.labels].index(from_wire(stored)))
    data = stored.encode("latin-1")
    return f"_utf8mb4 x'{data.hex()}'" if data else "''"
