"""The protobuf decoder against google.protobuf: every scalar type, presence, oneofs, and bytes that were altered."""

from typing import Any

import pyarrow as pa
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import DecodeError
from hypothesis import given
from hypothesis import strategies as st

from headrace.pipelines.columns.protobuf import ProtobufDecoder
from tests.value_columns import rows_of, value_columns

F = descriptor_pb2.FieldDescriptorProto
i32, i64 = st.integers(-(2**31), 2**31 - 1), st.integers(-(2**63), 2**63 - 1)
u32, u64 = st.integers(0, 2**32 - 1), st.integers(0, 2**64 - 1)
SCALARS: list[tuple[str, int, pa.DataType, st.SearchStrategy[Any]]] = [
    ("double", F.TYPE_DOUBLE, pa.float64(), st.floats(allow_nan=False)),
    ("float", F.TYPE_FLOAT, pa.float32(), st.floats(width=32, allow_nan=False)),
    ("int64", F.TYPE_INT64, pa.int64(), i64),
    ("uint64", F.TYPE_UINT64, pa.decimal128(20, 0), u64),
    ("int32", F.TYPE_INT32, pa.int32(), i32),
    ("fixed64", F.TYPE_FIXED64, pa.decimal128(20, 0), u64),
    ("fixed32", F.TYPE_FIXED32, pa.int64(), u32),
    ("bool", F.TYPE_BOOL, pa.bool_(), st.booleans()),
    ("string", F.TYPE_STRING, pa.string(), st.text(st.characters(codec="utf-8"), max_size=10)),
    ("bytes", F.TYPE_BYTES, pa.binary(), st.binary(max_size=10)),
    ("uint32", F.TYPE_UINT32, pa.int64(), u32),
    ("enum", F.TYPE_ENUM, pa.string(), st.sampled_from([0, 1, -5, 77])),
    ("sfixed32", F.TYPE_SFIXED32, pa.int32(), i32),
    ("sfixed64", F.TYPE_SFIXED64, pa.int64(), i64),
    ("sint32", F.TYPE_SINT32, pa.int32(), i32),
    ("sint64", F.TYPE_SINT64, pa.int64(), i64),
]
ENUM = {0: "NONE", 1: "ONE", -5: "MINUS_FIVE"}


def descriptors() -> descriptor_pb2.FileDescriptorSet:
    files = descriptor_pb2.FileDescriptorSet()
    file = files.file.add(name="t.proto", package="t", syntax="proto3")
    enum = file.enum_type.add(name="E")
    for number, name in ENUM.items():
        enum.value.add(name=name, number=number)
    file.message_type.add(name="Other").field.add(name="x", number=1, type=F.TYPE_INT32, label=F.LABEL_OPTIONAL)
    message = file.message_type.add(name="M")
    for number, (name, kind, _, _) in enumerate(SCALARS, 1):
        message.field.add(name=name, number=number, type=kind, label=F.LABEL_OPTIONAL)
    message.oneof_decl.add(name="choice")
    for number, (name, kind) in enumerate([("one", F.TYPE_INT32), ("two", F.TYPE_STRING), ("three", F.TYPE_BOOL)], 100):
        message.field.add(name=name, number=number, type=kind, label=F.LABEL_OPTIONAL, oneof_index=0)
    for number, (name, kind, _, _) in enumerate(SCALARS, 200):
        message.oneof_decl.add(name=f"_opt_{name}")
        index = len(message.oneof_decl) - 1
        message.field.add(name=f"opt_{name}", number=number, type=kind, label=F.LABEL_OPTIONAL, oneof_index=index,
                          proto3_optional=True)  # fmt: skip
    message.field.add(name="many", number=300, type=F.TYPE_INT32, label=F.LABEL_REPEATED)
    message.field.add(name="other", number=301, type=F.TYPE_MESSAGE, type_name=".t.Other", label=F.LABEL_OPTIONAL)
    message.field.add(name="texts", number=302, type=F.TYPE_STRING, label=F.LABEL_REPEATED)
    for field in message.field:
        if field.type == F.TYPE_ENUM:
            field.type_name = ".t.E"
    return files


