"""Which decoder a format and its options make, and the sentence for every mistake."""

import json

import pyarrow as pa
import pytest
from google.protobuf import descriptor_pb2

from headrace.pipelines.columns.avro import AvroDecoder
from headrace.pipelines.columns.csv import CsvDecoder
from headrace.pipelines.columns.decoders import decoder_for, option_names
from headrace.pipelines.columns.json import JsonDecoder
from headrace.pipelines.columns.protobuf import ProtobufDecoder
from headrace.pipelines.errors import PipelineError
from tests.value_columns import rows_of, value_columns

SCHEMA = pa.schema([("a", pa.int64())])
WRITER = json.dumps({"type": "record", "name": "R", "fields": [{"name": "a", "type": "long"}]})


@pytest.fixture
def descriptor_file(tmp_path):
    files = descriptor_pb2.FileDescriptorSet()
    file = files.file.add(name="t.proto", package="t", syntax="proto3")
    file.message_type.add(name="M").field.add(name="a", number=1, type=3, label=1)
    path = tmp_path / "t.desc"
    path.write_bytes(files.SerializeToString())
    return str(path)


def test_every_format(descriptor_file):
    made = [
        (decoder_for("json", SCHEMA, {"epochunit": "ms"}), JsonDecoder, b'{"a": 2}'),
        (decoder_for("AVRO", SCHEMA, {"avroframing": "none", "avroschema": WRITER}), AvroDecoder, b"\x04"),
        (decoder_for("csv", SCHEMA, {"delimiter": "\\t", "quote": "'", "nulltext": "-"}), CsvDecoder, b"'2'"),
        (decoder_for("protobuf", SCHEMA, {"descriptorfile": descriptor_file, "message": "M"}), ProtobufDecoder,
         b"\0\0\0\0\1\0\x08\x02"),
        (decoder_for("protobuf", SCHEMA, {"descriptorfile": descriptor_file, "message": "t.M",
                                          "protobufframing": "none"}), ProtobufDecoder, b"\x08\x02"),
    ]  # fmt: skip
    for decoder, kind, value in made:
        assert isinstance(decoder, kind)
        assert rows_of(decoder.decode(value_columns([value]))) == [[2]]
    assert isinstance(decoder_for("avro", SCHEMA, {"schemaregistry": "http://localhost:8081"}), AvroDecoder)
    assert option_names("csv") == ["delimiter", "quote", "nullText"]


@pytest.mark.parametrize(
    ("name", "options", "words"),
    [
        ("jsno", {}, "no format 'jsno': did you mean 'json'"),
        ("json", {"epochunits": "ms"}, "no option 'epochunits': did you mean 'epochUnit'"),
        ("json", {"delimiter": ","}, "the format json has no option 'delimiter'"),
        ("json", {"epochunit": "sec"}, "epochUnit is 'sec': did you mean 's'"),
        ("avro", {}, "needs a schema registry"),
        ("avro", {"avroframing": "none"}, "give it as avroSchema"),
        ("avro", {"avroframing": "nnoe", "avroschema": WRITER}, "did you mean 'none'"),
        ("avro", {"avroframing": "none", "avroschema": "{"}, "not valid JSON"),
        (
            "avro",
            {"avroframing": "none", "avroschema": WRITER, "schemaregistry": "http://x"},
            "leave schemaRegistry away",
        ),
        ("avro", {"schemaregistry": "localhost"}, "must begin with http"),
        ("protobuf", {"message": "M"}, "needs the option descriptorFile"),
        ("protobuf", {"descriptorfile": "/none/such", "message": "M"}, "cannot be read: No such file"),
        ("csv", {"delimiter": ",,"}, "delimiter is ',,'"),
        ("csv", {"quote": ","}, "they must differ"),
    ],
)
def test_mistakes_are_one_sentence(name, options, words):
    with pytest.raises(PipelineError) as caught:
        decoder_for(name, SCHEMA, options)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "schema", "words"),
    [
        ("json", pa.schema([]), "at least one column"),
        ("json", pa.schema([("a", pa.int8()), ("a", pa.int8())]), "more than one column 'a'"),
        ("json", pa.schema([("a", pa.uint8())]), "column 'a' is of type uint8"),
        ("json", pa.schema([("a", pa.timestamp("ms"))]), "timestamp[ms]"),
        ("csv", pa.schema([("a", pa.list_(pa.int8()))]), "cannot be read from csv"),
    ],
)
def test_schemas_that_cannot_be(name, schema, words):
    with pytest.raises(PipelineError) as caught:
        decoder_for(name, schema, {})
    assert words in str(caught.value)
