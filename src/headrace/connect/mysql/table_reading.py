"""Captured tables of MariaDB and MySQL read at one instant beside a capture; nothing of the capture is touched."""

import contextlib
from collections.abc import Iterator, Sequence

from headrace.connect.change import Position
from headrace.connect.errors import SourceRefused
from headrace.connect.mysql.catalog import CatalogTable, Selection, read_tables
from headrace.connect.mysql.connection import connect, translated
from headrace.connect.mysql.flavor import examine
from headrace.connect.mysql.settings import MysqlSettings, parse_url
from headrace.connect.mysql.snapshot import Snapshot
from headrace.connect.ranges import Remaining
from headrace.connect.source import TableRows
from headrace.connect.table import Row, TableName


class MysqlTables:
    """The tables of one capture."""

    def __init__(self, settings: MysqlSettings) -> None:
        self._settings = settings
        self._address = parse_url(settings.url)
        self.database = self._address.database or self._address.host
        side = connect(self._address)
        try:
            with translated(self._address):
                self._server = examine(side)
        finally:
            side.close()

    def _captured(self) -> list[CatalogTable]:
        settings = self._settings
        side = connect(self._address)
        try:
            with translated(self._address):
                every = read_tables(side, is_mariadb=self._server.is_mariadb)
        finally:
            side.close()
        chosen = Selection(settings.filters, self._address.database, hidden=settings.signal_name)
        return [table for name, table in every.items() if chosen(name)]

    def names(self) -> list[TableName]:
        """The captured tables."""
        shapes = [table.shape for table in self._captured()]
        return [
            TableName(shape.database, shape.table, bool(shape.key or self._settings.filters.key_of(shape.full_name)))
            for shape in shapes
        ]

    @contextlib.contextmanager
    def rows(self, name: str) -> Iterator[TableRows]:
        """One of them as it is now."""
        found = next((table for table in self._captured() if table.shape.full_name == name), None)
        if found is None:
            raise SourceRefused(f"table {name} is not captured", "correct the name, as database.table")
        snapshot = Snapshot(self._address, self._server, [found], None)
        try:

            def chunks() -> Iterator[Sequence[Row]]:
                while not snapshot.is_done:
                    yield snapshot.read(5000)[1]

            def is_reached(position: Position) -> bool:
                left = Remaining.from_json(position.get("incremental", []))
                is_reading = "snapshot" in position or name in left.tables
                return not is_reading and self._server.parse_state(position["gtid"]).covers(snapshot.state)

            yield TableRows(found.shape.as_table(self._settings.types), chunks(), is_reached)
        finally:
            snapshot.close()