FILES = descriptors()
POOL = descriptor_pool.DescriptorPool()
POOL.AddSerializedFile(FILES.file[0].SerializeToString())
MESSAGE = message_factory.GetMessageClass(POOL.FindMessageTypeByName("t.M"))
PLAIN = pa.schema(
    [(name, kind) for name, _, kind, _ in SCALARS]
    + [(f"opt_{name}", kind) for name, _, kind, _ in SCALARS]
    + [("one", pa.int32()), ("two", pa.string())]
)
NESTED = pa.schema([*PLAIN, ("many", pa.list_(pa.int32())), ("other", pa.struct([("x", pa.int64())])),
                    ("texts", pa.list_(pa.string()))])  # fmt: skip
DECODERS = {
    schema: ProtobufDecoder(schema, descriptor_set=FILES.SerializeToString(), message="t.M", is_framed=False)
    for schema in (PLAIN, NESTED)
}

fields = st.fixed_dictionaries(
    {},
    optional={name: maker for name, _, _, maker in SCALARS}
    | {f"opt_{name}": maker for name, _, _, maker in SCALARS}
    | {
        "many": st.lists(i32, max_size=3),
        "texts": st.lists(st.text(st.characters(codec="utf-8"), max_size=3), max_size=2),
        "other": st.builds(dict, x=i32),
    },
)
oneofs = st.sampled_from([{}, {"one": 0}, {"one": 5}, {"two": ""}, {"two": "é"}, {"three": True}])


@st.composite
def messages(draw: st.DrawFn) -> bytes:
    """A message; sometimes two in one, which merge, so that fields stand twice and oneofs change their minds."""
    parts = draw(st.integers(1, 2))
    return b"".join(MESSAGE(**draw(fields), **draw(oneofs)).SerializeToString() for _ in range(parts))


def expected(data: bytes | None, schema: pa.Schema) -> list[Any] | None:
    if data is None:
        return [None] * len(schema)
    message: Any = MESSAGE()
    try:
        message.ParseFromString(data)
    except DecodeError:
        return None
    return [_value(message, field.name) for field in schema]


def _value(message: Any, name: str) -> Any:
    field = MESSAGE.DESCRIPTOR.fields_by_name[name]
    if field.has_presence and not message.HasField(name):
        return None
    value = getattr(message, name)
    if name in ("many", "texts"):
        return list(value)
    if name == "other":
        return {"x": value.x}
    return ENUM.get(value, str(value)) if field.enum_type is not None else value


@given(st.lists(st.none() | messages(), max_size=4), st.sampled_from([PLAIN, NESTED]))
def test_what_google_writes_is_read(data: list[bytes | None], schema: pa.Schema) -> None:
    decoded = DECODERS[schema].decode(value_columns(data))
    assert decoded.broken == {}
    assert rows_of(decoded) == [expected(value, schema) for value in data]


def has_nan(row: list[Any]) -> bool:
    return any(value != value for value in row)


@given(messages(), st.data(), st.sampled_from([PLAIN, PLAIN, PLAIN, NESTED]))
def test_altered_bytes(message: bytes, data: st.DataObject, schema: pa.Schema) -> None:
    raw = bytearray(message + data.draw(st.binary(max_size=6)))
    for _ in range(data.draw(st.integers(0, 3)) if raw else 0):
        raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    raw = raw[: data.draw(st.integers(0, len(raw)) | st.just(len(raw)))]
    decoded = DECODERS[schema].decode(value_columns([message, bytes(raw), message]))
    rows = rows_of(decoded)
    assert rows[0] == rows[2] == expected(message, schema)
    right = expected(bytes(raw), schema)
    if right is None and 1 not in decoded.broken:
        return  # the library also looks into messages that nobody wants here
    assert (1 in decoded.broken) == (right is None)
    if right is None:
        assert rows[1] == [None] * len(schema)
    elif not has_nan(right):
        assert rows[1] == right
