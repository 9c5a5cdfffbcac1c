"""The tables of a source: which they are, the shapes that they have, and how their rows are asked for."""

from typing import Any

import psycopg

from headrace.connect.change import Event, Origin
from headrace.connect.errors import SourceRefused
from headrace.connect.incremental import ReadChunk
from headrace.connect.postgres.catalog import Catalog, CatalogTable
from headrace.connect.postgres.chunks import read_between
from headrace.connect.postgres.publication import ensure_publication
from headrace.connect.postgres.relation import Relation
from headrace.connect.postgres.rows import RowQuery
from headrace.connect.postgres.settings import PostgresSettings
from headrace.connect.postgres.shapes import Shapes
from headrace.connect.ranges import Range
from headrace.connect.table import Table
from headrace.telemetry.logs import get_logger

log = get_logger(__name__)


class CapturedTables:
    """What a source knows of its tables, over the connection that it asks questions with."""

    def __init__(
        self, connection: psycopg.Connection[tuple[Any, ...]], settings: PostgresSettings, known: dict[str, str]
    ) -> None:
        """`known` are the shapes' fingerprints of the stored position."""
        self._connection = connection
        self._settings = settings
        self._catalog = Catalog(connection)
        self._listed = {table.full_name: table for table in self._every()}
        self._refused: set[str] = set()
        self._tables: dict[str, Table] = {}
        self.queries: dict[str, RowQuery] = {}
        self.learn(known)

    def _every(self) -> list[CatalogTable]:
        found = self._catalog.captured(self._settings.filters)
        name = self._settings.signal_table
        if name and all(table.full_name != name for table in found):
            found += [table for table in self._catalog.tables() if table.full_name == name]
        return found

    def learn(self, known: dict[str, str]) -> None:
        """Look at every table as it is now."""
        settings = self._settings
        self.shapes = Shapes(settings.schema_changes, settings.types, self._catalog.type, self._key_of, known)
        for table in self._listed.values():
            self._prepare(table)

    def _key_of(self, relation: Relation) -> tuple[str, ...]:
        """The key of a table whose whole row is its identity: its own, or else the chosen one."""
        return self._catalog.key_of(relation) or self._settings.filters.key_of(relation.full_name)

    def _prepare(self, table: CatalogTable) -> None:
        relation = self._catalog.relation(table)
        made = self._tables[table.full_name] = self.shapes.learn(relation)
        self.queries[table.full_name] = RowQuery(table, made, self._catalog.key_types(table))

    def publish(self) -> None:
        """Have the log hold the tables' changes."""
        settings = self._settings
        ensure_publication(
            self._connection,
            settings.publication_name,
            list(self._listed.values()),
            managed=settings.managed_publication,
        )

    @property
    def listed(self) -> list[CatalogTable]:
        """The captured tables as the catalog has them; the signal table is none of them."""
        return [table for name, table in self._listed.items() if name != self._settings.signal_table]

    @property
    def every(self) -> list[Table]:
        """The captured tables in the shapes that they have in the log."""
        now = list(self._tables.items())  # in one step: another thread may ask, too
        return [table for name, table in now if name != self._settings.signal_table]

    def get(self, name: str) -> Table | None:
        """A captured table in the shape that it has in the log."""
        return None if name == self._settings.signal_table else self._tables.get(name)

    def __getitem__(self, name: str) -> Table:
        return self._tables[name]

    def resolve(
        self, relation: Relation, origin: Origin, place: str, is_known: bool
    ) -> tuple[Table | None, list[Event]]:
        """What an announcement in the log means: the table, None if nobody wants it, and what is told of it."""
        name = relation.full_name
        if not self._settings.filters.captures(name) and name != self._settings.signal_table:
            return None, []
        if is_known:
            return self.shapes.recall(relation), []
        table, events = self.shapes.take(relation, origin, place)
        if table is not None:
            self._tables[name] = table
        return table, list(events)

    def types_of(self, table: Table) -> dict[str, str]:
        """The types of a table's columns by name, as SQL writes them."""
        return self._catalog.types_of(table.id)

    def read_between(self, wanted: Range, name: str) -> ReadChunk | None:
        """The next rows of a range, between watermarks of this name."""
        return read_between(
            self._connection, self._catalog, self.shapes, wanted, name, self._settings.chunk_rows
        )  # fmt: skip

    def take_new(self) -> list[str]:
        """Publish the tables that were made since the start; answers their names."""
        settings = self._settings
        new = [
            table
            for table in self._catalog.capturable(settings.filters)
            if table.full_name not in self._listed and table.full_name not in self._refused
        ]
        if not new:
            return []
        names = [table.full_name for table in new]
        before = dict(self._listed)
        self._listed |= {table.full_name: table for table in new}
        try:
            self.publish()
        except SourceRefused as refusal:  # no reason to stop what runs
            self._listed = before
            self._refused.update(names)
            log.warning("new tables not captured", reason=str(refusal), slot=settings.slot)
            return []
        for table in new:
            self._prepare(table)
        log.info("new tables captured", tables=",".join(names), slot=settings.slot)
        return names
