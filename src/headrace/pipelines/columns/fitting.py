"""Python values, as a library read them, fitted to Arrow types: for what no compiled walk reads."""

from collections.abc import Mapping
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

import pyarrow as pa

from headrace.pipelines.columns.json_exact import DoesNotFit, exact_decimal

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


def fit(value: Any, kind: pa.DataType, name: str) -> Any:
    """The value as `pyarrow.array` takes it for this type, exactly; raises `DoesNotFit` with the field's name."""
    if value is None:
        return None
    types = pa.types
    found: Any = None
    if types.is_string(kind):
        found = _text(value, name)
    elif types.is_binary(kind):
        found = value.encode() if isinstance(value, str) else value if isinstance(value, bytes) else None
    elif types.is_boolean(kind):
        found = value if isinstance(value, bool) else None
    elif types.is_signed_integer(kind):
        found = _whole(value, kind, name)
    elif types.is_floating(kind):
        found = float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None
    elif types.is_decimal(kind):
        found = _decimal(value, kind, name)
    else:
        found = _time(value, kind) if not types.is_nested(kind) else _nested(value, kind, name)
    if found is None:
        raise DoesNotFit(f"field {name!r} is of type {type(value).__name__}, which is no {kind}")
    return found


def _text(value: Any, name: str) -> str | None:
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError:
            raise DoesNotFit(f"field {name!r} is not valid UTF-8") from None
    return str(value) if isinstance(value, str | UUID) else None


def _whole(value: Any, kind: pa.DataType, name: str) -> int | None:
    if not isinstance(value, int) or isinstance(value, bool):
        return None
    bits = kind.bit_width - 1
    if not -(2**bits) <= value < 2**bits:
        raise DoesNotFit(f"field {name!r} is {value}, too large for {kind}")
    return value


def _decimal(value: Any, kind: pa.Decimal128Type, name: str) -> Decimal | None:
    if not isinstance(value, Decimal | int) or isinstance(value, bool):
        return None
    return exact_decimal(str(value), kind, name)


def _time(value: Any, kind: pa.DataType) -> Any:
    if pa.types.is_timestamp(kind) and isinstance(value, datetime):
        return ((value if value.tzinfo else value.replace(tzinfo=UTC)) - EPOCH) // _MICROSECOND
    if pa.types.is_date32(kind) and isinstance(value, date) and not isinstance(value, datetime):
        return value
    if pa.types.is_time64(kind) and isinstance(value, time):
        return value
    return None


def _nested(value: Any, kind: pa.DataType, name: str) -> Any:
    if pa.types.is_list(kind) and isinstance(value, list):
        return [fit(item, kind.value_type, name) for item in value]
    if pa.types.is_struct(kind) and isinstance(value, Mapping):
        return {field.name: fit(value.get(field.name), field.type, f"{name}.{field.name}") for field in kind}
    if pa.types.is_map(kind) and isinstance(value, Mapping):
        return [
            (fit(key, kind.key_type, name), fit(item, kind.item_type, f"{name}.{key}")) for key, item in value.items()
        ]
    return None
