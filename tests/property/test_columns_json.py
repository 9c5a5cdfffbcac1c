"""The compiled JSON decoder against the exact reader: the same values, and the same records refused."""

import json
from typing import Any

import pyarrow as pa
from hypothesis import example, given
from hypothesis import strategies as st

from headrace.pipelines.columns.json import EPOCH_UNITS, JsonDecoder
from headrace.pipelines.columns.json_exact import DoesNotFit, read_object
from tests.property.storage_model import examples
from tests.value_columns import value_columns

SCALARS = [
    pa.string(), pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.float32(), pa.float64(), pa.bool_(), pa.date32(),
    pa.timestamp("us", "UTC"), pa.timestamp("us"), pa.decimal128(10, 2), pa.decimal128(38, 10), pa.decimal128(5, 0),
    pa.binary(),
]  # fmt: skip
NESTED = [
    pa.list_(pa.int32()), pa.list_(pa.string()), pa.list_(pa.float64()), pa.list_(pa.binary()),
    pa.list_(pa.timestamp("us", "UTC")), pa.list_(pa.float32()), pa.map_(pa.string(), pa.int64()),
    pa.struct([("a", pa.int64()), ("b", pa.string())]), pa.list_(pa.decimal128(6, 2)),
    pa.struct([("a", pa.list_(pa.bool_())), ("b", pa.struct([("a", pa.date32())]))]),
]  # fmt: skip
NAMES = ["a", "b", "ab", "é", 'quo"te', "back\\slash", "", "名"]
schemas = st.lists(
    st.tuples(st.sampled_from(NAMES), st.sampled_from(SCALARS + NESTED)), max_size=5, unique_by=lambda pair: pair[0]
).map(pa.schema)

edges = [2**bits + step for bits in (7, 15, 31, 63, 53, 64) for step in (-1, 0, 1)]
whole = st.sampled_from(edges).flatmap(lambda edge: st.sampled_from([edge, -edge])) | st.integers()
digits = st.from_regex(r"-?(0|[1-9][0-9]{0,25})(\.[0-9]{1,30})?([eE][+-]?[0-9]{1,3})?", fullmatch=True)
numbers = whole.map(str) | st.floats(allow_nan=False, allow_infinity=False).map(repr) | digits
times = st.datetimes().map(lambda time: time.isoformat()) | st.from_regex(
    r"(19|20)[0-9]{2}-[01][0-9]-[0-3][0-9][T ][0-2][0-9]:[0-5][0-9]:[0-5][0-9]"
    r"(\.[0-9]{1,10})?(Z|[+-][0-2][0-9]:[0-5][0-9])?",
    fullmatch=True,
)
dates = st.dates().map(str) | st.from_regex(r"[0-9]{4}-[01][0-9]-[0-3][0-9]", fullmatch=True)
texts = st.text(max_size=12) | times | dates | numbers | st.sampled_from(["AAEC", "Zm9v", "=", "1_0", " 1", "Infinity"])
escapes = st.lists(
    st.sampled_from(
        [r"\n", r"\"", r"\\", r"\/", r"\u0041", r"\u00e9", r"\ud83d\ude00", r"\ud83d", r"\ude00", "é", "x"]
    ),
    max_size=5,
).map(lambda pieces: '"' + "".join(pieces) + '"')
quoted = st.builds(lambda text, plain: json.dumps(text, ensure_ascii=plain), texts, st.booleans()).filter(
    lambda text: "\ud800" not in text
)
space = st.sampled_from(["", "", "", " ", "\n", "\t\r\n "])
words = st.sampled_from(["true", "false", "null"])


def padded(draw: st.DrawFn, pieces: list[str]) -> str:
    return "".join(draw(space) + piece for piece in pieces) + draw(space)


@st.composite
def lists(draw: st.DrawFn, inner: st.SearchStrategy[str]) -> str:
    items = draw(st.lists(inner, max_size=3))
    pieces = [piece for item in items for piece in (item, ",")]
    return padded(draw, ["[", *pieces[:-1], "]"])


@st.composite
def objects(draw: st.DrawFn, inner: st.SearchStrategy[str]) -> str:
    members = draw(st.lists(st.tuples(st.sampled_from(NAMES).map(json.dumps) | quoted | escapes, inner), max_size=6))
    pieces = [piece for name, value in members for piece in (name, ":", value, ",")]
    return padded(draw, ["{", *pieces[:-1], "}"])


values = st.recursive(numbers | quoted | escapes | words, lambda inner: lists(inner) | objects(inner), max_leaves=8)
documents = objects(values).map(lambda text: text.encode(errors="surrogatepass"))


@st.composite
def mutated(draw: st.DrawFn) -> bytes:
    data = bytearray(draw(documents))
    for _ in range(draw(st.integers(1, 3))):
        place = draw(st.integers(0, len(data)))
        match draw(st.integers(0, 3)):
            case 0:
                del data[place:]
            case 1:
                data[place : place + 1] = b""
            case 2:
                data[place:place] = draw(
                    st.sampled_from([b'"', b"{", b"}", b",", b":", b"\\", b"0", b"-", b"\xc3", b"\x1f"])
                )
            case _:
                data[place : place + 1] = draw(st.binary(min_size=1, max_size=1))
    return bytes(data)


