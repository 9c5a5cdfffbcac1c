"""How tables stand in the catalog, and what two looks at one tell: whether rows changed and the log does not say so.

The log holds changes of rows, and nothing of what DDL does to them: a table that is dropped and made again is another
one, values that ALTER TABLE writes are in no change, a partition comes with the rows that it has. All of this leaves
traces in the catalog: numbers of tables and of their files, the transactions that wrote the rows of `pg_attribute`. So
the state of each table is kept in the position, and compared with the next look.

`unseen_between` is pure. Where the traces may mean either, it answers as if rows had changed: reading them again is
slow, and not wrong.
"""

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, NamedTuple, Self

import psycopg

from headrace.connect.postgres.catalog import CatalogTable
from headrace.connect.postgres.relation import DEFAULT, Relation, RelationColumn

_TREE: Final = """
with recursive tree(root, id, links) as (
    select wanted.id, wanted.id, '' from unnest(%(ids)s::oid[]) wanted(id)
    union all select tree.root, i.inhrelid, tree.links || ':' || i.xmin::text
    from tree join pg_inherits i on i.inhparent = tree.id
    join pg_class child on child.oid = i.inhrelid and child.relispartition)
"""
# Texts of all kinds are stored and written the same way, so one may become the other.
_STATES: Final = f"""{_TREE}
select c.oid::bigint, c.relnatts,
    (select left(md5(string_agg(concat_ws(':', attnum, attname,
            case when atttypid in (25, 1043) then 25 else atttypid end), ',' order by attnum)), 12) from pg_attribute
     where attrelid = c.oid and attnum > 0 and not attisdropped and attgenerated = ''),
    (select concat_ws(':', p.oid, p.xmin, r.oid) from pg_publication p
     left join pg_publication_rel r on r.prpubid = p.oid and r.prrelid = c.oid where p.pubname = %(publication)s),
    (select coalesce(jsonb_object_agg(
            leaf.oid::text, jsonb_build_array(leaf.relfilenode::bigint, leaf.xmin::text, tree.links)), '{{}}')
     from tree join pg_class leaf on leaf.oid = tree.id where tree.root = c.oid and leaf.relkind <> 'p')
from pg_class c where c.oid = any(%(ids)s::oid[])
"""  # noqa: S608 - our own text
_KEYS: Final = """
select attrelid::bigint, attname::text, atttypid::bigint, atttypmod from pg_attribute
where attrelid = any(%(ids)s::oid[]) and attname = any(%(names)s::text[]) and attnum > 0 and not attisdropped
"""
_CHANGED: Final = f"""{_TREE}
select tree.root::bigint, case when tree.id = tree.root then attnum else 0 end, attname::text, atthasmissing,
    attisdropped
from tree join pg_attribute a on a.attrelid = tree.id and attnum > 0
    and case when attisdropped then tree.id = tree.root else attgenerated = '' end
where age(a.xmin) <= age(%(since)s::text::xid) order by 1, 2
"""  # noqa: S608 - our own text
_HORIZON: Final = "select (pg_snapshot_xmin(pg_current_snapshot())::text::numeric %% 4294967296)::text"


class ChangedColumn(NamedTuple):
    """A column whose description was written since the last look; of a partition it has the number 0."""

    number: int
    name: str
    has_value: bool  # rows that were there when it was added have its default
    is_dropped: bool = False  # and its name is not known any more


class PartFile(NamedTuple):
    """Where the rows of a partition are, or of a table that has none."""

    file: int
    written_by: str  # the transaction that said so
    links: str = ""  # those that made it a part of what it is a part of, up to the table; empty if not known


@dataclass(frozen=True, slots=True)
class TableState:
    """A table at one look."""

    id: int
    columns: int  # with those that were dropped: the number of the last one
    shape: str
    key: tuple[RelationColumn, ...]  # and the columns that were chosen as one
    entry: str  # in the publication, and what wrote the latter: whatever decides that changes are sent
    schema: str
    name: str
    parts: dict[int, PartFile] = field(default_factory=dict)  # what has rows
    truncated: str = ""  # the last transaction that truncated it, and said so in the log

    def as_json(self) -> list[Any]:
        parts = {str(part): list(file) for part, file in self.parts.items()}
        key = [[column.name, column.is_identity, column.type_id, column.modifier] for column in self.key]
        return [self.id, self.columns, self.shape, key, self.entry, parts, self.truncated, [self.schema, self.name]]

    @classmethod
    def from_json(cls, stored: Sequence[Any]) -> Self:
        id_, columns, shape, key, entry, parts, truncated, (schema, name) = stored
        files = {int(part): PartFile(*file) for part, file in parts.items()}
        return cls(
            id_, columns, shape, tuple(RelationColumn(*one) for one in key), entry, schema, name, files, truncated
        )

    @property
    def as_relation(self) -> Relation:
        """The table as far as it is known when it is not there any more: its name and its key."""
        return Relation(self.id, self.schema, self.name, DEFAULT, self.key)

    def after_truncate(self, transaction: str) -> Self:
        """The same, after the log told that all of it was truncated."""
        return replace(self, truncated=transaction)


