"""Keys of any columns as spans of bytes that are equal if and only if the keys are, and back.

For each column a byte says whether the cell is there; then comes the cell, with its length if that can vary. A key's
bytes are never a prefix of another's of the same columns.

Cells of nested types (rows, lists) go through Python one by one: such keys are rare.
"""

import math
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from headrace.pipelines.columns.arrow import spans, validity
from headrace.pipelines.keyed.loops import (
    Bytes,
    Flags,
    Longs,
    copy_spans,
    group,
    order_ties,
    read_fixed,
    read_sizes,
    write_fixed,
    write_spans,
)
from headrace.pipelines.keyed.operator import BadKey


@dataclass(frozen=True)
class Keys:
    """Keys with their hashes; `ends[i]` is where the bytes of key i end, and they begin where those of i - 1 end."""

    hashes: Longs
    ends: Longs
    arena: Bytes

    def __len__(self) -> int:
        return len(self.hashes)

    @property
    def begins(self) -> Longs:
        """Where the bytes of each key begin."""
        begins = np.zeros(len(self.ends), np.int64)
        begins[1:] = self.ends[:-1]
        return begins

    def take(self, places: Longs) -> "Keys":
        """These of the keys, in that order."""
        begins, ends = self.begins[places], self.ends[places]
        taken = np.empty(len(places), np.int64)
        arena = np.empty(int((ends - begins).sum()), np.uint8)
        copy_spans(self.arena, begins, ends, arena, taken)
        return Keys(self.hashes[places], taken, arena)


def check_types(schema: pa.Schema) -> None:
    """`BadKey` for a column that cannot be part of a key."""
    for field in schema:
        if not (_width(field.type) is not None or _is_spans(field.type) or is_comparable(field.type)):
            raise BadKey(f"{field.name!r} is {field.type}, which cannot be compared: take a field of it as the key")


def join_keys(parts: Sequence[Keys]) -> Keys:
    """The keys of all parts, one behind the other."""
    if len(parts) == 1:
        return parts[0]
    shifts = np.cumsum([0, *(len(part.arena) for part in parts)])
    ends = [part.ends + shift for part, shift in zip(parts, shifts, strict=False)]
    arena = np.concatenate([part.arena for part in parts])
    return Keys(np.concatenate([part.hashes for part in parts]), np.concatenate(ends), arena)


def encode(columns: pa.RecordBatch, hashes: Longs) -> Keys:
    """The keys of all rows."""
    count = columns.num_rows
    cells = [_cells(column) for column in columns.columns]
    sizes = np.zeros(count, np.int64)
    for cell in cells:
        sizes += cell.sizes()
    ends = np.cumsum(sizes)
    at = ends - sizes
    arena = np.empty(int(ends[-1]) if count else 0, np.uint8)
    for cell in cells:
        cell.write(arena, at)
    return Keys(hashes, ends, arena)


def decode(keys: Keys, schema: pa.Schema) -> pa.RecordBatch:
    """The columns that the keys were made of."""
    at = keys.begins.copy()
    columns = [_read(keys.arena, at, field.type) for field in schema]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def distinct(keys: Keys) -> tuple[Keys, Longs]:
    """The distinct keys, in order, and for each given key its number among them."""
    numbers = np.empty(len(keys), np.int64)
    first = np.empty(len(keys), np.int64)
    begins = keys.begins
    count = group(keys.hashes, begins, keys.ends, keys.arena, numbers, first)
    first = first[:count]
    order = first[np.argsort(keys.hashes[first])]
    order_ties(order, keys.hashes, begins, keys.ends, keys.arena)
    ranks = np.empty(count, np.int64)
    ranks[numbers[order]] = np.arange(count)
    return keys.take(order), ranks[numbers]


@dataclass(frozen=True)
class _Fixed:
    source: Bytes
    width: int
    valid: Flags

    def sizes(self) -> Longs:
        return 1 + self.valid * np.int64(self.width)

    def write(self, arena: Bytes, at: Longs) -> None:
        write_fixed(arena, at, self.source, self.width, self.valid)


@dataclass(frozen=True)
class _Spans:
    source: Bytes
    ends: Longs
    valid: Flags

    def sizes(self) -> Longs:
        return np.asarray(1 + self.valid * (4 + np.diff(self.ends)), np.int64)

    def write(self, arena: Bytes, at: Longs) -> None:
        write_spans(arena, at, self.source, self.ends, self.valid)


