"""What the database's catalog says of tables, keys and types."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any, Final

import psycopg

from headrace.connect.errors import SourceRefused
from headrace.connect.filters import Filters, check_key_columns, unknown_table
from headrace.connect.postgres.relation import FULL, INDEX, NOTHING, Relation, RelationColumn
from headrace.connect.postgres.types import TypeInfo

_TABLES: Final = """
select c.oid, n.nspname, c.relname, c.relreplident::text, coalesce(k.names, '{}'), coalesce(i.names, '{}'),
       greatest(c.reltuples, 0)::bigint, c.relkind = 'p',
       coalesce((select sum(pg_stat_get_tuples_updated(part.id) + pg_stat_get_tuples_deleted(part.id)) from (
           select c.oid union select tree.relid::oid from pg_partition_tree(c.oid) tree) part(id)), 0) > 0
from pg_class c join pg_namespace n on n.oid = c.relnamespace
left join lateral (select array_agg(a.attname::text order by o.place) as names
    from pg_index x cross join unnest(x.indkey::int2[]) with ordinality o(number, place)
    join pg_attribute a on a.attrelid = x.indrelid and a.attnum = o.number
    where x.indrelid = c.oid and x.indisprimary and o.place <= x.indnkeyatts
        and (x.indimmediate or c.relreplident = 'f')) k on true
left join lateral (select array_agg(a.attname::text order by o.place) as names
    from pg_index x cross join unnest(x.indkey::int2[]) with ordinality o(number, place)
    join pg_attribute a on a.attrelid = x.indrelid and a.attnum = o.number
    where x.indrelid = c.oid and x.indisreplident and o.place <= x.indnkeyatts) i on true
where c.relkind in ('r', 'p') and not c.relispartition and c.relpersistence = 'p'
  and n.nspname not in ('pg_catalog', 'information_schema') and n.nspname not like 'pg_toast%'
order by n.nspname, c.relname
"""
_COLUMNS: Final = """
select attname, atttypid, atttypmod, format_type(atttypid, atttypmod) from pg_attribute
where attrelid = %s and attnum > 0 and not attisdropped and attgenerated = '' order by attnum
"""
_NULLABLE: Final = """
select attname::text, not attnotnull from pg_attribute
where attrelid = %s and attnum > 0 and not attisdropped and attgenerated = '' order by attnum
"""
_PARTITION: Final = """
with recursive up(id) as (select %s::oid union all
    select i.inhparent from up join pg_inherits i on i.inhrelid = up.id)
select n.nspname, c.relname from pg_class c join pg_namespace n on n.oid = c.relnamespace
where c.oid = (select id from up limit 1) and exists (select from up where id = %s)
"""
_TYPE: Final = """
select t.typname, t.typtype::text, case when t.typcategory = 'A' then t.typelem else 0 end, t.typbasetype, t.typtypmod,
       coalesce((select array_agg(enumlabel::text order by enumsortorder) from pg_enum where enumtypid = t.oid), '{}')
