"""Messages read one by one by google.protobuf: for columns that are nested, repeated, or of a closed enum."""

from typing import Any

import pyarrow as pa
from google.protobuf import message_factory
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import DecodeError, Message

from headrace.pipelines.columns.decoding import Decoded
from headrace.pipelines.columns.fitting import fit
from headrace.pipelines.columns.groups import one_by_one
from headrace.pipelines.columns.json_exact import DoesNotFit
from headrace.pipelines.columns.protobuf_schema import is_map, is_repeated
from headrace.pipelines.columns.walk import Bytes, Longs


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
            raise DoesNotFit(f"the bytes are no message {message.DESCRIPTOR.full_name} ({error})") from error


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
