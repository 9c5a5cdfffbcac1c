"""What is there already: every row, in one read transaction, and with it the position at which that instant lies.

A writer is not stopped by it (WAL). A snapshot that was interrupted goes on in a new read transaction, at a later
instant; the changes between the two instants are handed out first. So a row that was read before is brought up to the
new instant by its changes, one that was not is read there, and nothing is older than what came before it.
"""


# ruff: noqa: S608 - the names in these statements are quoted, and the capture's own is checked

# ruff: noqa: S608 - the capture's name is checked
import contextlib
import sqlite3
from collections.abc import Iterator, Sequence
from typing import Any

from headrace.connect.change import Position
from headrace.connect.errors import SourceRefused
from headrace.connect.source import TableRows
from headrace.connect.sqlite.capture import Capture, Known
from headrace.connect.sqlite.connection import SqliteSettings, connect, read_wire, translated
from headrace.connect.sqlite.shape import read_shape
from headrace.connect.sqlite.statements import quote
from headrace.connect.sqlite.values import from_position, to_position
from headrace.connect.table import Row, TableName


class Snapshot:
    """The rows of some tables, one after the other, on from a place; the connection is in a read transaction."""

    def __init__(self, connection: sqlite3.Connection, tables: Sequence[Known], place: dict[str, Any] | None) -> None:
        self._connection = connection
        ordered = sorted(tables, key=lambda known: known.shape.table)
        self._after: list[Any] | None = None
        if place is not None:
            ordered = [known for known in ordered if known.shape.table >= place["table"]]
            if ordered and ordered[0].shape.table == place["table"]:
                self._after = place["after"]
        self._tables = ordered
        self._rows: Iterator[Row] | None = None

    @property
    def is_done(self) -> bool:
        return not self._tables

    def read(self, count: int) -> tuple[Known, list[Row]]:
        """Some rows of the first table that has any left."""
        known = self._tables[0]
        if self._rows is None:
            self._rows = self._begin(known)
        rows = [row for _, row in zip(range(count), self._rows, strict=False)]
        if len(rows) < count:
            self._rows = None
            self._after = None
            self._tables = self._tables[1:]
        elif known.shape.key:
            self._after = [to_position(rows[-1][place]) for place in known.shape.key_places]
        return known, rows

    @property
    def begins_bag(self) -> bool:
        """Whether a table without a key comes next, from its first row: what was told of it counts no more."""
        return self._rows is None and not self.is_done and not self._tables[0].shape.key

    @property
    def place(self) -> Position:
        """Behind the last row that was read; a table without a key begins anew."""
        return {"table": self._tables[0].shape.table, "after": self._after}

    def _begin(self, known: Known) -> Iterator[Row]:
        shape = known.shape
        columns = ", ".join(quote(name) for name in shape.names)
        key = ", ".join(quote(name) for name in shape.key)
        statement = f"SELECT {columns} FROM {quote(shape.table)}"
        values: list[Any] = []
        if self._after is not None:
            values = [from_position(value) for value in self._after]
            statement += f" WHERE ({key}) > ({', '.join('?' * len(values))})"
        return self._connection.execute(f"{statement} ORDER BY {key}" if key else statement, values)


class SqliteTables:
    def __init__(self, settings: SqliteSettings) -> None:
        self._settings = settings
        self.database = settings.path.stem

    def names(self) -> list[TableName]:
        """The tables that a capture has, or would have."""
        settings = self._settings
        connection = connect(settings.path, settings.busy_timeout_s)
        try:
            with translated(settings.path):
                tables = Capture(connection, settings).captured()
                shapes = [read_shape(connection, name, settings.filters.key_of(f"main.{name}")) for name in tables]
        finally:
            connection.close()
        return [shape.as_table(0).as_name for shape in shapes]

    def _known(self) -> list[Known]:
        settings = self._settings
        connection = connect(settings.path, settings.busy_timeout_s)
        try:
            with translated(settings.path):
                return [known for known in Capture(connection, settings).known() if known.active]
        finally:
            connection.close()

    @contextlib.contextmanager
    def rows(self, name: str) -> Iterator[TableRows]:
        settings = self._settings
        found = next((one for one in self._known() if one.shape.as_table(one.id).full_name == name), None)
        if found is None:
            raise SourceRefused(f"table {name} is not captured yet", "headrace cdc start")
        reader = read_wire(connect(settings.path, settings.busy_timeout_s))
        try:
            with translated(settings.path):
                reader.execute("BEGIN")
                (last,) = reader.execute(
                    f"SELECT coalesce(max(position), 0) FROM {settings.capture}_changes WHERE op <> 'x'"
                ).fetchone()
            snapshot = Snapshot(reader, [found], None)

            def chunks() -> Iterator[Sequence[Row]]:
                while not snapshot.is_done:
                    yield snapshot.read(5000)[1]

            def is_reached(position: Position) -> bool:
                return position["change"] >= last and "snapshot" not in position

            yield TableRows(found.shape.as_table(found.id), chunks(), is_reached)
        finally:
            reader.close()
