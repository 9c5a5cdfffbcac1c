"""What a view looks like: its columns with Spark's names for their types, its key, and its values in three forms. Pure.

A store keeps the shape beside the rows, so that whoever reads needs neither Spark nor the file that declares the view.
Values are as Python has them, as JSON shows them, or as a question writes them. In JSON decimals are texts, so that no
digit is lost; dates and times are ISO 8601, instants in UTC; bytes are base64; what JSON has no number for (NaN, the
infinities) is a text.
"""

import base64
import binascii
import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal, InvalidOperation
from typing import Any

from headrace.stores.errors import BadQuestion, BadView
from headrace.stores.values import Family

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]*")
_DECIMAL = re.compile(r"decimal\((\d+),(\d+)\)")


_FAMILIES = {
    "boolean": Family.BOOLEAN, "tinyint": Family.INTEGER, "smallint": Family.INTEGER, "int": Family.INTEGER,
    "bigint": Family.INTEGER, "float": Family.FLOAT, "double": Family.FLOAT, "string": Family.TEXT, "date": Family.DATE,
    "timestamp": Family.INSTANT, "timestamp_ntz": Family.TIMESTAMP, "binary": Family.BINARY,
}  # fmt: skip


@dataclass(frozen=True)
class Column:
    """A column: its name, and its type in Spark's short words, such as bigint or decimal(10,2)."""

    name: str
    type: str

    @property
    def family(self) -> Family:
        """What kind of values it holds; arrays, structs and maps are JSON."""
        if _DECIMAL.fullmatch(self.type):
            return Family.DECIMAL
        if self.type.startswith(("varchar", "char")):
            return Family.TEXT
        return _FAMILIES.get(self.type, Family.JSON)

    @property
    def is_ordered(self) -> bool:
        return self.family not in (Family.JSON, Family.BINARY)

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
        return tuple(column.name for column in self.columns)

    @property
    def key_columns(self) -> tuple[Column, ...]:
        return tuple(self.column(name) for name in self.key)

    def column(self, name: str) -> Column:
        """The column of that name; raises `KeyError`."""
        return next(column for column in self.columns if column.name == name)

    def to_json(self) -> str:
        return json.dumps({"key": self.key, "columns": {column.name: column.type for column in self.columns}})

    @classmethod
    def from_json(cls, text: str) -> "Shape":
        found = json.loads(text)
        return shape_of(found["columns"], found["key"])


def shape_of(columns: Mapping[str, str], key: Sequence[str]) -> Shape:
    return Shape(tuple(Column(name, kind) for name, kind in columns.items()), tuple(key))


def check_shape(view: str, shape: Shape) -> None:
    """Refuse what no store can keep under a key."""
    names = shape.names
    for name in shape.key:
        if name not in names:
            raise BadView(f"view {view!r} has the key {name!r}, and its rows have only {', '.join(names)}")
        if not shape.column(name).is_ordered or shape.column(name).family is Family.FLOAT:
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


# Python writes control characters as \u001f, the JSON of the JVM as \u001F; a backslash of the text is doubled.
_CONTROL = re.compile(r"(?<!\\)((?:\\\\)*)\\u([0-9a-f]{4})")
_WRITTEN = {
    Family.BOOLEAN: "true or false", Family.INTEGER: "a whole number", Family.FLOAT: "a number",
    Family.DECIMAL: "a number", Family.DATE: "a date such as 2026-01-31",
    Family.INSTANT: "a time such as 2026-01-31T12:00:00Z",
    Family.TIMESTAMP: "a time such as 2026-01-31T12:00:00", Family.BINARY: "base64",
}  # fmt: skip


def parse_value(column: Column, text: str) -> Any:
    """A value as a question writes it; raises `BadQuestion`."""
    try:
        return _parsed(column, text)
    except (ValueError, InvalidOperation, binascii.Error) as error:
        raise BadQuestion(f"{column.name} is {column.type}, and {text!r} is not {_WRITTEN[column.family]}") from error


def _parsed(column: Column, text: str) -> Any:
    match column.family:
        case Family.TEXT:
            return text
        case Family.BOOLEAN:
            if text.lower() not in ("true", "false"):
                raise ValueError(text)
            return text.lower() == "true"
        case Family.INTEGER:
            return _whole(text)
        case Family.FLOAT:
            return float(text)
        case Family.JSON:
            raise BadQuestion(f"{column.name} is {column.type}, which cannot be compared: ask for other columns")
        case _:
            return load_value(column, text)


def _whole(text: str) -> int:
    number = int(text)
    if not -(2**63) <= number < 2**63:
        raise ValueError(text)
    return number


def load_value(column: Column, value: Any) -> Any:
    """A value from JSON, as Python has it."""
    if value is None:
        return None
    match column.family:
        case Family.DECIMAL:
            number = Decimal(value)
            if not number.is_finite():
                raise ValueError(value)
            return number
        case Family.DATE:
            return date.fromisoformat(value)
        case Family.INSTANT:
            moment = datetime.fromisoformat(value)
            return moment.astimezone(UTC) if moment.tzinfo else moment.replace(tzinfo=UTC)
        case Family.TIMESTAMP:
            return datetime.fromisoformat(value).replace(tzinfo=None)
        case Family.BINARY:
            return base64.b64decode(value, validate=True)
        case Family.FLOAT:
            return float(value)
        case _:
            return value


def show_value(column: Column, value: Any) -> Any:
    """A value as JSON shows it."""
    if value is None:
        return None
    match column.family:
        case Family.DECIMAL:
            return str(value)
        case Family.DATE:
            return value.isoformat()
        case Family.TIMESTAMP:
            return value.isoformat(timespec="microseconds")
        case Family.INSTANT:
            return value.astimezone(UTC).isoformat(timespec="microseconds")
        case Family.BINARY:
            return base64.b64encode(value).decode()
        case Family.FLOAT:
            return _number(float(value))
        case Family.JSON:
            return _plain(value)
        case _:
            return value


def _number(value: float) -> float | str:
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    return value


def _plain(value: Any) -> Any:
    """What lies inside an array, a map or a struct, whose own types are not looked at."""
    if isinstance(value, Mapping):
        return {str(name): _plain(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(part) for part in value]
    if isinstance(value, datetime):
        return (value.astimezone(UTC) if value.tzinfo else value).isoformat()
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, Decimal):
        return str(value)
    if isinstance(value, bytes | bytearray):
        return base64.b64encode(value).decode()
    return _number(value) if isinstance(value, float) else value


def show_row(shape: Shape, row: Mapping[str, Any]) -> dict[str, Any]:
    return {column.name: show_value(column, row[column.name]) for column in shape.columns}


def load_row(shape: Shape, text: str | bytes) -> dict[str, Any]:
    found = json.loads(text)
    return {column.name: load_value(column, found.get(column.name)) for column in shape.columns}


def key_text(shape: Shape, values: Mapping[str, Any]) -> str:
    """A key as compact JSON, the very text that Spark makes of it (`operators.tables.consolidate`)."""
    key = {column.name: show_value(column, values[column.name]) for column in shape.key_columns}
    text = json.dumps(key, ensure_ascii=False, separators=(",", ":"))
    return _CONTROL.sub(lambda found: found[1] + "\\u" + found[2].upper(), text)


def load_key(shape: Shape, text: str) -> dict[str, Any]:
    found = json.loads(text)
    return {column.name: load_value(column, found[column.name]) for column in shape.key_columns}
