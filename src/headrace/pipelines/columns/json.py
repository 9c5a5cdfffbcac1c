"""JSON values to columns: the compiled walk, what is left of each column after it, and the exact reader for the rest.

The walk does all the common forms. A few are finished per column, still without Python per record: doubles of many
digits by Arrow's exact parser, decimals by the loops in `decimals`, structs by the same walk over where they stand,
lists by Arrow's JSON reader over their text alone. What is then still unread goes record by record through
`json_exact`, which decides, and says why when a record does not decode.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as arrow_json
from numpy.typing import NDArray

from headrace.pipelines.columns import json_walk as walk
from headrace.pipelines.columns.arrow import booleans, fixed, replace_rows, spans, validity
from headrace.pipelines.columns.cells import Cells
from headrace.pipelines.columns.decimals import decimals_from_text
from headrace.pipelines.columns.decoding import Decoded
from headrace.pipelines.columns.json_exact import DoesNotFit, convert, read_object
from headrace.pipelines.columns.json_grammar import QUOTE
from headrace.pipelines.columns.json_text import ABSENT, DIGITS, gather_text
from headrace.pipelines.columns.records import RecordColumns
from headrace.pipelines.columns.walk import Bytes, Longs

EPOCH_UNITS = {"s": 1_000_000, "ms": 1_000, "us": 1}
_LOWEST, _HIGHEST = -(2**63), 2**63 - 1


class JsonDecoder:
    """Reads one object per record into the columns of a schema.

    The walk and the exact reader are what another form of named values has of its own.
    """

    walk = staticmethod(walk.walk_json)
    read_one = staticmethod(read_object)

    def __init__(self, schema: pa.Schema, *, epoch_unit: str | None = None) -> None:
        """`epoch_unit` (s, ms, us) allows numbers where the schema wants a time."""
        self.schema = schema
        self._epoch_micros = EPOCH_UNITS[epoch_unit] if epoch_unit else 0
        names = [field.name.encode() for field in schema]
        self._names = np.frombuffer(b"".join(names) or b"\0", np.uint8)
        self._name_ends = np.cumsum([0, *map(len, names)], dtype=np.int64)
        self._wants = np.array([_want(field.type) for field in schema], np.int64)
        self._bounds = np.array([_bounds(field.type) for field in schema], np.int64).reshape(-1, 2)
        self._structs = {
            index: type(self)(pa.schema(list(field.type)), epoch_unit=epoch_unit)
            for index, field in enumerate(schema)
            if pa.types.is_struct(field.type) and field.type.num_fields
        }

    def decode(self, records: RecordColumns) -> Decoded:
        """The wanted fields of every record's object."""
        columns, cells = self.read_objects(records.arena, records.value_at, records.value_size)
        if not cells.fault.any():
            return Decoded(columns)
        return self._mend(records, columns, np.flatnonzero(cells.fault))

    def read_objects(self, arena: Bytes, at: Longs, size: Longs) -> tuple[list[pa.Array], Cells]:
        """The columns of these objects, and where the walk had to leave one to others."""
        cells = Cells(len(self.schema), len(at))
        self.walk(
            arena,
            np.ascontiguousarray(at),
            np.ascontiguousarray(size),
            self._names,
            self._name_ends,
            self._wants,
            self._bounds,
            self._epoch_micros,
            cells.found,
            cells.numbers,
            cells.at,
            cells.size,
            cells.numbers.view(np.float64),
            cells.fault,
        )
        return [self._column(arena, cells, index) for index in range(len(self.schema))], cells

    # --- columns

    def _column(self, arena: Bytes, cells: Cells, index: int) -> pa.Array:
        kind: pa.DataType = self.schema.field(index).type
        state, numbers = cells.found[index], cells.numbers[index]
        is_there = state != ABSENT
        match self._wants[index]:
            case walk.LONG:
                return fixed(kind, numbers.astype(kind.to_pandas_dtype(), copy=False), is_there)
            case walk.DOUBLE:
                values = _doubles(arena, cells, index)
                if not pa.types.is_float32(kind):
                    return fixed(kind, values, cells.found[index] != ABSENT)
                with np.errstate(over="ignore"):
                    floats = values.astype(np.float32)
                cells.fault[np.isinf(floats) & (cells.found[index] != ABSENT)] = 1
                return fixed(kind, floats, cells.found[index] != ABSENT)
            case walk.BOOLEAN:
                return booleans(numbers != 0, is_there)
            case walk.TIMESTAMP:
                return fixed(kind, numbers, is_there)
            case walk.DATE:
                return fixed(kind, numbers.astype(np.int32), is_there)
            case walk.NESTED if index in self._structs:
                return self._struct(arena, cells, index)
            case walk.NESTED:
                return self._nested(arena, cells, index)
        text = _text(arena, cells, index)
        if pa.types.is_string(kind):
            return text
        decimals, unread = decimals_from_text(text, kind)
        cells.fault[unread] = 1
        return decimals

    def _struct(self, arena: Bytes, cells: Cells, index: int) -> pa.Array:
        inner, is_there = self._structs[index], cells.found[index] != ABSENT
        columns, found = inner.read_objects(arena, cells.at[index], np.where(is_there, cells.size[index], -1))
        unread = found.fault != 0
        for place, field in enumerate(inner.schema):
            if pa.types.is_string(field.type):
                # What is no string is spelt anew inside an object, by the exact reader.
                rows = np.flatnonzero(found.found[place] != ABSENT)
                unread[rows[arena[found.at[place][rows] - 1] != QUOTE]] = True
        cells.fault[unread] = 1
        fields = list(self.schema.field(index).type)
        return pa.StructArray.from_arrays(columns, fields=fields, mask=pa.array(~is_there))

    def _nested(self, arena: Bytes, cells: Cells, index: int) -> pa.Array:
        field = self.schema.field(index)
        state = cells.found[index]
        rows = np.flatnonzero(state != ABSENT)
        if not len(rows):
            return pa.nulls(len(state), field.type)
        sizes = np.where(state == ABSENT, -1, cells.size[index])
        if not _arrow_reads(field.type):
            cells.fault[rows] = 1
            return pa.nulls(len(state), field.type)
        texts = spans(pa.binary(), arena, cells.at[index], sizes).take(pa.array(rows))
        read, bad = _salvage(texts, field.type, lambda part: _read_nested(part, field))
        cells.fault[rows[bad]] = 1
        places = np.full(len(state), -1)
        places[rows] = np.arange(len(rows))
        return read.take(pa.array(places, mask=places < 0))

    # --- what the walk could not do

    def _mend(self, records: RecordColumns, columns: list[pa.Array], rows: NDArray[np.intp]) -> Decoded:
        fields = {field.name: field.type for field in self.schema}
        values: dict[str, list[Any]] = {name: [] for name in fields}
        reasons: dict[int, str] = {}
        for row in rows.tolist():
            start = records.value_at[row]
            data = records.arena[start : start + records.value_size[row]].tobytes()
            try:
                read = self.read_one(data, fields, self._epoch_micros)
            except DoesNotFit as error:
                reasons[row] = str(error)
                read = dict.fromkeys(fields)
            for name, value in read.items():
                values[name].append(value)
        mended = [
            replace_rows(column, rows, pa.array(values[field.name], field.type))
            for column, field in zip(columns, self.schema, strict=True)
        ]
        return Decoded(mended, reasons)


