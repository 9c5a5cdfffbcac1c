"""What is there already: every row in one consistent read, and the transactions that it holds.

MariaDB says itself which place in the log a consistent read belongs to. MySQL does not, so writers wait there for the
moment in which the read begins (`FLUSH TABLES WITH READ LOCK`). While rows of a table are read, a statement that
changes its shape waits, and no other does; if it is one that is still to be read, the snapshot begins again there.
"""

import base64
import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pymysql.cursors

from headrace.connect.change import Position
from headrace.connect.errors import SourceRefused
from headrace.connect.incremental import Key, Remaining
from headrace.connect.mysql.catalog import CatalogTable, Selection, quote, read_tables
from headrace.connect.mysql.connection import Server, ask, connect, current_state, examine, translated
from headrace.connect.mysql.gtid import GtidState
from headrace.connect.mysql.settings import Address, MysqlSettings, parse_url
from headrace.connect.mysql.shape import Shape, ShapeColumn
from headrace.connect.source import TableRows
from headrace.connect.table import Raw, Row, TableName, from_wire
from headrace.connect.table_snapshot import TableSnapshot

_INTEGERS = ("tinyint", "smallint", "mediumint", "int", "bigint", "year")
_MEASURED = ("enum", "set", "bit")  # ordered by number, shown otherwise


class RowQuery:
    """How to ask for the rows of one table, and what the answers mean."""

    def __init__(self, shape: Shape) -> None:
        self._shape = shape
        self._readers = [_reader(column) for column in shape.columns]
        self._key = [shape.columns[shape.names.index(name)] for name in shape.key]
        self._key_places = [shape.names.index(name) for name in shape.key]

    def statement(self, after: Sequence[Any] | None, limit: int | None = None) -> str:
        """The rows whose keys are behind one, or the first of them."""
        shape = self._shape
        # Only what a query counts with keeps all digits of a FLOAT.
        chosen = ", ".join(
            f"{quote(column.name)} + 0e0" if column.base == "float" else quote(column.name) for column in shape.columns
        )
        key = [_ordered(column) for column in self._key]
        found = f"SELECT {chosen} FROM {quote(shape.database)}.{quote(shape.table)}"  # noqa: S608 - quoted
        if after is not None:
            values = [_literal(column, value) for column, value in zip(self._key, after, strict=True)]
            found += f" WHERE {_behind(key, values)}"
        if not key:
            return found
        found += f" ORDER BY {', '.join(key)}"
        return found if limit is None else f"{found} LIMIT {limit}"

    def row(self, answer: Sequence[bytes | None]) -> Row:
        """A row of the answer as the log would give it."""
        return tuple(None if value is None else read(value) for read, value in zip(self._readers, answer, strict=True))

    def key_of(self, row: Row) -> Key:
        """A row's key in the order that it is read in."""
        return tuple(_to_position(row[place]) for place in self._key_places)


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


_TRANSACTIONAL = ("innodb", "rocksdb", "tokudb", "ndbcluster")
_SAVEPOINT = "SAVEPOINT headrace"


class Snapshot(TableSnapshot[Shape]):
    """The rows of some tables as of one instant."""

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
        super().__init__((table.shape for table in tables), place)
        self._address = address
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

    def name_of(self, table: Shape) -> str:
        return table.full_name

    def key_of(self, table: Shape, row: Row) -> Key | None:
        return RowQuery(table).key_of(row) or None

    def read(self, count: int, most_bytes: int | None = None) -> tuple[Shape, list[Row]]:
        with translated(self._address):
            return super().read(count, most_bytes)

    def leave(self) -> None:
        ask(self._connection, f"ROLLBACK TO {_SAVEPOINT}")  # lets go of the table, and keeps the instant

    def select(self, table: Shape, after: Sequence[Any] | None) -> Iterator[Row]:
        query = RowQuery(table)
        cursor = pymysql.cursors.SSCursor(self._connection)
        cursor.execute(query.statement(after))
        for row in iter(cursor.fetchone, None):  # one by one: rows may be large, and many of them too much
            yield query.row(row)
        cursor.close()

    def close(self) -> None:
        unread: Any = self._connection._result  # type: ignore[attr-defined]  # noqa: SLF001
        if unread is not None:
            unread.unbuffered_active = False  # the driver would read on when it is thrown away
        force: Any = self._connection._force_close  # type: ignore[attr-defined]  # noqa: SLF001 - the rest need not come
        force()


class MysqlTables:
    def __init__(self, settings: MysqlSettings) -> None:
        self._settings = settings
        self._address = parse_url(settings.url)
        self.database = self._address.database or self._address.host
        with contextlib.closing(connect(self._address)) as side, translated(self._address):
            self._server = examine(side)

    def _captured(self) -> list[CatalogTable]:
        settings = self._settings
        with contextlib.closing(connect(self._address)) as side, translated(self._address):
            every = read_tables(side, is_mariadb=self._server.is_mariadb)
        chosen = Selection(settings.filters, self._address.database, hidden=settings.signal_name)
        return [table for name, table in every.items() if chosen(name)]

    def names(self) -> list[TableName]:
        shapes = [table.shape for table in self._captured()]
        return [
            TableName(shape.database, shape.table, bool(shape.key or self._settings.filters.key_of(shape.full_name)))
            for shape in shapes
        ]

    @contextlib.contextmanager
    def rows(self, name: str) -> Iterator[TableRows]:
        found = next((table for table in self._captured() if table.shape.full_name == name), None)
        if found is None:
            raise SourceRefused(f"table {name} is not captured", "correct the name, as database.table")
        with contextlib.closing(Snapshot(self._address, self._server, [found], None)) as snapshot:

            def is_reached(position: Position) -> bool:
                left = Remaining.from_json(position.get("incremental", []))
                is_reading = "snapshot" in position or name in left.tables
                return not is_reading and self._server.parse_state(position["gtid"]).covers(snapshot.state)

            yield TableRows(found.shape.as_table(self._settings.types), snapshot.chunks(), is_reached)
