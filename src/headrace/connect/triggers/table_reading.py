"""Captured tables read at one instant beside a capture by triggers; nothing of the capture is touched."""

import contextlib
from collections.abc import Iterator
from typing import Any

from headrace.connect.change import Position
from headrace.connect.errors import SourceRefused
from headrace.connect.postgres.catalog import Catalog
from headrace.connect.postgres.connection import connect
from headrace.connect.postgres.rows import read_rows
from headrace.connect.ranges import Range
from headrace.connect.source import TableRows, chunked
from headrace.connect.table import TableName
from headrace.connect.triggers.capture import Capture
from headrace.connect.triggers.settings import TriggerSettings
from headrace.connect.triggers.shapes import Shapes


class TriggerTables:
    """The tables of one capture."""

    def __init__(self, settings: TriggerSettings) -> None:
        self._settings = settings
        with connect(settings.url) as connection:
            self.database = connection.info.dbname

    def names(self) -> list[TableName]:
        """The captured tables."""
        with connect(self._settings.url) as connection:
            return Capture(connection, self._settings).names()

    @contextlib.contextmanager
    def rows(self, name: str) -> Iterator[TableRows]:
        """One of them as it is now."""
        settings = self._settings
        with connect(settings.url) as side, connect(settings.url) as reader:
            shapes = Shapes(side, settings, {}, set(), is_new=True)
            found = next((one for one in Capture(side, settings).captured() if one.full_name == name), None)
            if found is None or name not in shapes.known:
                raise SourceRefused(f"table {name} is not captured yet", "headrace cdc start")
            table, query = shapes.current(found, Catalog(side))
            reader.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
            execute: Any = reader.execute
            changes = f"{settings.capture}.changes"
            (last,) = execute(f"select coalesce(max(position), 0) from {changes}").fetchone()  # noqa: S608 - checked

            def is_reached(position: Position) -> bool:
                if "next" in position or "snapshot" in position or "inside" in position:
                    return False
                query: Any = (
                    f"select count(*) from {changes} where position <= %s and position > %s "  # noqa: S608 - checked
                    "and (%s::pg_snapshot is null or not pg_visible_in_snapshot(xid, %s::pg_snapshot))"
                )
                seen = position["visible"]
                return side.execute(query, [last, position["through"], seen, seen]).fetchone() == (0,)

            yield TableRows(table, chunked(read_rows(reader, query.statement(Range(name)))), is_reached)
