"""Avro: framing, several schemas in one batch, resolution by name, and what is refused."""

import io
import json
import sys
from datetime import time
from decimal import Decimal
from uuid import UUID

import fastavro
import pyarrow as pa
import pytest

from headrace.extras import MissingExtra
from headrace.pipelines.columns.avro import AvroDecoder
from headrace.pipelines.errors import PipelineError
from headrace.schema_registry import UnknownSchema
from tests.value_columns import rows_of, value_columns


def record(*fields, name="R"):
    return {"type": "record", "name": name, "fields": [{"name": field, "type": kind} for field, kind in fields]}


def written(schema, value, schema_id=None):
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(json.loads(json.dumps(schema))), value)
    return (b"" if schema_id is None else b"\0" + schema_id.to_bytes(4, "big")) + out.getvalue()


def bare(schema, writer, *values):
    return AvroDecoder(schema, writer=json.dumps(writer)).decode(value_columns(values))


OLD = record(("id", "int"), ("name", "string"))
NEW = record(("name", ["null", "string"]), ("id", "long"), ("tags", {"type": "array", "items": "string"}))
WANTED = pa.schema([("id", pa.int64()), ("name", pa.string()), ("extra", pa.int32())])


def test_records_of_several_schemas_and_broken_frames_in_one_batch():
    asked = []

    def lookup(schema_id):
        asked.append(schema_id)
        return json.dumps({7: OLD, 8: NEW}[schema_id])

    decoder = AvroDecoder(WANTED, lookup=lookup)
    data = [
        written(OLD, {"id": 1, "name": "a"}, 7),
        written(NEW, {"id": 2**40, "name": None, "tags": ["x"]}, 8),
        None,
        b"\x01\0\0\0\x07",
        b"\0\0",
        written(OLD, {"id": 3, "name": "c"}, 7),
        written(OLD, {"id": 4, "name": "d"}, 7)[:-1],
    ]
    for _ in range(2):
        decoded = decoder.decode(value_columns(data))
        nothing = [None] * 3
        assert rows_of(decoded) == [
            [1, "a", None], [2**40, None, None], nothing, nothing, nothing, [3, "c", None], nothing,
        ]  # fmt: skip
        assert set(decoded.broken) == {3, 4, 6}
        assert "zero byte" in decoded.broken[3]
        assert "too short" in decoded.broken[4]
        assert "cut short in field 'name'" in decoded.broken[6]
    assert asked == [7, 8]


def test_an_id_that_nobody_knows_or_that_is_no_avro_breaks_its_records_only():
    def lookup(schema_id):
        if schema_id == 9:
            raise UnknownSchema(9, "the registry")
        return json.dumps(OLD) if schema_id == 7 else "syntax = 'proto3'"

    good = written(OLD, {"id": 1, "name": "a"}, 7)
    decoder = AvroDecoder(WANTED, lookup=lookup)
    decoded = decoder.decode(value_columns([good, b"\0\0\0\0\x09", b"\0\0\0\0\x0a"]))
    assert rows_of(decoded) == [[1, "a", None], [None] * 3, [None] * 3]
    assert decoded.broken[1] == "the registry has no schema with the id 9"
    assert "id 10 is not valid JSON" in decoded.broken[2]
    assert rows_of(decoder.decode(value_columns([]))) == []


def test_a_default_that_does_not_fit_is_refused_at_once():
    reader = {"type": "record", "name": "R", "fields": [{"name": "id", "type": "string", "default": "x"}]}
    with pytest.raises(PipelineError, match="default that does not fit"):
        AvroDecoder(WANTED, lookup=lambda _: json.dumps(OLD), reader=json.dumps(reader))


def test_defaults_and_aliases_of_the_reader():
    reader = record(("id", "long"))
    reader["fields"] += [
        {"name": "called", "aliases": ["nom", "name"], "type": "string"},
        {"name": "level", "type": "int", "default": 5},
        {"name": "data", "type": "bytes", "default": "ÿ"},
        {"name": "maybe", "type": ["null", "int"], "default": None},
    ]
    schema = pa.schema(
        [
            ("called", pa.string()),
            ("level", pa.int32()),
            ("data", pa.binary()),
            ("maybe", pa.int32()),
            ("id", pa.int64()),
        ]
    )
    decoder = AvroDecoder(schema, lookup=lambda _: json.dumps(OLD), reader=json.dumps(reader))
    decoded = decoder.decode(value_columns([written(OLD, {"id": 1, "name": "a"}, 1), None]))
    assert rows_of(decoded) == [["a", 5, b"\xff", None, 1], [None] * 5]


def test_values_that_do_not_fit_break_their_own_row():
    writer = record(("n", "long"), ("b", "bytes"), ("d", {"type": "bytes", "logicalType": "decimal", "scale": 3,
                                                          "precision": 40}))  # fmt: skip
    schema = pa.schema([("n", pa.int8()), ("b", pa.string()), ("d", pa.decimal128(5, 2))])
    rows = [(1, b"x", "1.250"), (200, b"x", "1.250"), (1, b"\xff", "1.250"), (1, b"x", "1.255"), (2, b"y", "99999.000")]
    data = [written(writer, {"n": n, "b": b, "d": Decimal(d)}) for n, b, d in rows]
    decoded = bare(schema, writer, *data)
    assert rows_of(decoded) == [[1, "x", Decimal("1.25")]] + [[None] * 3] * 4
    words = ["200, too large for int8", "not valid UTF-8", "1.255, which does not fit", "99999.000, which does not fit"]
    assert all(word in decoded.broken[row] for row, word in enumerate(words, 1))


