"""Protobuf: framing, what the descriptor set must hold, nested and repeated columns, proto2, groups."""

from datetime import UTC, datetime
from decimal import Decimal

import pyarrow as pa
import pytest
from google.protobuf import descriptor_pb2, timestamp_pb2

from headrace.pipelines.columns.protobuf import ProtobufDecoder
from headrace.pipelines.errors import PipelineError
from tests.value_columns import rows_of, value_columns

F = descriptor_pb2.FieldDescriptorProto


def descriptors():
    files = descriptor_pb2.FileDescriptorSet()
    timestamp_pb2.DESCRIPTOR.CopyToProto(files.file.add())
    new = files.file.add(name="n.proto", package="n", syntax="proto3", dependency=["google/protobuf/timestamp.proto"])
    outer = new.message_type.add(name="Outer")
    outer.field.add(name="id", number=1, type=F.TYPE_UINT64, label=F.LABEL_OPTIONAL)
    outer.field.add(name="at", number=2, type=F.TYPE_MESSAGE, label=F.LABEL_OPTIONAL,
                    type_name=".google.protobuf.Timestamp")  # fmt: skip
    entry = outer.nested_type.add(name="CountsEntry")
    entry.field.add(name="key", number=1, type=F.TYPE_STRING, label=F.LABEL_OPTIONAL)
    entry.field.add(name="value", number=2, type=F.TYPE_INT32, label=F.LABEL_OPTIONAL)
    entry.options.map_entry = True
    outer.field.add(name="counts", number=3, type=F.TYPE_MESSAGE, label=F.LABEL_REPEATED,
                    type_name=".n.Outer.CountsEntry")  # fmt: skip
    inner = outer.nested_type.add(name="Inner")
    inner.field.add(name="text", number=1, type=F.TYPE_STRING, label=F.LABEL_OPTIONAL)
    outer.field.add(name="inners", number=4, type=F.TYPE_MESSAGE, label=F.LABEL_REPEATED, type_name=".n.Outer.Inner")
    old = files.file.add(name="o.proto", package="o", syntax="proto2")
    enum = old.enum_type.add(name="Color")
    enum.value.add(name="RED", number=1)
    message = old.message_type.add(name="Old")
    message.field.add(name="n", number=1, type=F.TYPE_INT32, label=F.LABEL_OPTIONAL, default_value="9")
    message.field.add(name="color", number=2, type=F.TYPE_ENUM, label=F.LABEL_OPTIONAL, type_name=".o.Color")
    return files.SerializeToString()


FILES = descriptors()


def decode(schema, message, *values, framed=False):
    decoder = ProtobufDecoder(pa.schema(schema), descriptor_set=FILES, message=message, is_framed=framed)
    return decoder.decode(value_columns(values))


def test_confluent_framing_names_the_message_by_its_place():
    frame = b"\0\0\0\0\x07"
    data = [
        frame + b"\0" + b"\x08\x05",  # the first message, in short
        frame + b"\x02\0" + b"\x08\x06",  # the first message, in full
        frame + b"\x02\x02" + b"\x08\x07",  # the second
        frame + b"\x04\0\x02" + b"\x0a\x01x",  # the second inside the first
        frame + b"\x03",
        frame,
        b"\x08\x05",
        None,
    ]
    decoded = decode([("id", pa.int64())], "n.Outer", *data, framed=True)
    assert [row[0] for row in rows_of(decoded)] == [5, 6, None, None, None, None, None, None]
    words = {2: "another message", 3: "another message", 4: "place in its file", 5: "place in its file", 6: "too short"}
    assert set(decoded.broken) == set(words)
    assert all(word in decoded.broken[row] for row, word in words.items())
    decoded = decode([("text", pa.string())], "n.Outer.Inner", data[3], framed=True)
    assert rows_of(decoded) == [["x"]]


