"""The Avro decoder against fastavro: values of random schemas, and bytes that were altered."""

import io
import json
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import fastavro
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from headrace.pipelines.columns.avro import AvroDecoder
from tests.property.storage_model import examples
from tests.value_columns import rows_of, value_columns

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
instants = st.datetimes(datetime(1950, 1, 1), datetime(2100, 1, 1), timezones=st.just(UTC))  # noqa: DTZ001
decimals = st.decimals(-(10**6), 10**6, places=2)
texts = st.text(st.characters(codec="utf-8"), max_size=10)
# Avro type, Arrow type, values
KINDS: list[tuple[Any, pa.DataType, st.SearchStrategy[Any]]] = [
    ("boolean", pa.bool_(), st.booleans()),
    ("int", pa.int32(), st.integers(-(2**31), 2**31 - 1)),
    ("int", pa.float64(), st.integers(-(2**31), 2**31 - 1)),
    ("long", pa.int64(), st.integers(-(2**63), 2**63 - 1)),
    ("float", pa.float32(), st.floats(width=32, allow_nan=False)),
    ("float", pa.float64(), st.floats(width=32, allow_nan=False)),
    ("double", pa.float64(), st.floats(allow_nan=False)),
    ("string", pa.string(), texts),
    ("bytes", pa.binary(), st.binary(max_size=10)),
    ({"type": "enum", "name": "E{}", "symbols": ["A", "B", "C"]}, pa.string(), st.sampled_from("ABC")),
    ({"type": "fixed", "name": "F{}", "size": 3}, pa.binary(), st.binary(min_size=3, max_size=3)),
    ({"type": "int", "logicalType": "date"}, pa.date32(), st.dates()),
    ({"type": "int", "logicalType": "time-millis"}, pa.time64("us"),
     st.times().map(lambda time: time.replace(microsecond=time.microsecond // 1000 * 1000))),
    ({"type": "long", "logicalType": "time-micros"}, pa.time64("us"), st.times()),
    ({"type": "long", "logicalType": "timestamp-micros"}, pa.timestamp("us", "UTC"), instants),
    ({"type": "long", "logicalType": "timestamp-millis"}, pa.timestamp("us", "UTC"),
     instants.map(lambda time: time.replace(microsecond=time.microsecond // 1000 * 1000))),
    ({"type": "bytes", "logicalType": "decimal", "precision": 20, "scale": 2}, pa.decimal128(20, 2), decimals),
    ({"type": "bytes", "logicalType": "decimal", "precision": 20, "scale": 2}, pa.decimal128(30, 5), decimals),
    ({"type": "fixed", "name": "D{}", "size": 20, "logicalType": "decimal", "precision": 38, "scale": 2},
     pa.decimal128(38, 2), decimals),
    ({"type": "string", "logicalType": "uuid"}, pa.string(), st.uuids().map(str)),
]  # fmt: skip
COMPLEX: list[tuple[Any, pa.DataType, st.SearchStrategy[Any]]] = [
    ({"type": "array", "items": "long"}, pa.list_(pa.int64()), st.lists(st.integers(-5, 5), max_size=3)),
    ({"type": "map", "values": "string"}, pa.map_(pa.string(), pa.string()),
     st.dictionaries(texts, texts, max_size=3)),
    (["null", "string", "bytes"], pa.string(), st.none() | texts),
]  # fmt: skip


@st.composite
def shapes(draw: st.DrawFn, depth: int = 0, with_complex: bool = False) -> tuple[Any, pa.DataType, Any, bool]:
    """An Avro record's fields with Arrow's, what makes their values, and which are wanted."""
    fields, wanted, makers = [], [], {}
    for index in range(draw(st.integers(1, 5))):
        name = f"f{depth}{index}"
        if depth < 2 and draw(st.integers(0, 4)) == 0:
            kind, arrow, maker = draw(shapes(depth + 1, with_complex))
        else:
            kind, arrow, maker = draw(st.sampled_from(KINDS + (COMPLEX if with_complex else [])))
            kind = json.loads(json.dumps(kind).replace("{}", f"_{draw(st.uuids()).hex}"))
        if draw(st.booleans()) and not isinstance(kind, list):
            kind = draw(st.sampled_from([["null", kind], [kind, "null"]]))
            maker = st.none() | maker
        fields.append({"name": name, "type": kind})
        makers[name] = maker
        if draw(st.integers(0, 3)):
            wanted.append(pa.field(name, arrow))
    record = {"type": "record", "name": f"R_{draw(st.uuids()).hex}", "fields": fields}
    return record, pa.struct(draw(st.permutations(wanted))), st.fixed_dictionaries(makers)


def written(schema: Any, value: Any) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, schema, value)
    return out.getvalue()


def expected(value: Any, kind: pa.DataType) -> Any:
    if value is None:
        return None
    if pa.types.is_struct(kind):
        return {field.name: expected(value.get(field.name), field.type) for field in kind}
    if pa.types.is_map(kind):
        return list(value.items())
    if pa.types.is_decimal(kind):
        return Decimal(value)
    return value


def check_values(data: st.DataObject, with_complex: bool) -> None:
    writer, kind, maker = data.draw(shapes(with_complex=with_complex))
    parsed = fastavro.parse_schema(json.loads(json.dumps(writer)))
    values = data.draw(st.lists(st.none() | maker, max_size=4))
    raw = [None if value is None else written(parsed, value) for value in values]
    schema = pa.schema(list(kind))
    decoded = AvroDecoder(schema, writer=json.dumps(writer)).decode(value_columns(raw))
    assert decoded.broken == {}
    if len(schema):
        right = [[expected((value or {}).get(field.name), field.type) for field in schema] for value in values]
        assert rows_of(decoded) == right


@examples(60)
@given(st.data())
def test_what_fastavro_writes_is_read(data: st.DataObject) -> None:
    check_values(data, with_complex=False)


@examples(30)
@given(st.data())
def test_what_only_fastavro_reads_is_read_through_it(data: st.DataObject) -> None:
    check_values(data, with_complex=True)


WRITER = {
    "type": "record", "name": "R",
    "fields": [
        {"name": "a", "type": ["null", "string"]}, {"name": "b", "type": "long"}, {"name": "c", "type": "boolean"},
        {"name": "d", "type": {"type": "enum", "name": "E", "symbols": ["X", "Y"]}}, {"name": "e", "type": "double"},
        {"name": "f", "type": {"type": "record", "name": "I", "fields": [{"name": "g", "type": "int"}]}},
    ],
}  # fmt: skip
SCHEMA = pa.schema(
    [
        ("a", pa.string()),
        ("b", pa.int64()),
        ("c", pa.bool_()),
        ("d", pa.string()),
        ("f", pa.struct([("g", pa.int32())])),
    ]
)
PARSED = fastavro.parse_schema(json.loads(json.dumps(WRITER)))


@given(st.data())
def test_altered_bytes_are_refused_with_a_reason_or_read_as_fastavro_reads_them(data: st.DataObject) -> None:
    value = {"a": data.draw(st.none() | texts), "b": data.draw(st.integers(-(2**63), 2**63 - 1)), "c": True, "d": "Y",
             "e": 1.5, "f": {"g": 7}}  # fmt: skip
    raw = bytearray(written(PARSED, value))
    for _ in range(data.draw(st.integers(1, 3))):
        raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    raw = raw[: data.draw(st.integers(0, len(raw)) | st.just(len(raw)))]
    good = written(PARSED, value)
    decoded = AvroDecoder(SCHEMA, writer=json.dumps(WRITER)).decode(value_columns([good, bytes(raw), good]))
    rows = rows_of(decoded)
    assert rows[0] == rows[2] == [value["a"], value["b"], True, "Y", {"g": 7}]
    assert not {0, 2} & set(decoded.broken)
    if 1 in decoded.broken:
        assert decoded.broken[1]
        assert rows[1] == [None] * 5
    else:
        read: Any = fastavro.schemaless_reader(io.BytesIO(bytes(raw)), PARSED, None)
        assert rows[1] == [read[name] for name in "abcdf"]


wide = (
    st.integers(-(2**127), 2**127 - 1)
    | st.integers(-(10**20), 10**20)
    | st.integers(-200, 200).map(lambda n: n * 10**30)
)


@given(st.lists(wide, min_size=1, max_size=6), st.integers(0, 45), st.integers(1, 38), st.data())
def test_decimals_are_scaled_exactly_or_refused(
    units: list[int], scale: int, precision: int, data: st.DataObject
) -> None:
    kind = pa.decimal128(precision, data.draw(st.integers(0, precision)))
    written = {"type": "fixed", "name": "F", "size": 16, "logicalType": "decimal", "precision": 50, "scale": scale}
    writer = {"type": "record", "name": "R", "fields": [{"name": "d", "type": written}]}
    raw = [number.to_bytes(16, "big", signed=True) for number in units]
    decoded = AvroDecoder(pa.schema([("d", kind)]), writer=json.dumps(writer)).decode(value_columns(raw))
    for row, ((found,), number) in enumerate(zip(rows_of(decoded), units, strict=True)):
        whole, rest = divmod(abs(number) * 10**kind.scale, 10**scale)
        if rest == 0 and whole < 10**precision:
            assert found == Decimal(f"{number}E-{scale}")
        else:
            assert found is None
            assert "does not fit" in decoded.broken[row]