from pg_type t where t.oid = %s
"""


@dataclass(frozen=True, slots=True)
class CatalogTable:
    """A table as it is now."""

    id: int
    schema: str
    name: str
    identity: str
    key: tuple[str, ...]  # in the order of its index, which is the order to read it in
    rows: int  # about
    is_partitioned: bool
    is_altered: bool = False  # whether rows of it were ever updated or deleted, as far as the server's statistics tell

    @property
    def full_name(self) -> str:
        return f"{self.schema}.{self.name}"

    @property
    def can_be_captured(self) -> bool:
        """Whether the log says which row was changed, or none ever is.

        Without that the server refuses updates and deletes of a published table: who makes none does not miss them.
        """
        return self.identity == FULL or (self.identity != NOTHING and bool(self.key)) or not self.is_altered

    @property
    def refusal(self) -> SourceRefused:
        """Why it cannot be captured, and what mends it."""
        lacks = "index of its replica identity any more" if self.identity == INDEX else "primary key"
        return SourceRefused(
            f"table {self.full_name} has no {lacks} and its rows are updated or deleted, of which the log would not "
            "say which row it was",
            f"ALTER TABLE {self.quoted} ADD PRIMARY KEY (…), or ALTER TABLE {self.quoted} REPLICA IDENTITY FULL",
        )

    @property
    def quoted(self) -> str:
        return f"{quote(self.schema)}.{quote(self.name)}"

    @property
    def own_rows(self) -> str:
        """What to select from: without the rows of tables that inherit from it, which are captured by themselves."""
        return self.quoted if self.is_partitioned else f"ONLY {self.quoted}"


def quote(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


class Catalog:
    """Questions to the catalog, over a connection that is the asker's."""

    def __init__(self, connection: psycopg.Connection[tuple[Any, ...]]) -> None:
        self._connection = connection
        self._types: dict[int, TypeInfo | None] = {}

    def tables(self) -> list[CatalogTable]:
        """Every table of the database that could be captured."""
        return [
            # Of a row that is deleted the log tells its identity, so that is the key: in the snapshot as well.
            CatalogTable(id_, schema, name, identity, tuple(index if identity == INDEX else key), *rest)
            for id_, schema, name, identity, key, index, *rest in self._connection.execute(_TABLES)
        ]

    def captured(self, filters: Filters, known: Collection[str] = ()) -> list[CatalogTable]:
        """The tables that the filters let through, also those that cannot be captured; refused if none of them can.

        A table that was captured before, as `known` has it, may be gone.
        """
        every = self.tables()
        found = [table for table in every if filters.captures(table.full_name)]
        for pattern in filters.include_tables:
            one = Filters(include_tables=[pattern])
            if not any(map(one.captures, (*(table.full_name for table in every), *known))):
                raise unknown_table(pattern, [table.full_name for table in every])
        here = {table.full_name for table in found}
        key_columns = {name: of for name, of in filters.key_columns.items() if name in here or name not in known}
        check_key_columns(key_columns, {table.full_name: self.nullable(table) for table in found})
        for table in found:
            check_identity(table, filters.key_of(table.full_name))
        if found and not any(table.can_be_captured for table in found):
            raise found[0].refusal
        return found

    def nullable(self, table: CatalogTable) -> dict[str, bool]:
        """The columns of a table, and whether each may be null."""
        return dict(self._connection.execute(_NULLABLE, [table.id]).fetchall())

    def capturable(self, filters: Filters) -> list[CatalogTable]:
        return [table for table in self.tables() if table.can_be_captured and filters.captures(table.full_name)]

    def relation(self, table: CatalogTable) -> Relation:
        """The table as the log would announce it."""
        identity = set(table.key)
        columns = tuple(
            RelationColumn(name, name in identity, type_id, modifier)
            for name, type_id, modifier, _ in self._connection.execute(_COLUMNS, [table.id])
        )
        return Relation(table.id, table.schema, table.name, table.identity, columns)

    def types_of(self, table_id: int) -> dict[str, str]:
        """The types of a table's columns by name, as SQL writes them."""
        return {name: written for name, _, _, written in self._connection.execute(_COLUMNS, [table_id])}

    def partition(self, table: CatalogTable, part: int) -> str:
        """The quoted name of a partition by its number; empty if it is none of the table's any more."""
        row = self._connection.execute(_PARTITION, [part, table.id]).fetchone()
        return "" if row is None else f"{quote(row[0])}.{quote(row[1])}"

    def key_of(self, relation: Relation) -> tuple[str, ...]:
        """The key that a table has now."""
        for table in self.tables():
            if (table.schema, table.name) == (relation.schema, relation.name):
                return table.key
        return ()

    def type(self, type_id: int) -> TypeInfo | None:
        """A type that is not built in."""
        if type_id not in self._types:
            row = self._connection.execute(_TYPE, [type_id]).fetchone()
            if row is None:
                return None  # it may be dropped, and it may not be there yet
            name, kind, element, base, modifier, labels = row
            self._types[type_id] = TypeInfo(type_id, name, kind, element, base, modifier, tuple(labels))
        return self._types[type_id]


def check_identity(table: CatalogTable, chosen: Sequence[str]) -> None:
    """Refuse a key that the log would not tell of a row that is gone, nor notice that it changed."""
    if table.identity != FULL and not set(chosen) <= set(table.key):
        there = ", ".join(table.key) or "nothing"
        raise SourceRefused(
            f"key_columns of {table.full_name} names {', '.join(chosen)}, and of a row that is deleted the log tells "
            f"{there}",
            f"ALTER TABLE {table.quoted} REPLICA IDENTITY FULL, or USING INDEX a unique one over these columns",
        )
