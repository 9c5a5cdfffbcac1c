"""Captured tables read at one instant beside a capture by the log; nothing of the capture is touched."""

import contextlib
import json
from collections.abc import Iterator

from headrace.connect.change import Position
from headrace.connect.postgres.captured import FOUND
from headrace.connect.postgres.catalog import Catalog, unknown_table
from headrace.connect.postgres.chunks import is_standby
from headrace.connect.postgres.connection import connect
from headrace.connect.postgres.positions import LogPosition, parse_lsn
from headrace.connect.postgres.rows import RowQuery, read_rows
from headrace.connect.postgres.settings import PostgresSettings
from headrace.connect.postgres.shapes import Shapes
from headrace.connect.ranges import Range, Remaining
from headrace.connect.source import TableRows, chunked
from headrace.connect.table import TableName


class PostgresTables:
    """The tables of one capture."""

    def __init__(self, settings: PostgresSettings) -> None:
        self._settings = settings
        with connect(settings.url) as connection:
            self.database = connection.info.dbname

    def names(self) -> list[TableName]:
        """The captured tables."""
        settings = self._settings
        with connect(settings.url) as connection:
            every = Catalog(connection).capturable(settings.filters)
        return [
            TableName(table.schema, table.name, bool(table.key or settings.filters.key_of(table.full_name)))
            for table in every
            if table.full_name != settings.signal_table
        ]

    @contextlib.contextmanager
    def rows(self, name: str) -> Iterator[TableRows]:
        """One of them as it is now."""
        settings = self._settings
        with connect(settings.url) as connection:
            catalog = Catalog(connection)
            every = catalog.tables()
            found = next((table for table in every if table.full_name == name), None)
            if found is None:
                raise unknown_table(name, every)

            def key_of(_: object) -> tuple[str, ...]:
                return found.key or settings.filters.key_of(name)

            table = Shapes("evolve", settings.types, catalog.type, key_of, {}).view(catalog.relation(found))
            query = RowQuery(found, table, catalog.key_types(found))
            standby = is_standby(connection)
            connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
            # The instant comes before the place: what is visible stands before it in the log.
            place = "pg_last_wal_replay_lsn()" if standby else "pg_current_wal_insert_lsn()"
            row = connection.execute(f"select {place}::text, pg_current_snapshot()").fetchone()
            assert row is not None
            lsn = parse_lsn(row[0])
            if not standby:
                # Something behind that place, so that a quiet log comes to it too.
                with connect(settings.url) as other:
                    nothing = json.dumps({"reader": "", "tables": {}})
                    other.execute("select pg_logical_emit_message(true, %s, %s::text)", [FOUND, nothing])

            def is_reached(position: Position) -> bool:
                left = Remaining.from_json(position.get("snapshot", []))
                return LogPosition.from_json(position).lsn >= lsn and name not in left.tables

            yield TableRows(table, chunked(read_rows(connection, query.statement(Range(name)))), is_reached)