@dataclass(frozen=True, slots=True)
class Look:
    """Tables by name as they are, which columns changed since the look before, and from where the next one counts."""

    states: dict[str, TableState]
    changed: dict[str, list[ChangedColumn]]
    horizon: str


def look(
    connection: psycopg.Connection[tuple[Any, ...]],
    tables: Iterable[CatalogTable],
    chosen: Callable[[str], Sequence[str]],
    publication: str,
    since: str,
) -> Look:
    """Look at the catalog; without `since` no column counts as changed. It takes no locks."""
    by_id = {table.id: table for table in tables}
    names = {table.id: dict.fromkeys((*table.key, *chosen(table.full_name))) for table in by_id.values()}
    row = connection.execute(_HORIZON.replace("%%", "%")).fetchone()
    assert row is not None
    wanted: dict[str, Any] = {"ids": list(by_id), "publication": publication, "since": since}
    wanted["names"] = sorted({name for some in names.values() for name in some})
    types = {(id_, name): (type_id, modifier) for id_, name, type_id, modifier in connection.execute(_KEYS, wanted)}
    states = {}
    for id_, columns, shape, entry, parts in connection.execute(_STATES, wanted):
        table = by_id[id_]
        files = {int(part): PartFile(*file) for part, file in parts.items()}
        key = tuple(
            RelationColumn(name, name in table.key, *types[id_, name]) for name in names[id_] if (id_, name) in types
        )
        states[table.full_name] = TableState(
            id_, columns, shape or "", key, entry or "", table.schema, table.name, files
        )  # fmt: skip
    changed: dict[str, list[ChangedColumn]] = {}
    if since:
        for id_, *column in connection.execute(_CHANGED, wanted):
            changed.setdefault(by_id[id_].full_name, []).append(ChangedColumn(*column))
    return Look(states, changed, str(row[0]))


def unseen_between(before: TableState, now: TableState, changed: Collection[ChangedColumn]) -> str:
    """What may have changed rows between two looks without being in the log, as a clause; empty if nothing did."""
    if before.id != now.id:
        return "it was replaced by another table of its name"
    if before.entry != now.entry:
        return "its changes were not sent for a while"
    if before.key != now.key:
        return f"its key became {', '.join(column.name for column in now.key) or 'none'}"
    if before.parts.keys() - now.parts.keys():
        return "a partition of it was detached or dropped"
    both = [(old, now.parts[part]) for part, old in before.parts.items()]
    if any(old.links not in ("", file.links) for old, file in both):
        return "a partition of it was detached for a while"
    written = [file for old, file in both if old.file != file.file]
    is_partitioned = now.parts.keys() != {now.id}
    if is_partitioned and any(file.written_by != before.truncated for file in written):
        return "a partition of it was truncated or written anew by itself"
    is_one_dropped = any(column.is_dropped for column in changed)
    if is_one_dropped and not now.key:
        return "a column of it was dropped, and its rows are known by their values alone"
    altered = [column for column in changed if 0 < column.number <= before.columns and not column.is_dropped]
    if altered and not now.key:  # it may be its precision, which says how values are written
        return f"column {altered[0].name} was altered, and its rows are known by their values alone"
    for column in changed:
        if column.is_dropped:
            continue
        if column.has_value and (column.number == 0 or column.number > before.columns):
            return f"column {column.name} was added with a value in every row"
        if column.number == 0:
            continue
        if column.number > before.columns:
            if written and not is_partitioned:
                return f"column {column.name} was added with a value in every row"
            if is_one_dropped:
                return f"column {column.name} was added and one was dropped, perhaps of the same name"
        elif before.shape != now.shape or (written and not is_partitioned):
            return f"column {column.name} was renamed, or its values became others"
    return ""


def new_parts(before: TableState, now: TableState) -> list[int]:
    """The partitions that came between two looks, perhaps with rows in them."""
    return sorted(now.parts.keys() - before.parts.keys())
