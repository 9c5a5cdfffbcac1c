"""What is there already: every row, in one read transaction, and with it the position at which that instant lies.

A writer is not stopped by it (WAL). A snapshot that was interrupted goes on in a new read transaction, at a later
instant; the changes between the two instants are handed out first. So a row that was read before is brought up to the
new instant by its changes, one that was not is read there, and nothing is older than what came before it.
"""

# ruff: noqa: S608 - the names in these statements are quoted, and the capture's own is checked

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
from headrace.connect.table_snapshot import TableSnapshot


class Snapshot(TableSnapshot[Known]):
    """The connection is in a read transaction."""

    def __init__(self, connection: sqlite3.Connection, tables: Sequence[Known], place: dict[str, Any] | None) -> None:
        super().__init__(tables, place)
        self._connection = connection

    def name_of(self, table: Known) -> str:
        return table.shape.table

    def key_of(self, table: Known, row: Row) -> list[Any] | None:
        return [to_position(row[place]) for place in table.shape.key_places] or None

    def select(self, table: Known, after: Sequence[Any] | None) -> Iterator[Row]:
        shape = table.shape
        columns = ", ".join(quote(name) for name in shape.names)
        key = ", ".join(quote(name) for name in shape.key)
        statement = f"SELECT {columns} FROM {quote(shape.table)}"
        values = [from_position(value) for value in after or ()]
        if after is not None:
            places = []
            for at, value in enumerate(values):
                is_broken = isinstance(value, str) and not _is_utf8(value)
                # A text with bytes that are no UTF-8 is given as its bytes; the plus takes the affinity of a CAST away.
                places.append("+CAST(? AS TEXT)" if is_broken else "?")
                values[at] = value.encode(errors="surrogateescape") if is_broken else value
            statement += f" WHERE ({key}) > ({', '.join(places)})"
        return self._connection.execute(f"{statement} ORDER BY {key}" if key else statement, values)


def _is_utf8(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


class SqliteTables:
    def __init__(self, settings: SqliteSettings) -> None:
        self._settings = settings
        self.database = settings.path.stem

    def names(self) -> list[TableName]:
        """The tables that a capture has, or would have."""
        settings = self._settings
        with self._connected() as connection:
            tables = Capture(connection, settings).captured()
            shapes = [read_shape(connection, name, settings.filters.key_of(f"main.{name}")) for name in tables]
        return [shape.as_table(0).as_name for shape in shapes]

    @contextlib.contextmanager
    def _connected(self) -> Iterator[sqlite3.Connection]:
        settings = self._settings
        opened = contextlib.closing(connect(settings.path, settings.busy_timeout_s))
        with opened as connection, translated(settings.path):
            yield connection

    @contextlib.contextmanager
    def rows(self, name: str) -> Iterator[TableRows]:
        settings = self._settings
        with self._connected() as connection:
            active = [known for known in Capture(connection, settings).known() if known.active]
        found = next((one for one in active if one.shape.as_table(one.id).full_name == name), None)
        if found is None:
            raise SourceRefused(f"table {name} is not captured yet", "headrace cdc start")
        with contextlib.closing(read_wire(connect(settings.path, settings.busy_timeout_s))) as reader:
            with translated(settings.path):
                reader.execute("BEGIN")
                (last,) = reader.execute(
                    f"SELECT coalesce(max(position), 0) FROM {settings.capture}_changes WHERE op <> 'x'"
                ).fetchone()
            snapshot = Snapshot(reader, [found], None)

            def is_reached(position: Position) -> bool:
                return position["change"] >= last and "snapshot" not in position

            yield TableRows(found.shape.as_table(found.id), snapshot.chunks(), is_reached)