def test_nested_columns():
    data = b"\x08\x01\x12\x02\x08\x01\x1a\x05\x0a\x01k\x10\x05\x22\x03\x0a\x01t\x22\x00"
    schema = [
        ("id", pa.decimal128(20, 0)),
        ("at", pa.timestamp("us", "UTC")),
        ("counts", pa.map_(pa.string(), pa.int32())),
        ("inners", pa.list_(pa.struct([("text", pa.string())]))),
    ]
    decoded = decode(schema, "Outer", data, b"", b"\x12", None)
    assert rows_of(decoded) == [
        [Decimal(1), datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC), [("k", 5)], [{"text": "t"}, {"text": ""}]],
        [Decimal(0), None, [], []],
        [None] * 4,
        [None] * 4,
    ]
    assert "not a message n.Outer" in decoded.broken[2]


def test_proto2_has_presence_and_closed_enums():
    schema = [("n", pa.int32()), ("color", pa.string())]
    decoded = decode(schema, "o.Old", b"", b"\x08\x09\x10\x01", b"\x10\x05")
    assert rows_of(decoded) == [[None, None], [9, "RED"], [None, None]]
    assert rows_of(decode([("n", pa.int32())], "o.Old", b"", b"\x08\x09")) == [[None], [9]]


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"\x08", "cut short"),
        (b"\x08" + b"\x80" * 10, "cut short"),
        (b"\x12\x7f", "cut short"),
        (b"\x12" + b"\xff" * 9 + b"\x01", "cut short"),
        (b"\x15\0\0", "cut short"),
        (b"\0\0", "cannot be"),
        (b"\x0e", "cannot be"),
        (b"\xff\xff\xff\xff\xff\x01\0", "cannot be"),
        (b"\x0c", "group"),
        (b"\x2b\x08\x01", "group"),
        (b"\x2b\x34", "group"),
        (b"\x2b" * 200, "group"),
    ],
)
def test_what_is_no_protobuf(data, words):
    decoded = decode([("id", pa.int64())], "n.Outer", data)
    assert words in decoded.broken[0]
    assert rows_of(decoded) == [[None]]


def test_groups_and_unknown_fields_are_walked_over():
    decoded = decode(
        [("id", pa.int64())], "n.Outer", b"\x2b\x33\x08\x01\x34\x2c" + b"\x08\x03" + b"\xba\x3e\x02ab" + b"\x0d\1\1\1\1"
    )
    assert rows_of(decoded) == [[3]]


def test_a_number_too_large_for_its_column():
    decoded = decode([("id", pa.int64())], "n.Outer", b"\x08" + b"\xff" * 9 + b"\x01", b"\x08\x01")
    assert decoded.broken == {0: "field 'id' is 18446744073709551615, too large for int64"}
    assert rows_of(decoded) == [[None], [1]]


@pytest.mark.parametrize(
    ("schema", "message", "words"),
    [
        ([("id", pa.int64())], "n.Outre", "did you mean 'n.Outer'"),
        ([("idd", pa.int64())], "n.Outer", "no field 'idd': did you mean 'id'"),
        ([("id", pa.string())], "n.Outer", "column 'id' is string, but the field is uint64"),
        ([("at", pa.int64())], "n.Outer", "a message google.protobuf.Timestamp"),
        ([("inners", pa.string())], "n.Outer", "the field is repeated"),
        ([("counts", pa.list_(pa.string()))], "n.Outer", "the field is a map"),
        ([("inners", pa.list_(pa.struct([("txt", pa.string())])))], "n.Outer", "'inners.txt'"),
        ([("color", pa.bool_())], "o.Old", "the enum o.Color"),
    ],
)
def test_what_the_message_cannot_fill(schema, message, words):
    with pytest.raises(PipelineError) as caught:
        decode(schema, message)
    assert words in str(caught.value)


def test_descriptor_sets_that_cannot_be():
    with pytest.raises(PipelineError, match="not a FileDescriptorSet"):
        ProtobufDecoder(pa.schema([("a", pa.int8())]), descriptor_set=b"\xff", message="M")
    files = descriptor_pb2.FileDescriptorSet.FromString(FILES)
    del files.file[0]
    with pytest.raises(PipelineError, match="--include_imports"):
        ProtobufDecoder(pa.schema([("id", pa.int64())]), descriptor_set=files.SerializeToString(), message="n.Outer")