def test_a_decimal_of_more_bytes_than_arrow_has():
    writer = record(("d", {"type": "fixed", "name": "F", "size": 20, "logicalType": "decimal", "precision": 48}))
    schema = pa.schema([("d", pa.decimal128(38, 0))])
    data = [number.to_bytes(20, "big", signed=True) for number in (10**37, -5, 2**127, -(2**127) - 1, 10**38)]
    decoded = bare(schema, writer, *data)
    assert rows_of(decoded) == [[Decimal(10**37)], [Decimal(-5)], [None], [None], [None]]
    assert set(decoded.broken) == {2, 3, 4}


def test_a_time_of_day_that_no_day_has():
    writer = record(("t", {"type": "long", "logicalType": "time-micros"}))
    decoded = bare(pa.schema([("t", pa.time64("us"))]), writer, b"\x00", b"\x01", b"\x80\x80\xbb\xdd\x83\x05")
    assert rows_of(decoded) == [[time(0)], [None], [None]]
    assert "is -1, which is not a time of day" in decoded.broken[1]
    assert "is 86400000000, which is not a time of day" in decoded.broken[2]


@pytest.mark.parametrize("scale", [-1, 39, 2_000_000_000, 10**30])
def test_a_decimal_whose_scale_cannot_be(scale):
    writer = record(("d", {"type": "bytes", "logicalType": "decimal", "precision": 38, "scale": scale}))
    with pytest.raises(PipelineError, match=f"38 digits, {scale} of them behind the point"):
        bare(pa.schema([("d", pa.decimal128(10, 2))]), writer, b"\x02\x01")


def test_uuid_of_sixteen_bytes():
    uuid = UUID("01234567-89ab-cdef-0123-456789abcdef")
    writer = record(("u", {"type": "fixed", "name": "U", "size": 16, "logicalType": "uuid"}))
    decoded = bare(pa.schema([("u", pa.string())]), writer, uuid.bytes, None)
    assert rows_of(decoded) == [[str(uuid)], [None]]


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"\x02\x01", "cut short"),  # a string of a negative size
        (b"\x04", "branch"),
        (b"\x02\x02\xff", "not valid UTF-8"),
        (b"\x00\x02", "neither 0 nor 1"),
        (b"\x00\x00\x08", "outside its Avro type"),
        (b"\x00\x00\x00\x80\x80\x80\x80\x20", "outside its Avro type"),
        (b"\x00\x00\x00\x00\x00", "follow"),
        (b"", "cut short"),
        (b"\x02" + b"\xff" * 11, "cut short"),
    ],
)
def test_what_is_no_avro(data, words):
    writer = record(("s", ["null", "string"]), ("b", "boolean"),
                    ("e", {"type": "enum", "name": "E", "symbols": ["A", "B"]}), ("i", "int"))  # fmt: skip
    decoded = bare(pa.schema([("b", pa.bool_())]), writer, data)
    assert words in decoded.broken[0]


def test_a_writer_whose_type_is_another_breaks_its_records_with_the_reason():
    decoded = bare(pa.schema([("name", pa.int64())]), OLD, written(OLD, {"id": 1, "name": "a"}), None)
    assert decoded.broken == {0: "field 'name' was written as string, which is not int64"}
    decoded = bare(pa.schema([("a", pa.int64())]), "string", b"\0")
    assert "not record" in decoded.broken[0]


def test_a_recursive_schema_goes_through_the_library():
    tree = {
        "type": "record",
        "name": "T",
        "fields": [{"name": "v", "type": "int"}, {"name": "t", "type": ["null", "T"]}],
    }
    kind = pa.struct([("v", pa.int32())])
    decoded = bare(
        pa.schema([("v", pa.int32()), ("t", kind)]), tree, written(tree, {"v": 1, "t": {"v": 2, "t": None}}), b"\x02"
    )
    assert rows_of(decoded)[0] == [1, {"v": 2}]
    assert list(decoded.broken) == [1]


def test_without_fastavro_the_sentence_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "fastavro", None)
    with pytest.raises(MissingExtra, match=r"pip install 'headrace\[avro\]'"):
        AvroDecoder(WANTED, writer=json.dumps(NEW))
    AvroDecoder(WANTED, writer=json.dumps(OLD))


@pytest.mark.parametrize("text", ["{", '{"type": "record"}', '{"type": "record", "name": "R", "fields": 3}', '"Nope"'])
def test_what_is_no_schema(text):
    with pytest.raises(PipelineError, match="the Avro schema is no"):
        AvroDecoder(WANTED, writer=text)


def test_names_are_resolved_in_their_namespace():
    inner = {"type": "enum", "name": "E", "symbols": ["A"]}
    writer = record(("a", inner), ("b", "E"), ("c", ["null", "x.y.E"])) | {"namespace": "x.y"}
    schema = pa.schema([(name, pa.string()) for name in "abc"])
    assert rows_of(bare(schema, writer, written(writer, {"a": "A", "b": "A", "c": "A"}))) == [["A", "A", "A"]]
