"""A view's values in their three forms: as Python has them, as JSON shows them, as a question writes them. Pure.

In JSON decimals are texts, so that no digit is lost; dates and times are ISO 8601, instants in UTC; bytes are base64;
and what JSON has no number for (NaN, the infinities) is a text.
"""

import base64
import binascii
import json
import math
import re
from collections.abc import Mapping
from datetime import UTC, date, datetime
from decimal import Decimal, InvalidOperation
from typing import Any

from headrace.stores.errors import BadQuestion
from headrace.stores.views.shape import Column, Kind, Shape

# Python writes control characters as \u001f, the JSON of the JVM as \u001F; a backslash of the text is doubled.
_CONTROL = re.compile(r"(?<!\\)((?:\\\\)*)\\u([0-9a-f]{4})")
_WRITTEN = {
    Kind.BOOLEAN: "true or false", Kind.INTEGER: "a whole number", Kind.FLOAT: "a number", Kind.DECIMAL: "a number",
    Kind.DATE: "a date such as 2026-01-31", Kind.INSTANT: "a time such as 2026-01-31T12:00:00Z",
    Kind.LOCAL_TIME: "a time such as 2026-01-31T12:00:00", Kind.BINARY: "base64",
}  # fmt: skip


def parse(column: Column, text: str) -> Any:
    """A value as a question writes it; raises `BadQuestion`."""
    try:
        return _parsed(column, text)
    except (ValueError, InvalidOperation, binascii.Error) as error:
        raise BadQuestion(f"{column.name} is {column.type}, and {text!r} is not {_WRITTEN[column.kind]}") from error


def _parsed(column: Column, text: str) -> Any:
    match column.kind:
        case Kind.TEXT:
            return text
        case Kind.BOOLEAN:
            if text.lower() not in ("true", "false"):
                raise ValueError(text)
            return text.lower() == "true"
        case Kind.INTEGER:
            return _whole(text)
        case Kind.FLOAT:
            return float(text)
        case Kind.NESTED:
            raise BadQuestion(f"{column.name} is {column.type}, which cannot be compared: ask for other columns")
        case _:
            return loaded(column, text)


def _whole(text: str) -> int:
    number = int(text)
    if not -(2**63) <= number < 2**63:
        raise ValueError(text)
    return number


def loaded(column: Column, value: Any) -> Any:
    """A value from JSON, as Python has it."""
    if value is None:
        return None
    match column.kind:
        case Kind.DECIMAL:
            number = Decimal(value)
            if not number.is_finite():
                raise ValueError(value)
            return number
        case Kind.DATE:
            return date.fromisoformat(value)
        case Kind.INSTANT:
            moment = datetime.fromisoformat(value)
            return moment.astimezone(UTC) if moment.tzinfo else moment.replace(tzinfo=UTC)
        case Kind.LOCAL_TIME:
            return datetime.fromisoformat(value).replace(tzinfo=None)
        case Kind.BINARY:
            return base64.b64decode(value, validate=True)
        case Kind.FLOAT:
            return float(value)
        case _:
            return value


def shown(column: Column, value: Any) -> Any:
    """A value as JSON shows it."""
    if value is None:
        return None
    match column.kind:
        case Kind.DECIMAL:
            return str(value)
        case Kind.DATE:
            return value.isoformat()
        case Kind.LOCAL_TIME:
            return value.isoformat(timespec="microseconds")
        case Kind.INSTANT:
            return value.astimezone(UTC).isoformat(timespec="microseconds")
        case Kind.BINARY:
            return base64.b64encode(value).decode()
        case Kind.FLOAT:
            return _number(float(value))
        case Kind.NESTED:
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


def shown_row(shape: Shape, row: Mapping[str, Any]) -> dict[str, Any]:
    """A row as JSON shows it."""
    return {column.name: shown(column, row[column.name]) for column in shape.columns}


def loaded_row(shape: Shape, text: str | bytes) -> dict[str, Any]:
    """A row that was kept as JSON."""
    found = json.loads(text)
    return {column.name: loaded(column, found.get(column.name)) for column in shape.columns}


def key_text(shape: Shape, values: Mapping[str, Any]) -> str:
    """A key as compact JSON, the very text that Spark makes of it (`operators.tables.consolidate`)."""
    key = {column.name: shown(column, values[column.name]) for column in shape.key_columns}
    text = json.dumps(key, ensure_ascii=False, separators=(",", ":"))
    return _CONTROL.sub(lambda found: found[1] + "\\u" + found[2].upper(), text)


def loaded_key(shape: Shape, text: str) -> dict[str, Any]:
    """A key from its JSON."""
    found = json.loads(text)
    return {column.name: loaded(column, found[column.name]) for column in shape.key_columns}