def _doubles(arena: Bytes, cells: Cells, index: int) -> NDArray[np.float64]:
    """A column of doubles, the ones with many digits read exactly by Arrow."""
    values: NDArray[np.float64] = cells.numbers[index].view(np.float64)
    rows = np.flatnonzero(cells.found[index] == DIGITS)
    if len(rows):
        text = spans(pa.string(), arena, cells.at[index][rows], cells.size[index][rows])
        read = pc.cast(text, pa.float64()).to_numpy()
        values[rows] = read
        overflowed = rows[np.isinf(read)]
        cells.fault[overflowed] = 1
        cells.found[:, overflowed] = ABSENT
    return values


def _text(arena: Bytes, cells: Cells, index: int) -> pa.StringArray:
    state = cells.found[index]
    sizes = np.where(state == ABSENT, 0, cells.size[index])
    total = int(sizes.sum())
    if total > 2**31 - 1:
        raise OverflowError(f"{total} bytes in one column of one batch: Arrow holds 2 GiB")
    out = np.empty(max(total, 1), np.uint8)
    ends = np.empty(len(state) + 1, np.int32)
    written = gather_text(arena, cells.at[index], cells.size[index], state, ends, out, cells.fault)
    buffers = [validity(state != ABSENT), pa.py_buffer(ends), pa.py_buffer(out[:written])]
    return pa.Array.from_buffers(pa.string(), len(state), buffers)


