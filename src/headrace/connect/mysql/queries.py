"""Rows of a table by a query, in the order of its key: what snapshots are made of, with the values as the log has them.

Rows of a table without a key have no order, and are read whole.

A key is kept in positions, so its values are such that they come back from JSON as they were.
"""

import base64
from collections.abc import Callable, Sequence
from typing import Any

from headrace.connect.mysql.catalog import quote
from headrace.connect.mysql.shape import Shape, ShapeColumn
from headrace.connect.ranges import Key
from headrace.connect.table import Raw, Row, from_wire

_INTEGERS = ("tinyint", "smallint", "mediumint", "int", "bigint", "year")
_MEASURED = ("enum", "set", "bit")  # ordered by number, shown otherwise


class RowQuery:
    """How to ask for the rows of one table, and what the answers mean."""

    def __init__(self, shape: Shape) -> None:
        self._shape = shape
        self._readers = [_reader(column) for column in shape.columns]
        self._key = [shape.columns[shape.names.index(name)] for name in shape.key]
        self._key_places = [shape.names.index(name) for name in shape.key]

    def statement(self, after: Sequence[Any] | None, limit: int | None = None) -> str:
        """The rows whose keys are behind one, or the first of them."""
        shape = self._shape
        # Only what a query counts with keeps all digits of a FLOAT.
        chosen = ", ".join(
            f"{quote(column.name)} + 0e0" if column.base == "float" else quote(column.name) for column in shape.columns
        )
        key = [_ordered(column) for column in self._key]
        found = f"SELECT {chosen} FROM {quote(shape.database)}.{quote(shape.table)}"  # noqa: S608 - quoted
        if after is not None:
            values = [_literal(column, value) for column, value in zip(self._key, after, strict=True)]
            found += f" WHERE {_behind(key, values)}"
        if not key:
            return found
        found += f" ORDER BY {', '.join(key)}"
        return found if limit is None else f"{found} LIMIT {limit}"

    def row(self, answer: Sequence[bytes | None]) -> Row:
        """A row of the answer as the log would give it."""
        return tuple(None if value is None else read(value) for read, value in zip(self._readers, answer, strict=True))

    def key_of(self, row: Row) -> Key:
        """A row's key in the order that it is read in."""
        return tuple(_to_position(row[place]) for place in self._key_places)


def _reader(column: ShapeColumn) -> Callable[[bytes], Raw]:
    """From the text of a query's answer to what the log would give."""
    base = column.base
    if base in _INTEGERS:
        return int
    if base in ("float", "double"):
        return float
    if base == "bit":
        return int.from_bytes
    if base == "decimal" and "zerofill" in column.type:
        return _plain
    if base in ("decimal", "date", "datetime", "timestamp", "time", "uuid", "inet6", "inet4"):
        return bytes.decode
    if column.charset is None and not column.is_json and base != "json":
        return bytes
    return lambda data: data.decode("latin-1")


def _plain(data: bytes) -> str:
    """A number without the zeros that fill it up."""
    text = data.decode().lstrip("0")
    return f"0{text}" if not text or text[0] == "." else text


def _ordered(column: ShapeColumn) -> str:
    return f"{quote(column.name)} + 0" if column.base in _MEASURED else quote(column.name)


def _behind(key: list[str], values: list[str]) -> str:
    """That a row's key is behind these values; spelt out, because row values use no index here."""
    parts = []
    for index in range(len(key)):
        same = [f"{key[before]} = {values[before]}" for before in range(index)]
        parts.append("(" + " AND ".join([*same, f"{key[index]} > {values[index]}"]) + ")")
    return "(" + " OR ".join(parts) + ")"


def _to_position(value: Raw) -> Any:
    """A value of a key, so that it comes back from JSON as it was."""
    return ["bytes", base64.b64encode(value).decode()] if isinstance(value, bytes) else value


def _literal(column: ShapeColumn, stored: Any) -> str:
    """A value of a key in a statement."""
    if isinstance(stored, list):
        return f"x'{base64.b64decode(stored[1]).hex()}'" if stored[1] else "''"
    if isinstance(stored, int | float):
        return repr(stored)
    if column.base == "set":
        chosen = from_wire(stored).split(",")
        return str(sum(1 << place for place, label in enumerate(column.labels) if label in chosen))
    if column.base == "enum":
        return str(["", *column.labels].index(from_wire(stored)))
    data = stored.encode("latin-1")
    return f"_utf8mb4 x'{data.hex()}'" if data else "''"
