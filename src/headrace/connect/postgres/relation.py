"""A table as the replication stream announces it, before its first change and after each change of its shape."""

import struct
from dataclasses import dataclass
from typing import Final

from headrace.connect.table import Table

FULL, DEFAULT, NOTHING, INDEX = "f", "d", "n", "i"  # pg_class.relreplident
_COLUMN: Final = struct.Struct(">Ii")
_KEY_FLAG = 1


@dataclass(frozen=True, slots=True)
class RelationColumn:
    """A column as announced."""

    name: str
    is_identity: bool
    type_id: int
    modifier: int


@dataclass(frozen=True, slots=True)
class Relation:
    """A table as announced."""

    id: int
    schema: str
    name: str
    identity: str
    columns: tuple[RelationColumn, ...]

    @property
    def full_name(self) -> str:
        """Schema and name."""
        return f"{self.schema}.{self.name}"


def read_text(data: bytes, at: int) -> tuple[str, int]:
    """A text that ends with a zero, and the place behind that."""
    end = data.index(0, at)
    return data[at:end].decode(), end + 1


def read_relation(data: bytes, at: int) -> Relation:
    """The announcement whose relation id is at `at`."""
    relation_id = int.from_bytes(data[at : at + 4])
    schema, at = read_text(data, at + 4)
    name, at = read_text(data, at)
    identity = chr(data[at])
    count = int.from_bytes(data[at + 1 : at + 3])
    at += 3
    columns = []
    for _ in range(count):
        flags = data[at]
        column, at = read_text(data, at + 1)
        type_id, modifier = _COLUMN.unpack_from(data, at)
        at += _COLUMN.size
        columns.append(RelationColumn(column, bool(flags & _KEY_FLAG), type_id, modifier))
    return Relation(relation_id, schema or "pg_catalog", name, identity, tuple(columns))


def difference(before: Table, after: Table) -> str:
    """What changed between two shapes of a table, in words."""
    old = {column.name: column for column in before.columns}
    new = {column.name: column for column in after.columns}
    parts = [f"column {name} was added" for name in new if name not in old]
    parts += [f"column {name} was dropped" for name in old if name not in new]
    parts += [
        f"column {name} became {new[name].type_name}"
        for name in new
        if name in old and (old[name].type_id, old[name].modifier) != (new[name].type_id, new[name].modifier)
    ]
    if [column.name for column in before.key_columns] != [column.name for column in after.key_columns]:
        key = ", ".join(column.name for column in after.key_columns) or "none"
        parts.append(f"the key became {key}")
    return "; ".join(parts) or "the order of its columns changed"
