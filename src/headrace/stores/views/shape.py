"""What a view looks like: its name, its columns with Spark's names for their types, and its key. Pure.

A store keeps the shape beside the rows, so that whoever reads needs neither Spark nor the file that declares the view.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from headrace.stores.errors import BadView

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]*")
_DECIMAL = re.compile(r"decimal\((\d+),(\d+)\)")


class Kind(Enum):
    """What can be done with a column's values."""

    BOOLEAN = "boolean"
    INTEGER = "integer"
    FLOAT = "float"
    DECIMAL = "decimal"
    TEXT = "text"
    DATE = "date"
    INSTANT = "instant"
    LOCAL_TIME = "local time"
    BINARY = "binary"
    NESTED = "nested"

    @property
    def is_ordered(self) -> bool:
        """Whether one value can be less than another."""
        return self not in (Kind.NESTED, Kind.BINARY)


_KINDS = {
    "boolean": Kind.BOOLEAN, "tinyint": Kind.INTEGER, "smallint": Kind.INTEGER, "int": Kind.INTEGER,
    "bigint": Kind.INTEGER, "float": Kind.FLOAT, "double": Kind.FLOAT, "string": Kind.TEXT, "date": Kind.DATE,
    "timestamp": Kind.INSTANT, "timestamp_ntz": Kind.LOCAL_TIME, "binary": Kind.BINARY,
}  # fmt: skip


@dataclass(frozen=True)
class Column:
    """A column: its name, and its type in Spark's short words, such as bigint or decimal(10,2)."""

    name: str
    type: str

    @property
    def kind(self) -> Kind:
        """What can be done with its values."""
        if _DECIMAL.fullmatch(self.type):
            return Kind.DECIMAL
        if self.type.startswith(("varchar", "char")):
            return Kind.TEXT
        return _KINDS.get(self.type, Kind.NESTED)

    @property
    def scale(self) -> int:
        """The digits behind the point of a decimal."""
        found = _DECIMAL.fullmatch(self.type)
        return int(found[2]) if found else 0


@dataclass(frozen=True)
class Shape:
    """The columns of a view in their order, and the names of those that are its key."""

    columns: tuple[Column, ...]
    key: tuple[str, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """The columns' names."""
        return tuple(column.name for column in self.columns)

    @property
    def key_columns(self) -> tuple[Column, ...]:
        """The columns of the key, in the key's order."""
        return tuple(self.column(name) for name in self.key)

    def column(self, name: str) -> Column:
        """The column of that name; raises `KeyError`."""
        return next(column for column in self.columns if column.name == name)

    def to_json(self) -> str:
        """As it is kept in a store."""
        return json.dumps({"key": self.key, "columns": {column.name: column.type for column in self.columns}})

    @classmethod
    def from_json(cls, text: str) -> "Shape":
        """From a store."""
        found = json.loads(text)
        return shape_of(found["columns"], found["key"])


def shape_of(columns: Mapping[str, str], key: Sequence[str]) -> Shape:
    """A shape from names and types."""
    return Shape(tuple(Column(name, kind) for name, kind in columns.items()), tuple(key))


def check_shape(view: str, shape: Shape) -> None:
    """Refuse what no store can keep under a key."""
    names = shape.names
    for name in shape.key:
        if name not in names:
            raise BadView(f"view {view!r} has the key {name!r}, and its rows have only {', '.join(names)}")
        if not shape.column(name).kind.is_ordered or shape.column(name).kind is Kind.FLOAT:
            raise BadView(
                f"view {view!r}: the key {name!r} is {shape.column(name).type}: a key is a number without a fraction, "
                "a text, a date or a time; cast it"
            )
    for name in names:
        if name.startswith("headrace_"):
            raise BadView(f"view {view!r} has a column {name!r}: names that begin with headrace_ are taken; rename it")


def check_same(view: str, known: Shape, now: Shape) -> None:
    """Refuse rows of another shape than those that are kept."""
    if known.key != now.key:
        raise BadView(
            f"view {view!r} is kept by the key {', '.join(known.key)} and is declared with {', '.join(now.key)}: build "
            "it anew (headrace pipeline rebuild)"
        )
    was, wanted = ({column.name: column.type for column in shape.columns} for shape in (known, now))
    for name in sorted(was.keys() | wanted.keys()):
        if was.get(name) != wanted.get(name):
            raise BadView(
                f"view {view!r}: the column {name!r} is {was.get(name, 'not there')} in the store and "
                f"{wanted.get(name, 'not there')} now: build the view anew (headrace pipeline rebuild)"
            )
