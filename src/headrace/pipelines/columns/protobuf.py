"""Protobuf values to columns: bare messages, or in Confluent's framing, of one message type.

Scalar columns are read by the compiled walk. Where a wanted column is nested or repeated, the whole of the message is
read record by record by google.protobuf instead. Scalars that were not written are their default, or null where the
field has presence.
"""

from typing import Any

import numpy as np
import pyarrow as pa
from google.protobuf import message_factory
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import DecodeError, Message
from numpy.typing import NDArray

from headrace.pipelines.columns import protobuf_walk as walk
from headrace.pipelines.columns.cells import Cells, Faults, column, without
from headrace.pipelines.columns.decoding import Decoded, Reader, Refusal, fit, one_by_one, read_parts
from headrace.pipelines.columns.framing import NULL, REASONS, split_frames, strip_indexes
from headrace.pipelines.columns.json_exact import DoesNotFit
from headrace.pipelines.columns.protobuf_schema import Table, check_columns, find_message, is_map, is_repeated, table_of
from headrace.pipelines.columns.records import RecordColumns
from headrace.pipelines.columns.walk import Bytes, Longs


class ProtobufDecoder:
    """Reads one message per value; `descriptor_set` is what `protoc --descriptor_set_out` writes."""

    def __init__(self, schema: pa.Schema, *, descriptor_set: bytes, message: str, is_framed: bool = True) -> None:
        self._schema = schema
        found = find_message(descriptor_set, message)
        self._path = np.array(found.path, np.int64)
        self._is_framed = is_framed
        descriptor = found.descriptor
        self._reader: Reader
        if check_columns(descriptor, schema):
            self._reader = LibraryReader(descriptor, schema)
        else:
            self._reader = _WalkReader(table_of(descriptor, schema), schema)

    def decode(self, records: RecordColumns) -> Decoded:
        """The wanted fields of every message."""
        at, size = np.ascontiguousarray(records.value_at), np.ascontiguousarray(records.value_size)
        if not self._is_framed:
            return self._reader.read(records.arena, at, size)
        ids, body_at, body_size = np.empty_like(at), np.empty_like(at), np.empty_like(at)
        split_frames(records.arena, at, size, ids, body_at, body_size)
        strip_indexes(records.arena, ids, body_at, body_size, self._path)
        good = ids >= NULL
        if good.all():
            return self._reader.read(records.arena, body_at, body_size)
        readers: list[tuple[NDArray[np.intp], Reader]] = [(np.flatnonzero(good), self._reader)]
        codes = np.unique(ids[~good]).tolist()
        readers += [(np.flatnonzero(ids == code), Refusal(self._schema, REASONS[code])) for code in codes]
        return read_parts(self._schema, readers, records.arena, body_at, body_size)


class _WalkReader:
    def __init__(self, table: Table, schema: pa.Schema) -> None:
        self._table = table
        self._schema = schema

    def read(self, arena: Bytes, at: Longs, size: Longs) -> Decoded:
        table = self._table
        cells = Cells(len(self._schema), len(at))
        failed = walk.walk_protobuf(
            arena, at, size, table.fields,
            cells.found, cells.numbers, cells.at, cells.size, cells.fault, cells.where,
        )  # fmt: skip
        faults = cells.read_faults(walk.REASONS, table.names or ("",)) if failed else Faults()
        was_read = (size >= 0) & (cells.fault == 0)
        for leaf, has_default in enumerate(table.has_default):
            if has_default:  # every cell begins as zero, false and empty, which are the defaults
                cells.found[leaf, was_read] = 1
        columns = [
            column(arena, cells, leaf, table.meanings[leaf], field.type, faults)
            for leaf, field in enumerate(self._schema)
        ]
        return Decoded([without(array, faults) for array in columns], dict(faults))


class LibraryReader:
    """Reads the wanted columns of one message type."""

    def __init__(self, descriptor: Any, schema: pa.Schema) -> None:
        self._schema = schema
        self._class = message_factory.GetMessageClass(descriptor)
        self._fields = [descriptor.fields_by_name[field.name] for field in schema]

    def read(self, arena: Bytes, at: Longs, size: Longs) -> Decoded:
        """The wanted fields of every message."""
        return one_by_one(self._schema, self._row, arena, at, size)

    def _row(self, data: bytes) -> list[Any]:
        message = self._class()
        try:
            message.ParseFromString(data)
            return [
                value_of(message, field, column.type, column.name)
                for field, column in zip(self._fields, self._schema, strict=True)
            ]
        except (DecodeError, UnicodeDecodeError) as error:
            raise DoesNotFit(f"the bytes are not a message {message.DESCRIPTOR.full_name} ({error})") from error


def value_of(message: Message, field: FieldDescriptor, kind: pa.DataType, name: str) -> Any:
    """A field as `pyarrow.array` takes it; null where it has presence and was not written."""
    if is_map(field):
        parts = field.message_type.fields_by_name
        return [
            (_one(key, parts["key"], kind.key_type, name), _one(item, parts["value"], kind.item_type, f"{name}.{key}"))
            for key, item in getattr(message, field.name).items()
        ]
    if is_repeated(field):
        return [_one(item, field, kind.value_type, name) for item in getattr(message, field.name)]
    if field.has_presence and not message.HasField(field.name):
        return None
    return _one(getattr(message, field.name), field, kind, name)


def _one(value: Any, field: FieldDescriptor, kind: pa.DataType, name: str) -> Any:
    if field.message_type is not None:
        if pa.types.is_struct(kind):
            inner = field.message_type.fields_by_name
            return {part.name: value_of(value, inner[part.name], part.type, f"{name}.{part.name}") for part in kind}
        micros = value.seconds * 1_000_000 + value.nanos // 1000
        if not -(2**63) <= micros < 2**63:
            raise DoesNotFit(f"field {name!r} is {value.seconds} s, too large for a time")
        return micros
    if field.enum_type is not None and pa.types.is_string(kind):
        named = field.enum_type.values_by_number.get(value)
        return named.name if named is not None else str(value)
    return fit(value, kind, name)
