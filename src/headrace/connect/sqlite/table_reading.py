"""Captured tables of a SQLite file read at one instant beside a capture; nothing of the capture is touched."""

# ruff: noqa: S608 - the capture's name is checked

import contextlib
from collections.abc import Iterator, Sequence

from headrace.connect.change import Position
from headrace.connect.errors import SourceRefused
from headrace.connect.source import TableRows
from headrace.connect.sqlite.capture import Capture, Known
from headrace.connect.sqlite.connection import connect, read_wire, translated
from headrace.connect.sqlite.settings import SqliteSettings
from headrace.connect.sqlite.shape import read_shape
from headrace.connect.sqlite.snapshot import Snapshot
from headrace.connect.table import Row, TableName


class SqliteTables:
    """The tables of one capture."""

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
        """One of them as it is now."""
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
