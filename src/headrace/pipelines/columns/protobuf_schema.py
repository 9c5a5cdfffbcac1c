"""A message out of a descriptor set, and how its fields meet the wanted columns."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from google.protobuf import descriptor_pb2, descriptor_pool
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import DecodeError

from headrace.errors import nearest
from headrace.pipelines.columns import protobuf_walk as walk
from headrace.pipelines.columns.cells import Form, Meaning, fits
from headrace.pipelines.columns.walk import Longs
from headrace.pipelines.errors import PipelineError

TIMESTAMP = "google.protobuf.Timestamp"
_F = FieldDescriptor
# type: wire type, how it is read, what it means
_SCALARS: dict[int, tuple[int, int, Form]] = {
    _F.TYPE_DOUBLE: (walk.FIXED64, walk.BITS64, Form.DOUBLE),
    _F.TYPE_FLOAT: (walk.FIXED32, walk.UNSIGNED32, Form.SINGLE),
    _F.TYPE_INT64: (walk.VARINT, walk.BITS64, Form.WHOLE),
    _F.TYPE_UINT64: (walk.VARINT, walk.BITS64, Form.UNSIGNED),
    _F.TYPE_INT32: (walk.VARINT, walk.SIGNED32, Form.WHOLE),
    _F.TYPE_FIXED64: (walk.FIXED64, walk.BITS64, Form.UNSIGNED),
    _F.TYPE_FIXED32: (walk.FIXED32, walk.UNSIGNED32, Form.WHOLE),
    _F.TYPE_BOOL: (walk.VARINT, walk.TRUTH, Form.BOOLEAN),
    _F.TYPE_STRING: (walk.DELIMITED, walk.TEXT, Form.TEXT),
    _F.TYPE_BYTES: (walk.DELIMITED, walk.BLOB, Form.BYTES),
    _F.TYPE_UINT32: (walk.VARINT, walk.UNSIGNED32, Form.WHOLE),
    _F.TYPE_ENUM: (walk.VARINT, walk.SIGNED32, Form.SYMBOL),
    _F.TYPE_SFIXED32: (walk.FIXED32, walk.SIGNED32, Form.WHOLE),
    _F.TYPE_SFIXED64: (walk.FIXED64, walk.BITS64, Form.WHOLE),
    _F.TYPE_SINT32: (walk.VARINT, walk.ZIGZAG32, Form.WHOLE),
    _F.TYPE_SINT64: (walk.VARINT, walk.ZIGZAG64, Form.WHOLE),
}


@dataclass(frozen=True, slots=True)
class Message:
    """A message's descriptor, and its place in its file as Confluent's framing writes it."""

    descriptor: Any
    path: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Table:
    """What the walk needs of a message; `names` has the field of each of its rows."""

    fields: Longs
    names: tuple[str, ...]
    meanings: tuple[Meaning, ...]
    has_default: tuple[bool, ...]  # a scalar without presence, which is its default where it was not written


def find_message(descriptor_set: bytes, name: str) -> Message:
    """The message of this full name (or last part, if only one has it); raises `PipelineError`."""
    files = descriptor_pb2.FileDescriptorSet()
    try:
        files.ParseFromString(descriptor_set)
    except DecodeError as error:
        raise PipelineError(
            "the descriptor file is not a FileDescriptorSet: make it with protoc --include_imports --descriptor_set_out"
        ) from error
    paths = {full: path for file in files.file for full, path in _paths(file)}
    full = name if name in paths else _by_last_part(name, paths)
    pool = descriptor_pool.DescriptorPool()
    try:
        for file in files.file:
            pool.Add(file) if hasattr(pool, "Add") else pool.AddSerializedFile(file.SerializeToString())
        return Message(pool.FindMessageTypeByName(full), paths[full])
    except (KeyError, TypeError) as error:
        raise PipelineError(
            f"the descriptor file is not complete ({error}): make it with protoc --include_imports"
        ) from error


def _paths(file: descriptor_pb2.FileDescriptorProto) -> Iterable[tuple[str, tuple[int, ...]]]:
    def under(prefix: str, messages: Any, path: tuple[int, ...]) -> Iterable[tuple[str, tuple[int, ...]]]:
        for index, message in enumerate(messages):
            full = f"{prefix}.{message.name}" if prefix else message.name
            yield full, (*path, index)
            yield from under(full, message.nested_type, (*path, index))

    return under(file.package, file.message_type, ())


def _by_last_part(name: str, paths: dict[str, tuple[int, ...]]) -> str:
    ending = [full for full in paths if full.rpartition(".")[2] == name]
    if len(ending) == 1:
        return ending[0]
    hint = nearest(name, ending or paths, otherwise="it has no messages at all", likeness=0)
    raise PipelineError(f"the descriptor file has no one message {name!r}: {hint}")


def check_columns(message: Descriptor, wanted: Iterable[pa.Field], prefix: str = "") -> bool:
    """Refuse columns that the message cannot fill; whether they need the library, being nested, repeated or closed."""
    needs_library = False
    for column in wanted:
        field = message.fields_by_name.get(column.name)
        if field is None:
            hint = nearest(column.name, message.fields_by_name, otherwise="it has no fields at all", likeness=0)
            raise PipelineError(f"the message {message.full_name} has no field {prefix + column.name!r}: {hint}")
        needs_library |= _check(field, column.type, prefix + column.name)
    return needs_library


def _check(field: FieldDescriptor, kind: pa.DataType, name: str) -> bool:
    types = pa.types
    good = True
    if is_map(field):
        good = types.is_map(kind)
        if good:
            key, value = (field.message_type.fields_by_name[part] for part in ("key", "value"))
            _check(key, kind.key_type, name)
            _check(value, kind.item_type, name)
    elif is_repeated(field):
        good = types.is_list(kind)
        if good:
            _check_one(field, kind.value_type, name)
    else:
        return _check_one(field, kind, name)
    if not good:
        raise PipelineError(f"column {name!r} is {kind}, but the field is {'a map' if is_map(field) else 'repeated'}")
    return True


def _check_one(field: FieldDescriptor, kind: pa.DataType, name: str) -> bool:
    if field.message_type is not None:
        if pa.types.is_struct(kind):
            check_columns(field.message_type, kind, f"{name}.")
        elif not (pa.types.is_timestamp(kind) and field.message_type.full_name == TIMESTAMP):
            raise PipelineError(f"column {name!r} is {kind}, but the field is a message {field.message_type.full_name}")
        return True
    if not fits(_SCALARS[field.type][2], kind):
        raise PipelineError(f"column {name!r} is {kind}, but the field is {type_name(field)}")
    # A closed enum forgets numbers that it has no name for, as if the field had not been written.
    return field.enum_type is not None and bool(field.enum_type.is_closed)


def type_name(field: FieldDescriptor) -> str:
    """A scalar's type in protobuf's word."""
    if field.enum_type is not None:
        return f"the enum {field.enum_type.full_name}"
    return str(descriptor_pb2.FieldDescriptorProto.Type.Name(field.type)).removeprefix("TYPE_").lower()


def table_of(message: Descriptor, wanted: pa.Schema) -> Table:
    """The walk's table for columns that `check_columns` found to be plain."""
    leaves = {field.name: leaf for leaf, field in enumerate(wanted)}
    oneofs = {oneof.name: index for index, oneof in enumerate(message.oneofs)}
    rows, names = [], []
    for field in sorted(message.fields, key=lambda field: int(field.number)):
        wire, reading, _ = _SCALARS.get(field.type, (walk.DELIMITED, walk.IGNORED, None))
        oneof = oneofs[field.containing_oneof.name] if field.containing_oneof is not None else -1
        leaf = leaves.get(field.name, -1)
        checked = reading == walk.TEXT and (leaf >= 0 or not _allows_any_bytes(message))
        if leaf >= 0 or oneof >= 0 or checked:
            rows.append((field.number, wire, reading, leaf, oneof))
            names.append(field.name)
    found = [message.fields_by_name[column.name] for column in wanted]
    return Table(
        np.array(rows, np.int64).reshape(-1, 5),
        tuple(names),
        tuple(_meaning(field) for field in found),
        tuple(not field.has_presence for field in found),
    )


def _allows_any_bytes(message: Descriptor) -> bool:
    """Whether the file's strings are not checked when a message is parsed, as in proto2."""
    proto = descriptor_pb2.FileDescriptorProto()
    message.file.CopyToProto(proto)
    return proto.syntax in ("", "proto2")


def _meaning(field: FieldDescriptor) -> Meaning:
    symbols: tuple[tuple[int, str], ...] = ()
    if field.enum_type is not None:
        symbols = tuple((number, value.name) for number, value in field.enum_type.values_by_number.items())
    return Meaning(_SCALARS[field.type][2], field.name, symbols=symbols)


def is_repeated(field: FieldDescriptor) -> bool:
    """Whether the field is a list (or a map)."""
    flag = getattr(field, "is_repeated", None)
    return bool(flag) if flag is not None else field.label == FieldDescriptor.LABEL_REPEATED


def is_map(field: FieldDescriptor) -> bool:
    """Whether the field is a map, which is written as a list of entries."""
    return field.message_type is not None and bool(field.message_type.GetOptions().map_entry)
