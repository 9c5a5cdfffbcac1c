"""What a table looks like: its columns, its key and whatever else must be unique in it."""

import json
import sqlite3
from dataclasses import dataclass
from typing import Any, Self

from headrace.connect.errors import SourceRefused
from headrace.connect.filters import check_key_columns
from headrace.connect.sqlite.statements import FIXED_COLUMNS, own_tables
from headrace.connect.sqlite.values import codec_of
from headrace.connect.table import Column, Table, list_differences

_ROWID = ("rowid", "_rowid_", "oid")
_HIDDEN = 1  # a virtual table's argument; generated columns are 2 and 3, and are shown


@dataclass(frozen=True, slots=True)
class ShapeColumn:
    """A column; `default` is SQL."""

    name: str
    declared: str
    optional: bool
    default: str | None


@dataclass(frozen=True, slots=True)
class Unique:
    """Columns that are unique together, with their collations; SQL decides by them which rows a REPLACE removes."""

    columns: tuple[str, ...]
    collations: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Shape:
    table: str
    columns: tuple[ShapeColumn, ...]
    key: tuple[str, ...]
    uniques: tuple[Unique, ...]
    rowid: str = ""  # by what a table without a key calls SQLite's own number of a row

    def as_json(self) -> str:
        return json.dumps(
            {
                "columns": [[c.name, c.declared, c.optional, c.default] for c in self.columns],
                "key": self.key,
                "uniques": [[u.columns, u.collations] for u in self.uniques],
                **({"rowid": self.rowid} if self.rowid else {}),
            },
            ensure_ascii=False,
        )

    @classmethod
    def from_json(cls, table: str, text: str) -> Self:
        stored: dict[str, Any] = json.loads(text)
        return cls(
            table,
            tuple(ShapeColumn(*column) for column in stored["columns"]),
            tuple(stored["key"]),
            tuple(Unique(tuple(columns), tuple(collations)) for columns, collations in stored["uniques"]),
            stored.get("rowid", ""),
        )

    @property
    def names(self) -> list[str]:
        return [column.name for column in self.columns]

    @property
    def key_places(self) -> tuple[int, ...]:
        names = self.names
        return tuple(names.index(name) for name in self.key)

    @property
    def identity(self) -> dict[str, int]:
        """What tells one row from all others, and where it stands in a note: the key, or the row's number.

        Where columns have taken all of the number's names nothing tells equal rows apart, nor can anything replace one.
        """
        if self.rowid:
            return {self.rowid: 2 * len(self.columns)}
        return dict(zip(self.key, self.key_places, strict=True)) or {name: at for at, name in enumerate(self.names)}

    def has_same_identity(self, before: "Shape") -> bool:
        """Whether rows are known by the same as in the shape before: a key, or values that are written as they were."""
        if self.key or before.key:
            return bool(self.key) == bool(before.key)
        declared = {column.name: column.declared for column in self.columns}
        added = [column for column in self.columns if column.name not in before.names]
        return all(declared.get(column.name) == column.declared for column in before.columns) and not any(
            column.default for column in added
        )

    def as_table(self, shape_id: int) -> Table:
        columns = tuple(
            Column(column.name, column.declared.lower() or "any", codec_of(column.declared), column.optional)
            for column in self.columns
        )
        return Table("main", self.table, columns, tuple(sorted(self.key_places)), id=shape_id, version=shape_id)


def list_tables(connection: sqlite3.Connection) -> list[str]:
    """Every table of the database that could be captured: none of SQLite's, and none of this or another capture's."""
    names = [
        name
        for name, kind in connection.execute(
            "SELECT name, type FROM pragma_table_list WHERE schema = 'main' ORDER BY name"
        )
        if kind == "table" and not name.startswith("sqlite_")
    ]
    captures = [name.removesuffix("_shapes") for name in names if name.endswith("_shapes")]
    own = {table for one in captures if set(own_tables(one)) <= set(names) for table in own_tables(one)}
    return [name for name in names if name not in own]


def read_shape(connection: sqlite3.Connection, table: str, chosen: tuple[str, ...] = ()) -> Shape:
    """A table as it is now; one without a key has the `chosen` one, if there is one."""
    columns, primary = [], []
    for name, declared, not_null, default, place, hidden in connection.execute(
        'SELECT name, type, "notnull", dflt_value, pk, hidden FROM pragma_table_xinfo(?) ORDER BY cid', [table]
    ):
        if hidden != _HIDDEN:
            columns.append(ShapeColumn(name, declared, not not_null, default))
        if place:
            primary.append((place, name))
    room = connection.getlimit(sqlite3.SQLITE_LIMIT_COLUMN)
    if 2 * len(columns) + FIXED_COLUMNS + 1 > room:
        raise SourceRefused(
            f"table {table} has {len(columns)} columns, and a change has each of them twice: more than the {room} that "
            "a table of SQLite may have",
            "leave the table out: name the others",
        )
    uniques = _uniques(connection, table)
    key = tuple(name for _, name in sorted(primary))
    if key and not any(set(unique.columns) == set(key) for unique in uniques):
        uniques.insert(0, Unique(key, ("BINARY",) * len(key)))  # the rowid under another name has no index
    required = {column.name for column in columns if not column.optional}
    if not key:
        key = next((unique.columns for unique in uniques if required.issuperset(unique.columns)), ())
    check_key_columns(
        {table: chosen} if chosen else {}, {table: {column.name: column.name not in required for column in columns}}
    )
    rowid = ""
    if not (key := key or chosen):
        taken = {column.name.lower() for column in columns}
        rowid = next((word for word in _ROWID if word not in taken), "")
        if rowid:  # who writes it may replace a row
            uniques.append(Unique((rowid,), ("BINARY",)))
    return Shape(table, tuple(columns), key, tuple(uniques), rowid)


def _uniques(connection: sqlite3.Connection, table: str) -> list[Unique]:
    """The unique indexes over plain columns; a partial one counts as if it were whole."""
    found = []
    for (index,) in connection.execute('SELECT name FROM pragma_index_list(?) WHERE "unique" ORDER BY seq', [table]):
        parts = connection.execute(
            "SELECT name, coll FROM pragma_index_xinfo(?) WHERE key ORDER BY seqno", [index]
        ).fetchall()
        if all(name is not None for name, _ in parts):
            found.append(Unique(tuple(name for name, _ in parts), tuple(collation for _, collation in parts)))
    return found


def difference(before: Shape, after: Shape) -> str:
    """What changed between two shapes, in words."""
    old, new = ({c.name: (c.declared, c.declared or "untyped") for c in shape.columns} for shape in (before, after))
    return "; ".join(list_differences(old, new, (before.key, after.key))) or "a constraint changed"
