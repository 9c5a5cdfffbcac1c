"""What a change of one table does to others: foreign keys, whose work InnoDB does itself and writes to no log.

A row that goes with its parent (ON DELETE CASCADE), or changes with it, has no event of its own. Which rows those were
is known to nobody afterwards, so the tables that a change may have reached are told, and read again or stopped.
"""

# ruff: noqa: S608 - these statements are our own text

from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from typing import Final

from headrace.connect.errors import SourceRefused
from headrace.connect.mysql.columns import TableId
from headrace.connect.mysql.connection import Connection, ask
from headrace.connect.mysql.events import Header, Kind
from headrace.connect.mysql.rows import PartsOfRows, read_rows, row_parser
from headrace.connect.mysql.shape import Shape
from headrace.connect.mysql.table_maps import TableMap

_RULES: Final = ("CASCADE", "SET NULL", "SET DEFAULT")
_DELETES: Final = {Kind.DELETE, Kind.DELETE_V1, Kind.DELETE_COMPRESSED, Kind.DELETE_COMPRESSED_V1}
_UPDATES: Final = {Kind.UPDATE, Kind.UPDATE_V1, Kind.UPDATE_COMPRESSED, Kind.UPDATE_COMPRESSED_V1}
_NOT_CHECKED: Final = 2  # a flag of an event of rows: the session has foreign_key_checks = 0
_QUERY: Final = (
    "SELECT r.constraint_schema, r.table_name, k.referenced_table_schema, k.referenced_table_name, r.constraint_name, "
    "k.referenced_column_name, r.delete_rule, r.update_rule FROM information_schema.referential_constraints r "
    "JOIN information_schema.key_column_usage k ON k.constraint_schema = r.constraint_schema "
    "AND k.constraint_name = r.constraint_name AND k.table_name = r.table_name "
    f"WHERE r.delete_rule IN {_RULES} OR r.update_rule IN {_RULES}"
)


@dataclass(frozen=True, slots=True)
class ForeignKey:
    """That a change of one table, in these columns, changes another."""

    child: TableId
    parent: TableId
    columns: tuple[str, ...]
    on_delete: str
    on_update: str

    def describe(self, header: Header) -> str:
        """What happened, in a clause."""
        rule = f"ON DELETE {self.on_delete}" if header.kind in _DELETES else f"ON UPDATE {self.on_update}"
        return f"rows of {'.'.join(self.parent)} changed, which a foreign key follows ({rule}) without the log"


def read_foreign_keys(connection: Connection) -> list[ForeignKey]:
    """Those by which a change of one table changes another."""
    found: dict[tuple[str, ...], ForeignKey] = {}
    for schema, table, parent_schema, parent, name, column, on_delete, on_update in ask(connection, _QUERY):
        place = (schema, table, name)
        key = found.get(place) or ForeignKey((schema, table), (parent_schema, parent), (), on_delete, on_update)
        found[place] = replace(key, columns=(*key.columns, column))
    return list(found.values())


def any_trigger(connection: Connection, tables: Collection[TableId]) -> bool:
    rows = ask(connection, "SELECT event_object_schema, event_object_table FROM information_schema.triggers")
    return any((schema, table) in tables for schema, table in rows)


class Cascades:
    """The tables that follow others."""

    def __init__(self, keys: Iterable[ForeignKey]) -> None:
        self._by_parent: dict[TableId, list[ForeignKey]] = {}
        for key in keys:
            self._by_parent.setdefault(key.parent, []).append(key)

    def of(self, parent: TableId) -> list[ForeignKey]:
        """The keys that follow a table."""
        return self._by_parent.get(parent, [])

    def reached(self, first: TableId) -> list[TableId]:
        """A table and those that follow it, them, and so on."""
        found = [first]
        for name in found:
            found += [key.child for key in self.of(name) if key.child not in found]
        return found

    def met(self, header: Header, body: bytes, announced: TableMap, shape: Shape | None) -> list[ForeignKey]:
        """The keys that had something to do when these rows changed; `shape` is their table's, if it is known."""
        if int.from_bytes(body[6:8], "little") & _NOT_CHECKED:
            return []
        keys = self.of((announced.database, announced.table))
        if header.kind in _DELETES:
            return [key for key in keys if key.on_delete in _RULES]
        if header.kind not in _UPDATES:
            return []
        following = [key for key in keys if key.on_update in _RULES]
        changed = _changed_columns(header, body, announced, shape) if following else set()
        return [key for key in following if changed is None or not changed.isdisjoint(key.columns)]


def _changed_columns(header: Header, body: bytes, announced: TableMap, shape: Shape | None) -> set[str] | None:
    """The columns whose values an event changes; None if that cannot be told."""
    if shape is None or shape.misfit(announced) is not None:
        return None
    try:
        rows = read_rows(header.kind, body, len(shape.columns), row_parser(announced, shape))
    except (PartsOfRows, SourceRefused):
        return None
    return {
        name
        for before, after in rows
        if before is not None and after is not None
        for name, old, new in zip(shape.names, before, after, strict=True)
        if old != new
    }
