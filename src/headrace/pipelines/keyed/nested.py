"""Cells of nested types (rows, lists) as bytes that are equal if and only if the cells are, and back.

Cell by cell in Python: such keys are rare, and what they cost is seen by who uses them.
"""

import math
import struct
from typing import Any

import pyarrow as pa

_MISSING = b"\0"
_THERE = b"\1"


def is_comparable(kind: pa.DataType) -> bool:
    """Whether keys may have this nested type. A map has no order of its own, so it is none."""
    if pa.types.is_struct(kind):
        return all(is_comparable(field.type) for field in kind)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return is_comparable(kind.value_type)
    return not pa.types.is_nested(kind) and not pa.types.is_dictionary(kind)


def to_bytes(cell: pa.Scalar, kind: pa.DataType) -> bytes | None:
    """A cell as bytes; None if it is null."""
    return _written(cell, kind)[1:] if cell.is_valid else None


def from_bytes(data: bytes, kind: pa.DataType) -> Any:
    """The way back, to what `pyarrow.array` takes."""
    return _read(memoryview(_THERE + data), 0, kind)[0]


def _written(cell: pa.Scalar, kind: pa.DataType) -> bytes:
    if not cell.is_valid:
        return _MISSING
    if pa.types.is_struct(kind):
        return _THERE + b"".join(_written(cell[index], field.type) for index, field in enumerate(kind))
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        parts = [_written(each, kind.value_type) for each in cell.values]
        return _THERE + len(parts).to_bytes(4, "little") + b"".join(parts)
    body = _leaf(cell, kind)
    return _THERE + len(body).to_bytes(4, "little") + body


def _leaf(cell: pa.Scalar, kind: pa.DataType) -> bytes:
    if pa.types.is_floating(kind):
        value = float(cell.as_py())
        return struct.pack("<d", math.nan if math.isnan(value) else value + 0.0)
    if pa.types.is_temporal(kind):
        return str(cell.value).encode()
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return str(cell.as_py()).encode()
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        return bytes(cell.as_py())
    return str(cell.as_py()).encode()


def _read(data: memoryview, at: int, kind: pa.DataType) -> tuple[Any, int]:
    there = data[at] == 1
    at += 1
    if not there:
        return None, at
    if pa.types.is_struct(kind):
        row = {}
        for field in kind:
            row[field.name], at = _read(data, at, field.type)
        return row, at
    size = int.from_bytes(data[at : at + 4], "little")
    at += 4
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        cells = []
        for _ in range(size):
            cell, at = _read(data, at, kind.value_type)
            cells.append(cell)
        return cells, at
    return _value(bytes(data[at : at + size]), kind), at + size


def _value(body: bytes, kind: pa.DataType) -> Any:
    if pa.types.is_floating(kind):
        return struct.unpack("<d", body)[0]
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        return body
    text = body.decode()
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return text
    if pa.types.is_boolean(kind):
        return text == "True"
    if pa.types.is_temporal(kind):
        wide = pa.int32() if kind.bit_width == 32 else pa.int64()
        return pa.scalar(int(text), wide).cast(kind).as_py()
    if pa.types.is_decimal(kind):
        return pa.scalar(text).cast(kind).as_py()
    return int(text)