def measure(data: bytes | None, schema: pa.Schema, epoch_micros: int) -> dict[str, Any] | None:
    """What the exact reader makes of a value; None where it refuses."""
    if data is None:
        return {}
    try:
        return read_object(data, {field.name: field.type for field in schema}, epoch_micros)
    except DoesNotFit:
        return None


def check(data: list[bytes | None], schema: pa.Schema, unit: str | None) -> None:
    decoded = JsonDecoder(schema, epoch_unit=unit).decode(value_columns(data))
    expected = [measure(value, schema, EPOCH_UNITS[unit] if unit else 0) for value in data]
    assert set(decoded.broken) == {row for row, values in enumerate(expected) if values is None}
    assert all(decoded.broken.values())
    for column, field in zip(decoded.columns, schema, strict=True):
        column.validate(full=True)
        # Arrays are compared, not Python's values: a time may be later than Python's last year.
        right = pa.array([(values or {}).get(field.name) for values in expected], field.type)
        assert column.equals(right), f"{column} is not {right}"


@examples(80)
@given(st.lists(st.none() | documents, max_size=5), schemas, st.sampled_from([None, "s", "ms", "us"]))
@example([b'{"a":"x"}', b'{"a":1e39}'], pa.schema([("a", pa.float32())]), None)
@example([b'{"a":"Zm9v"}'], pa.schema([("a", pa.binary())]), None)
@example([b'{"a":{"\\ud800":1}}'], pa.schema([("a", pa.map_(pa.string(), pa.int64()))]), None)
@example([b'{"a":' + b"9" * 5000 + b"}", b'{"a":1}'], pa.schema([("a", pa.string())]), None)
@example([b'{"a":' + b"1" * 30 + b"}"], pa.schema([("a", pa.decimal128(38, 0))]), None)
@example([b'{"a":1.500}', b'{"a":"1.500"}', b'{"a":1.505}'], pa.schema([("a", pa.decimal128(10, 2))]), None)
@example([b'{"a":' + b"[" * 2000 + b"]" * 2000 + b"}"], pa.schema([("a", pa.string())]), None)
@example([b'{"a":' + b"[" * 700 + b"]" * 700 + b"}"], pa.schema([("a", pa.list_(pa.string()))]), None)
@example([b'{"a":{"a":1,"a":2}}', b'{"a":{"a":3}}'], pa.schema([("a", pa.struct([("a", pa.int64())]))]), None)
def test_objects(data: list[bytes | None], schema: pa.Schema, unit: str | None) -> None:
    check(data, schema, unit)


@examples(80)
@given(st.lists(mutated(), min_size=1, max_size=4), schemas, st.sampled_from([None, "ms"]))
def test_broken_objects(data: list[bytes | None], schema: pa.Schema, unit: str | None) -> None:
    check(data, schema, unit)


cents = st.decimals(-100, 100, places=2).map(str)
wide_digits = st.from_regex(r"-?[1-9][0-9]{30,41}(\.[0-9]{1,20})?([eE][+-]?[0-9]{1,2})?", fullmatch=True)
typed = {
    pa.int64(): whole.map(str), pa.int8(): st.integers(-130, 130).map(str), pa.float64(): numbers,
    pa.float32(): numbers, pa.timestamp("us", "UTC"): times.map(json.dumps) | whole.map(str),
    pa.date32(): dates.map(json.dumps), pa.string(): quoted | escapes,
    pa.decimal128(10, 2): digits | digits.map(json.dumps) | st.decimals(-100, 100, places=2).map(str),
    pa.decimal128(38, 18): digits | wide_digits, pa.decimal128(38, 0): wide_digits | wide_digits.map(json.dumps),
    pa.list_(pa.decimal128(10, 2)): lists(cents), pa.map_(pa.string(), pa.decimal128(38, 18)): objects(digits | cents),
    pa.list_(pa.struct([("a", pa.decimal128(6, 2))])): lists(objects(cents | cents.map(json.dumps))),
    pa.list_(pa.float64()): lists(numbers), pa.list_(pa.int64()): lists(whole.map(str)),
    pa.list_(pa.string()): lists(quoted | escapes),
    pa.struct([("a", pa.int64()), ("b", pa.string())]): objects(whole.map(str) | quoted),
}  # fmt: skip


@examples(80)
@given(st.data())
def test_values_of_the_wanted_type(data: st.DataObject) -> None:
    kind = data.draw(st.sampled_from(list(typed)))
    found = data.draw(st.lists(typed[kind] | st.just("null"), min_size=1, max_size=8))
    documents = [b'{"a": ' + text.encode(errors="surrogatepass") + b"}" for text in found]
    check(documents, pa.schema([("a", kind)]), data.draw(st.sampled_from([None, "s", "ms", "us"])))