def _read_nested(texts: pa.BinaryArray, field: pa.Field) -> pa.Array:
    """Values of one nested type from their JSON texts, by Arrow's reader, which wants an object on each line."""
    # No string in JSON holds a bare line break, so those between tokens may become spaces.
    flat = pc.replace_substring(pc.replace_substring(texts.cast(pa.string()), "\n", " "), "\r", " ")
    lines = pc.binary_join_element_wise('{"v":', flat, "}\n", "")
    data = pa.concat_arrays([lines]).buffers()[2]
    table = arrow_json.read_json(
        pa.BufferReader(data),
        read_options=arrow_json.ReadOptions(use_threads=False, block_size=max(data.size, 1)),
        parse_options=arrow_json.ParseOptions(
            explicit_schema=pa.schema([pa.field("v", field.type)]), unexpected_field_behavior="ignore"
        ),
    )
    if len(table) != len(texts):
        raise pa.ArrowInvalid("Arrow found another number of values")
    read = table["v"].combine_chunks()
    if _has_infinity(read):
        raise pa.ArrowInvalid("a number is too large for its type")
    return read


def _has_infinity(array: pa.Array) -> bool:
    """Whether a number somewhere inside was too large: Arrow reads it as infinity, which JSON cannot write."""
    if pa.types.is_floating(array.type):
        return bool(pc.any(pc.is_inf(array)).as_py())
    if pa.types.is_struct(array.type):
        return any(map(_has_infinity, array.flatten()))
    return bool(pa.types.is_nested(array.type)) and _has_infinity(array.flatten())


def _salvage(
    values: pa.Array, kind: pa.DataType, read: Callable[[pa.Array], pa.Array]
) -> tuple[pa.Array, NDArray[np.intp]]:
    """What `read` makes of the values, and the rows it cannot do, found by halving: a few must not slow the rest."""
    parts: list[pa.Array] = []
    bad: list[int] = []
    todo = [(0, len(values))]
    while todo:
        start, count = todo.pop()
        try:
            parts.append(read(values.slice(start, count)))
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError):
            if count == 1:
                bad.append(start)
                parts.append(pa.nulls(1, kind))
            else:
                half = count // 2
                todo += [(start + half, count - half), (start, half)]
    return pa.concat_arrays(parts), np.array(bad, np.intp)


def _arrow_reads(kind: pa.DataType) -> bool:
    """Whether Arrow's JSON reader takes what the exact reader takes; it reads times, bytes and decimals otherwise."""
    types = pa.types
    if types.is_struct(kind) or types.is_list(kind):
        return all(_arrow_reads(kind.field(index).type) for index in range(kind.num_fields))
    return any(check(kind) for check in (types.is_signed_integer, types.is_float64, types.is_boolean, types.is_string))


def _want(kind: pa.DataType) -> int:
    types = pa.types
    if types.is_integer(kind):
        return walk.LONG
    if types.is_float32(kind) or types.is_float64(kind):
        return walk.DOUBLE
    if types.is_boolean(kind):
        return walk.BOOLEAN
    if types.is_timestamp(kind):
        return walk.TIMESTAMP
    if types.is_date32(kind):
        return walk.DATE
    if types.is_nested(kind) or types.is_binary(kind):
        return walk.NESTED
    return walk.TEXT


def _bounds(kind: pa.DataType) -> tuple[int, int]:
    if not pa.types.is_integer(kind):
        return _LOWEST, _HIGHEST
    return -(2 ** (kind.bit_width - 1)), 2 ** (kind.bit_width - 1) - 1


def supported(kind: pa.DataType) -> bool:
    """Whether a column of this type can be read from JSON."""
    types = pa.types
    if types.is_map(kind):
        return bool(types.is_string(kind.key_type)) and supported(kind.item_type)
    if types.is_nested(kind):
        return (types.is_struct(kind) or types.is_list(kind)) and all(
            supported(kind.field(index).type) for index in range(kind.num_fields)
        )
    if types.is_timestamp(kind):
        return bool(kind.unit == "us")
    scalar = (
        types.is_signed_integer, types.is_float32, types.is_float64, types.is_boolean, types.is_string,
        types.is_binary, types.is_date32, types.is_decimal128,
    )  # fmt: skip
    return any(check(kind) for check in scalar)


__all__ = ["EPOCH_UNITS", "JsonDecoder", "convert", "supported"]
