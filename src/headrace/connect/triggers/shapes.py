"""The text of captured rows, the shapes in which they were written, and what is done when one changes."""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import psycopg

from headrace.connect.change import Origin, Place, SchemaChange
from headrace.connect.errors import SchemaChangeBlocked
from headrace.connect.incremental import Key, Range
from headrace.connect.postgres.catalog import Catalog, CatalogTable
from headrace.connect.postgres.relation import DEFAULT, Relation, RelationColumn, difference
from headrace.connect.postgres.rows import RowQuery, read_rows
from headrace.connect.postgres.shapes import build_table
from headrace.connect.table import Row, Table
from headrace.connect.table_snapshot import TableSnapshot
from headrace.connect.triggers.settings import TriggerSettings

_FIELD = re.compile(r'(?:"((?:[^"\\]|""|\\.)*)"|([^,]*))(,|$)', re.DOTALL)


def parse_row(text: str) -> Row:
    """The values, in wire text; nothing between two commas is null, and an empty text has quotes."""
    inside = text[1:-1]
    if '"' not in inside:
        return tuple(value or None for value in inside.split(","))
    values: list[str | None] = []
    at = 0
    while True:
        found = _FIELD.match(inside, at)
        assert found is not None
        quoted, plain, end = found.groups()
        if quoted is not None:
            values.append(_unescaped(quoted) if '"' in quoted or "\\" in quoted else quoted)
        else:
            values.append(plain or None)
        if not end:
            return tuple(values)
        at = found.end()


def _unescaped(text: str) -> str:
    return re.sub(r'""|\\(.)', lambda found: found[1] or '"', text, flags=re.DOTALL)


@dataclass(frozen=True, slots=True)
class Found:
    """How a row is to be read; without a table it is left out."""

    table: Table | None
    places: Sequence[int] | None = None  # where the table's values are in a row; None if they are all in order
    event: SchemaChange | None = None
    is_rekeyed: bool = False  # whether rows have a key since then, or none any more

    def arrange(self, row: Row) -> Row:
        """The row as the table has it."""
        return row if self.places is None else tuple(row[place] for place in self.places)


@dataclass(frozen=True, slots=True)
class _Stored:
    """A shape as it was stored: of a table, or of a partition of it, whose columns may be in another order."""

    id: int
    full_name: str
    table: Table
    places: tuple[int, ...]
    width: int