def _cells(column: pa.Array) -> _Fixed | _Spans:
    kind = column.type
    if pa.types.is_dictionary(kind):
        column = column.dictionary_decode()
        kind = column.type
    valid = np.asarray(column.is_valid().to_numpy(zero_copy_only=False), bool)
    if pa.types.is_boolean(kind):
        return _Fixed(np.frombuffer(column.fill_null(False).cast(pa.uint8()).buffers()[1], np.uint8), 1, valid)
    if pa.types.is_null(kind):
        return _Fixed(_buffer(None, 0, 0), 0, valid)
    if pa.types.is_floating(kind):
        column = _normal(column)
    if (width := _width(kind)) is not None:
        return _Fixed(_buffer(column.buffers()[1], column.offset * width, len(column) * width), width, valid)
    if _is_spans(kind):
        column = column.cast(pa.binary() if pa.types.is_string(kind) else pa.large_binary()).cast(pa.large_binary())
    else:
        column = pa.array([cell_to_bytes(cell, kind) for cell in column], pa.large_binary())
    _, offsets, data = column.buffers()
    ends = _buffer(offsets, column.offset * 8, (len(column) + 1) * 8).view(np.int64)
    source = _buffer(data, 0, 0 if data is None else data.size)
    return _Spans(source, ends, valid)


def _normal(column: pa.Array) -> pa.Array:
    """Floats of which equal ones have equal bits: one NaN, and no -0.0."""
    values = column.fill_null(0).to_numpy(zero_copy_only=False) + column.type.to_pandas_dtype()(0)
    values[np.isnan(values)] = np.nan
    return pa.array(values, column.type)


def _buffer(buffer: pa.Buffer | None, begin: int, size: int) -> Bytes:
    if buffer is None or not size:
        return np.frombuffer(bytes(size), np.uint8)
    return np.frombuffer(buffer, np.uint8)[begin : begin + size]


def _read(arena: Bytes, at: Longs, kind: pa.DataType) -> pa.Array:
    width = _width(kind)
    if width is not None:
        target = np.zeros(len(at) * width, np.uint8)
        valid = np.empty(len(at), np.bool_)
        read_fixed(arena, at, target, width, valid)
        if pa.types.is_boolean(kind):
            return pa.array(target.view(np.bool_), mask=~valid)
        if pa.types.is_null(kind):
            return pa.nulls(len(at))
        bits = validity(valid)
        return pa.Array.from_buffers(kind, len(valid), [bits, pa.py_buffer(target)])
    begins = np.empty(len(at), np.int64)
    sizes = np.empty(len(at), np.int64)
    read_sizes(arena, at, begins, sizes)
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        return spans(kind, arena, begins, sizes)
    cells = spans(pa.binary(), arena, begins, sizes)
    if _is_spans(kind):
        return cells.cast(pa.large_binary()).cast(kind)
    return pa.array([None if cell is None else cell_from_bytes(cell, kind) for cell in cells.to_pylist()], kind)


def _width(kind: pa.DataType) -> int | None:
    """How many bytes a cell has, if all have as many."""
    if pa.types.is_boolean(kind):
        return 1
    if pa.types.is_null(kind):
        return 0
    if pa.types.is_dictionary(kind) or pa.types.is_nested(kind):
        return None
    try:
        return int(kind.bit_width) // 8
    except ValueError:
        return None


def _is_spans(kind: pa.DataType) -> bool:
    return any(
        test(kind)
        for test in (pa.types.is_string, pa.types.is_binary, pa.types.is_large_string, pa.types.is_large_binary)
    )


_MISSING = b"\0"
_THERE = b"\1"


def is_comparable(kind: pa.DataType) -> bool:
    """Whether keys may have this nested type. A map has no order of its own, so it is none."""
    if pa.types.is_struct(kind):
        return all(is_comparable(field.type) for field in kind)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return is_comparable(kind.value_type)
    return not pa.types.is_nested(kind) and not pa.types.is_dictionary(kind)


def cell_to_bytes(cell: pa.Scalar, kind: pa.DataType) -> bytes | None:
    """A cell as bytes; None if it is null."""
    return _write_cell(cell, kind)[1:] if cell.is_valid else None


def cell_from_bytes(data: bytes, kind: pa.DataType) -> Any:
    """The way back, to what `pyarrow.array` takes."""
    return _read_cell(memoryview(_THERE + data), 0, kind)[0]


def _write_cell(cell: pa.Scalar, kind: pa.DataType) -> bytes:
    if not cell.is_valid:
        return _MISSING
    if pa.types.is_struct(kind):
        return _THERE + b"".join(_write_cell(cell[index], field.type) for index, field in enumerate(kind))
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        parts = [_write_cell(each, kind.value_type) for each in cell.values]
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


def _read_cell(data: memoryview, at: int, kind: pa.DataType) -> tuple[Any, int]:
    there = data[at] == 1
    at += 1
    if not there:
        return None, at
    if pa.types.is_struct(kind):
        row = {}
        for field in kind:
            row[field.name], at = _read_cell(data, at, field.type)
        return row, at
    size = int.from_bytes(data[at : at + 4], "little")
    at += 4
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        cells = []
        for _ in range(size):
            cell, at = _read_cell(data, at, kind.value_type)
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
