"""What every decoder of values gives, and values that a library reads one by one, where no compiled walk does."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any, Protocol
from uuid import UUID

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from headrace.pipelines.columns.json_exact import EPOCH, MICROSECOND, DoesNotFit, exact_decimal
from headrace.pipelines.columns.records import RecordColumns
from headrace.pipelines.columns.walk import Bytes, Longs


@dataclass(frozen=True, slots=True)
class Decoded:
    """A column per wanted field, a row per record; and the rows that did not decode, with the reason of each.

    A row that did not decode is null in every column.
    """

    columns: list[pa.Array]
    broken: dict[int, str] = field(default_factory=dict)


class Decoder(Protocol):
    """Turns the values of records into columns; a null value is a row of nulls."""

    def decode(self, records: RecordColumns) -> Decoded:
        """The values of these records as columns."""
        ...


class Reader(Protocol):
    """Reads values that were written in one way."""

    def read(self, arena: Bytes, at: Longs, size: Longs) -> Decoded: ...


def read_parts(
    schema: pa.Schema, readers: Iterable[tuple[NDArray[np.intp], Reader]], arena: Bytes, at: Longs, size: Longs
) -> Decoded:
    """Rows that were written in several ways, each read by its own reader; together they are every row once."""
    parts = [(rows, reader.read(arena, at[rows], size[rows])) for rows, reader in readers]
    order = np.empty(len(at), np.int64)
    order[np.concatenate([rows for rows, _ in parts] or [np.empty(0, np.intp)])] = np.arange(len(at))
    broken = {int(rows[row]): reason for rows, part in parts for row, reason in part.broken.items()}
    columns = [
        pa.concat_arrays([part.columns[index] for _, part in parts] or [pa.nulls(0, field.type)]).take(pa.array(order))
        for index, field in enumerate(schema)
    ]
    return Decoded(columns, broken)


def one_by_one(
    schema: pa.Schema, row_of: Callable[[bytes], list[Any]], arena: Bytes, at: Longs, size: Longs
) -> Decoded:
    """Values that a library reads, each by itself; `row_of` gives a row or raises `DoesNotFit`."""
    nothing: list[Any] = [None] * len(schema)
    rows: list[list[Any]] = []
    broken: dict[int, str] = {}
    for row, (start, count) in enumerate(zip(at.tolist(), size.tolist(), strict=True)):
        found = nothing
        if count >= 0:
            try:
                found = row_of(arena[start : start + count].tobytes())
            except DoesNotFit as error:
                broken[row] = str(error)
        rows.append(found)
    return Decoded([pa.array([row[index] for row in rows], field.type) for index, field in enumerate(schema)], broken)


class Refusal:
    """Reads nothing, and says why of every value that is not null."""

    def __init__(self, schema: pa.Schema, reason: str) -> None:
        self._schema = schema
        self._reason = reason

    def read(self, arena: Bytes, at: Longs, size: Longs) -> Decoded:  # noqa: ARG002 (it looks at no value)
        """Nulls, and the one reason."""
        columns = [pa.nulls(len(at), field.type) for field in self._schema]
        return Decoded(columns, dict.fromkeys(np.flatnonzero(size >= 0).tolist(), self._reason))


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
        raise DoesNotFit(f"field {name!r} is of type {type(value).__name__}, which is not {kind}")
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
        return ((value if value.tzinfo else value.replace(tzinfo=UTC)) - EPOCH) // MICROSECOND
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