class Shapes:
    """Every shape that was stored, and the one in which each table was last seen."""

    def __init__(
        self,
        connection: psycopg.Connection[tuple[Any, ...]],
        settings: TriggerSettings,
        known: dict[str, int],
        left_out: set[str],
        *,
        is_new: bool,
    ) -> None:
        self._execute: Any = connection.execute
        self._settings = settings
        self._catalog = Catalog(connection)
        self._stored: dict[int, _Stored] = {}
        self._queries: dict[str, tuple[Table, RowQuery]] = {}
        self.known = dict(known)
        self.left_out = left_out
        if is_new:
            # As they are now: the last shape that was stored may be one that was taken back.
            for name, shape in self._execute(
                f"select s.schema || '.' || s.name, {settings.capture}.shape_of(s.relation, s.relation) "  # noqa: S608
                f"from (select distinct relation, schema, name from {settings.capture}.shapes "
                "where root = relation and not gone) s "
                "join pg_class c on c.oid = s.relation and c.relname = s.name "
                "join pg_namespace n on n.oid = c.relnamespace and n.nspname = s.schema"
            ):
                self.known[name] = shape

    def of(self, shape_id: int, origin: Origin, place: Place) -> Found:
        """How a row of this shape is read."""
        stored = self._load(shape_id)
        name = stored.full_name
        if name in self.left_out:
            return Found(None)
        last = self._load(self.known.setdefault(name, shape_id))
        if last.id == shape_id:
            return self._found(stored, stored.table, None)
        if _shape(last.table) == _shape(stored.table):
            return self._found(stored, last.table, None)  # only their order differs, as in a partition
        what = difference(last.table, stored.table)
        if self._settings.schema_changes == "block":
            raise SchemaChangeBlocked(name, what)
        if self._settings.schema_changes == "skip":
            self.left_out.add(name)
            what += "; changes of this table are left out from here on (schema_changes is 'skip')"
            return Found(None, None, SchemaChange(stored.table, last.table, what, origin, place))
        self.known[name] = shape_id
        found = self._found(stored, stored.table, SchemaChange(stored.table, last.table, what, origin, place))
        is_rekeyed = bool(last.table.key) != bool(stored.table.key) and not self._settings.filters.key_of(name)
        return replace(found, is_rekeyed=is_rekeyed)

    def _found(self, stored: _Stored, table: Table, event: SchemaChange | None) -> Found:
        if table is stored.table:
            whole = stored.places == tuple(range(stored.width))
            return Found(table, None if whole else stored.places, event)
        by_name = {c.name: place for c, place in zip(stored.table.columns, stored.places, strict=True)}
        return Found(table, [by_name[column.name] for column in table.columns], event)

    def _load(self, shape_id: int) -> _Stored:
        stored = self._stored.get(shape_id)
        if stored is None:
            root, schema, name, columns, key = self._execute(
                f"select root::bigint, schema, name, columns, key from {self._settings.capture}.shapes where id = %s",  # noqa: S608
                [shape_id],
            ).fetchone()
            places = tuple(place for place, column in enumerate(columns) if not column[3])
            shown = tuple(
                RelationColumn(columns[place][0], columns[place][0] in key, columns[place][1], columns[place][2])
                for place in places
            )
            relation = Relation(root, schema, name, DEFAULT, shown)
            table = build_table(relation, self._settings.types, self._catalog.type, None)
            stored = self._stored[shape_id] = _Stored(shape_id, relation.full_name, table, places, len(columns))
        return stored

    def current(self, table: CatalogTable, catalog: Catalog) -> tuple[Table, RowQuery]:
        """A table as it is read by the snapshot."""
        made = self._queries.get(table.full_name)
        if made is None:
            shape = self.known.get(table.full_name)
            if shape is None:
                (shape,) = self._execute(f"select {self._settings.capture}.shape_of({table.id}, {table.id})").fetchone()
                self.known[table.full_name] = shape
            stored = self._load(shape)
            key = tuple(column.name for column in stored.table.key_columns)
            key = key or self._settings.filters.key_of(table.full_name)
            chosen = replace(table, key=table.key or key)
            made = (stored.table, RowQuery(chosen, stored.table, catalog.types_of(table.id)))
            self._queries[table.full_name] = made
        return made


class TriggerSnapshot(TableSnapshot[CatalogTable]):
    """The connection is in a transaction of its own; what tables look like is asked elsewhere."""

    def __init__(
        self,
        connection: psycopg.Connection[tuple[Any, ...]],
        shapes: Shapes,
        catalog: Catalog,
        tables: Iterable[CatalogTable],
        place: dict[str, Any] | None,
    ) -> None:
        super().__init__(tables, place)
        self.connection = connection
        self._shapes = shapes
        self._catalog = catalog

    def name_of(self, table: CatalogTable) -> str:
        return table.full_name

    def current(self, table: CatalogTable) -> tuple[Table, RowQuery]:
        return self._shapes.current(table, self._catalog)

    def key_of(self, table: CatalogTable, row: Row) -> Key | None:
        return self.current(table)[1].key_of(row) or None

    def select(self, table: CatalogTable, after: Sequence[Any] | None) -> Iterator[Row]:
        behind = Range(table.full_name, None if after is None else tuple(after))
        return read_rows(self.connection, self.current(table)[1].statement(behind))


def _shape(table: Table) -> tuple[set[tuple[str, int, int]], set[str]]:
    """Columns and key, in any order."""
    columns = {(column.name, column.type_id, column.modifier) for column in table.columns}
    return columns, {column.name for column in table.key_columns}
