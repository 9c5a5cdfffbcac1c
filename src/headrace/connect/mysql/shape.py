"""What a table looks like, as the information schema says it or as statements made it; and whether the log agrees."""

import re
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final, Self

from headrace.connect.filters import TypeModes
from headrace.connect.mysql import table_maps as logged
from headrace.connect.mysql.tokens import unescaped
from headrace.connect.mysql.types import codec_of
from headrace.connect.table import Column, Table, list_differences

_LABEL = re.compile(r"'((?:[^'\\]|''|\\.)*)'", re.DOTALL)
_BASE = re.compile(r"[a-z0-9_]+")
_NUMBERS = re.compile(r"\((\d+)(?:,(\d+))?\)")
_MOMENTS: Final = ("time", "datetime", "timestamp")

_INTEGERS: Final = ("tinyint", "smallint", "mediumint", "int", "bigint")
_GROWING: Final = ("text", "mediumtext", "longtext")
_TEXTS: Final = ("tinytext", "text", "mediumtext", "longtext")
_STRINGS = {logged.STRING, logged.VARCHAR, logged.VAR_STRING}
_FITTING: Final = {
    "tinyint": {logged.TINY}, "smallint": {logged.SHORT}, "mediumint": {logged.INT24}, "int": {logged.LONG},
    "bigint": {logged.LONGLONG}, "float": {logged.FLOAT}, "double": {logged.DOUBLE}, "decimal": {logged.DECIMAL},
    "date": {logged.DATE, 14}, "datetime": {logged.DATETIME, logged.DATETIME2}, "time": {logged.TIME, logged.TIME2},
    "timestamp": {logged.TIMESTAMP, logged.TIMESTAMP2}, "year": {logged.YEAR}, "bit": {logged.BIT}, "char": _STRINGS,
    "varchar": _STRINGS, "binary": _STRINGS, "varbinary": _STRINGS, "enum": {logged.ENUM}, "set": {logged.SET},
    "json": {logged.JSON, logged.BLOB}, "tinyblob": {logged.BLOB}, "blob": {logged.BLOB}, "mediumblob": {logged.BLOB},
    "longblob": {logged.BLOB}, "tinytext": {logged.BLOB}, "text": {logged.BLOB}, "mediumtext": {logged.BLOB},
    "longtext": {logged.BLOB}, "uuid": _STRINGS, "inet6": _STRINGS, "inet4": _STRINGS,
}  # fmt: skip
_SPATIAL: Final = {
    "geometry", "point", "linestring", "polygon", "multipoint", "multilinestring", "multipolygon",
    "geometrycollection", "geomcollection",
}  # fmt: skip


@dataclass(frozen=True)
class ShapeColumn:
    """A column; `type` as the information schema's column_type has it, `charset` None for what is no text."""

    name: str
    type: str
    charset: str | None = None
    optional: bool = True
    is_json: bool = False

    @cached_property
    def base(self) -> str:
        found = _BASE.match(self.type.lower())
        return found[0] if found else self.type

    @cached_property
    def is_unsigned(self) -> bool:
        return " unsigned" in self.type or " zerofill" in self.type

    @cached_property
    def labels(self) -> tuple[str, ...]:
        """Those of an enum or set."""
        if self.base not in ("enum", "set"):
            return ()
        return tuple(unescaped(label, "'") for label in _LABEL.findall(self.type))

    @cached_property
    def numbers(self) -> tuple[int, int]:
        """What stands in the type's parentheses."""
        found = _NUMBERS.search(self.type)
        return (int(found[1]), int(found[2] or 0)) if found else (0, 0)

    @property
    def precision(self) -> int:
        """The digits of a fraction of a second."""
        return self.numbers[0] if self.base in _MOMENTS else 0

    def holds_values_of(self, before: "ShapeColumn") -> bool:
        """Whether every value of a column is the same in this one, which takes its place."""
        if before.optional and not self.optional:
            return False
        if self.base in _INTEGERS and before.base in _INTEGERS:
            return self.is_unsigned == before.is_unsigned and _INTEGERS.index(self.base) >= _INTEGERS.index(before.base)
        if self.base in _GROWING and before.base in _TEXTS:
            return _TEXTS.index(self.base) >= _TEXTS.index(before.base)
        if self.base != before.base:
            return False
        if self.base in ("enum", "set"):
            return self.labels[: len(before.labels)] == before.labels
        if self.base == "decimal":
            return self.numbers[1] == before.numbers[1] and self.numbers[0] >= before.numbers[0]
        return self.numbers[0] >= before.numbers[0] and self.is_unsigned == before.is_unsigned

    @property
    def is_spatial(self) -> bool:
        return self.base in _SPATIAL


@dataclass(frozen=True)
class Shape:
    """A table in one of its shapes; `charset` is what a new column gets.

    `dropped` are the names of columns that it had: rows in its topic may still have their values.
    """

    database: str
    table: str
    columns: tuple[ShapeColumn, ...]
    key: tuple[str, ...]
    charset: str = "utf8mb4"
    dropped: tuple[str, ...] = field(default=(), compare=False)

    @cached_property
    def full_name(self) -> str:
        return f"{self.database}.{self.table}"

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(column.name for column in self.columns)

    def as_json(self) -> dict[str, Any]:
        return {
            "database": self.database,
            "table": self.table,
            "columns": [[c.name, c.type, c.charset, c.optional, c.is_json] for c in self.columns],
            "key": list(self.key),
            "charset": self.charset,
            **({"dropped": list(self.dropped)} if self.dropped else {}),
        }

    @classmethod
    def from_json(cls, stored: dict[str, Any]) -> Self:
        columns = tuple(ShapeColumn(*column) for column in stored["columns"])
        key, dropped = tuple(stored["key"]), tuple(stored.get("dropped", ()))
        return cls(stored["database"], stored["table"], columns, key, stored["charset"], dropped)

    def as_table(self, modes: TypeModes) -> Table:
        columns = tuple(
            Column(column.name, column.type, codec_of(column, modes), column.optional) for column in self.columns
        )
        return Table(self.database, self.table, columns, tuple(sorted(self.names.index(name) for name in self.key)))

    def misfit(self, announced: logged.TableMap) -> str | None:
        """Why the log's announcement cannot be of this shape; None if it can."""
        if len(announced.columns) != len(self.columns):
            return f"{len(announced.columns)} columns in the log, {len(self.columns)} known"
        if announced.names is not None and announced.names != self.names:
            return f"columns {', '.join(announced.names)} in the log, {', '.join(self.names)} known"
        for column, seen in zip(self.columns, announced.columns, strict=True):
            fitting = {logged.GEOMETRY} if column.is_spatial else _FITTING.get(column.base)
            if fitting is not None and seen.type not in fitting:
                return f"column {column.name} is known as {column.type}, and has type {seen.type} in the log"
        return None


def values_altered(before: Shape, after: Shape) -> str:
    """A column whose values are written otherwise than before, or are gone; empty if columns were only added."""
    now = {column.name: column for column in after.columns}
    kept = (column.name for column in before.columns if _written(column) != _written(now.get(column.name)))
    return next(kept, "")


def _written(column: ShapeColumn | None) -> object:
    return column and (column.type, column.is_json)


def difference(before: Shape, after: Shape) -> str:
    """What changed between two shapes, in words."""
    old, new = ({column.name: (column.type, column.type) for column in shape.columns} for shape in (before, after))
    parts = list_differences(old, new, (before.key, after.key))
    if before.full_name != after.full_name:
        parts.append(f"it was called {before.full_name}")
    return "; ".join(parts) or "an attribute or the order of its columns changed"
