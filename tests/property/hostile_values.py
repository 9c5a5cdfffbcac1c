"""Values that were written to hurt, read by every decoder into every type at every depth. Run as a program of its own.

`python -m tests.property.hostile_values json` reads them all, and compares where there is an exact reader. What it is
about to read is printed first, so that whoever started it can name what ended the process.
"""

import json
import struct
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
from google.protobuf import descriptor_pb2

from headrace.pipelines.columns.avro import AvroDecoder
from headrace.pipelines.columns.csv import CsvDecoder
from headrace.pipelines.columns.decoding import Decoder
from headrace.pipelines.columns.json import JsonDecoder
from headrace.pipelines.columns.json_exact import DoesNotFit, convert, read_object
from headrace.pipelines.columns.protobuf import ProtobufDecoder
from headrace.pipelines.errors import PipelineError
from tests.value_columns import value_columns

MANY, DEEP = 1_000_000, 100_000
DIGITS = [
    *("1E-100000000", "0E-100000000", "-1e-77", "1e-77", "1E-38", "1E+100000000", "1E2147483648", "1E-2147483649"),
    *("1e99999999999999999999", "0e-99999999999999999999", "1e400", "-1e400", "5e-324", "1e-400", "-0", "-0.0", "1E+5"),
    *(str(sign * (2**bits + step)) for bits in (7, 15, 31, 53, 63, 64, 127, 128) for step in (-1, 0, 1, 5)
      for sign in (1, -1)),
    *("9" * 38, "-" + "9" * 38, "9" * 39, "43864730784291090085254673546243869678", "9" * 4300, "9" * 4301),
    *("0." + "0" * 45 + "1", "0." + "0" * MANY + "1", "1" + "0" * MANY, "12345678901234567890.12345678", "1.500"),
]  # fmt: skip
NOT_JSON = ["NaN", "Infinity", "-Infinity", "nan", "inf", "01", "+1", ".5", "1.", "1e", "1e+", "--1", "0x1", "1_0", "٣"]
TIMES = [
    *("0001-01-01T00:00:00Z", "0001-01-01T00:00:00+18:00", "9999-12-31T23:59:59.999999Z", "9999-12-31T23:59:59-18:00"),
    *("1677-09-21T00:12:43Z", "2262-04-11T23:47:17Z", "0000-01-01T00:00:00Z", "10000-01-01T00:00:00Z", "2255-06-06"),
    *("0001-01-01", "9999-12-31", "1969-12-31T23:59:59.999999", "2024-02-30T00:00:00", "2024-01-01T24:00:00"),
]
TEXTS = [r"\ud800", r"\udc00\ud800", r"\u0000", "\0", "", "x" * MANY, r"\u0", r"\x", "\x7f", "\ufeff", "AA==", "A"]
BRACKETS = [
    "[" * DEEP, "[" * DEEP + "]" * DEEP, '{"a":' * DEEP, '{"a":' * DEEP + "1" + "}" * DEEP, "[" * 64 + "]" * 64,
    "[1.5]" , '{"a":1.25}', '[{"a":[0.10]}]', '{"a":{"a":2.50}}', "[null]", "[]", "{}", "[1,]", '{"a"}',
]  # fmt: skip
BYTES = [b"", b"\xff", b"\xed\xa0\x80", b"\0" * 20, b"\xef\xbb\xbf{}", b"\x80" * 20, b"\xff" * 20]

SCALARS = [
    pa.string(), pa.int8(), pa.int32(), pa.int64(), pa.float32(), pa.float64(), pa.bool_(), pa.date32(), pa.binary(),
    pa.timestamp("us", "UTC"), pa.decimal128(10, 2), pa.decimal128(38, 18), pa.decimal128(38, 0), pa.decimal128(38, 38),
]  # fmt: skip
PLACES: list[tuple[str, Callable[[pa.DataType], pa.DataType]]] = [
    ("%s", lambda kind: kind),
    ("[%s]", pa.list_),
    ('{"a":%s}', lambda kind: pa.struct([("a", kind)])),
    ('{"k":%s}', lambda kind: pa.map_(pa.string(), kind)),
    ('[{"a":[%s, null]}]', lambda kind: pa.list_(pa.struct([("a", pa.list_(kind))]))),
]


def read(decoder: Decoder, values: list[bytes], what: str) -> list[pa.Array | None]:
    """Each value's column of one row, and that each was read or refused with a reason; None is a refusal."""
    print(what, flush=True)
    decoded = decoder.decode(value_columns(values))
    for column in decoded.columns:
        column.validate(full=True)
        assert len(column) == len(values)
    assert all(decoded.broken.values()), what
    assert all(decoded.columns[0][row].as_py() is None for row in decoded.broken)
    return [None if row in decoded.broken else decoded.columns[0].slice(row, 1) for row in range(len(values))]


def compare(found: list[pa.Array | None], right: list[pa.Array | None], values: list[bytes], what: str) -> None:
    """Hold what was read against what an exact reader made of it."""
    for value, one, other in zip(values, found, right, strict=True):
        same = one is other if one is None or other is None else one.equals(other)
        assert same, f"{what}: {value[:80]!r} was read as {one}, not {other}"


def read_json() -> None:
    """JSON, against the exact reader."""
    texts = DIGITS + NOT_JSON + BRACKETS + [f'"{text}"' for text in DIGITS + NOT_JSON + TIMES + TEXTS]
    for pattern, nest in PLACES:
        values = [f'{{"a":{pattern % text}}}'.encode() for text in texts] + BYTES
        for scalar in SCALARS:
            kind = nest(scalar)
            found = read(JsonDecoder(pa.schema([("a", kind)]), epoch_unit="us"), values, f"json as {kind}")
            compare(found, [_exact(value, kind) for value in values], values, f"json as {kind}")


def _exact(value: bytes, kind: pa.DataType) -> pa.Array | None:
    try:
        return pa.array([read_object(value, {"a": kind}, 1)["a"]], kind)
    except DoesNotFit:
        return None


def read_csv() -> None:
    """CSV; times and decimals against the exact reader, other types are Arrow's own."""
    values = [text.encode() for text in DIGITS + NOT_JSON + TIMES + TEXTS + BRACKETS] + BYTES
    for kind in SCALARS:
        found = read(CsvDecoder(pa.schema([("a", kind)]), null_text="?"), values, f"csv as {kind}")
        if pa.types.is_decimal(kind) or pa.types.is_timestamp(kind):
            compare(found, [_exact_text(value, kind) for value in values], values, f"csv as {kind}")


def _exact_text(value: bytes, kind: pa.DataType) -> pa.Array | None:
    try:
        return pa.array([convert(value.decode(), None, kind, "a")], kind)
    except (DoesNotFit, UnicodeDecodeError):
        return None


# Lengths and counts that lie, numbers at the edges of their bits, and far too much of everything.
_EDGES = [0, 1, -1, 2**31 - 1, -(2**31), 2**31, 2**62, 2**63 - 1, -(2**63)]


def _zigzag(number: int) -> bytes:
    return _varint((number << 1) ^ (number >> 63))


def _varint(number: int) -> bytes:
    number &= 2**64 - 1
    out = bytearray()
    while number >= 0x80:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*out, number])


def binary_values() -> Iterator[bytes]:
    """Bytes that a binary format may take for its own."""
    yield from BYTES
    for number in _EDGES:
        for lead in (b"", b"\x02", b"\x00"):
            for tail in (b"", b"\x00", b"\x00\x01", b"\xff" * 16, b"\x7f" * 40, b"\x02a\x00"):
                yield lead + _zigzag(number) + tail
                yield lead + _varint(number) + tail
    for count in (16, 17, 20, 100, 20_000):
        for fill in (b"\x7f", b"\x80", b"\xff", b"\x00"):
            yield _zigzag(count) + fill * count
    for real in (float("nan"), float("inf"), -0.0, 5e-324):
        yield struct.pack("<d", real)
        yield struct.pack("<f", real)
    yield b"\x02" * DEEP
    yield b"\x0b" * DEEP  # protobuf: groups inside groups
    yield (b"\x0a" + _varint(50)) * DEEP


def read_avro() -> None:
    """Avro, by the compiled walk and by the library; and schemas that name impossible decimals."""
    values = list(binary_values())
    plain: list[tuple[Any, pa.DataType]] = [
        ("int", pa.int8()), ("long", pa.int64()), ("float", pa.float64()), ("double", pa.float64()),
        ("string", pa.string()), ("bytes", pa.binary()), ("bytes", pa.string()), ("boolean", pa.bool_()),
        ({"type": "enum", "name": "E", "symbols": ["A"]}, pa.string()),
        ({"type": "int", "logicalType": "date"}, pa.date32()),
        ({"type": "long", "logicalType": "timestamp-millis"}, pa.timestamp("us", "UTC")),
        ({"type": "long", "logicalType": "timestamp-micros"}, pa.timestamp("us", "UTC")),
        ({"type": "long", "logicalType": "time-micros"}, pa.time64("us")),
        ({"type": "fixed", "name": "F", "size": 16, "logicalType": "uuid"}, pa.string()),
    ]  # fmt: skip
    for scale in (0, 2, 18, 38, 39, 50, 100, 100_000, 2_000_000_000, -1, -(10**9), 10**30):
        for kind in (pa.decimal128(10, 2), pa.decimal128(38, 18)):
            decimal = {"type": "bytes", "logicalType": "decimal", "precision": max(scale, 38), "scale": scale}
            plain.append((decimal, kind))
    for written, kind in plain:
        _avro(written, kind, values)
        _avro(["null", written], kind, values)
        _avro({"type": "array", "items": written}, pa.list_(kind), values)
        _avro({"type": "map", "values": written}, pa.map_(pa.string(), kind), values)
        inner = {"type": "record", "name": "I", "fields": [{"name": "b", "type": written}]}
        _avro(inner, pa.struct([("b", kind)]), values)


def _avro(written: Any, kind: pa.DataType, values: list[bytes]) -> None:
    writer = json.dumps({"type": "record", "name": "R", "fields": [{"name": "a", "type": written}]})
    try:
        decoder = AvroDecoder(pa.schema([("a", kind)]), writer=writer)
    except PipelineError:
        return  # the schema was refused, in words
    read(decoder, values, f"avro {writer[:200]} as {kind}")


def read_protobuf() -> None:
    """Protobuf, by the compiled walk and by the library, bare and framed."""
    kinds = descriptor_pb2.FieldDescriptorProto
    plain = {
        kinds.TYPE_INT64: pa.int64(), kinds.TYPE_UINT64: pa.decimal128(20, 0), kinds.TYPE_INT32: pa.int32(),
        kinds.TYPE_FIXED64: pa.decimal128(38, 18), kinds.TYPE_BOOL: pa.bool_(), kinds.TYPE_STRING: pa.string(),
        kinds.TYPE_BYTES: pa.binary(), kinds.TYPE_SINT64: pa.int64(), kinds.TYPE_SINT32: pa.int32(),
        kinds.TYPE_DOUBLE: pa.float64(), kinds.TYPE_FLOAT: pa.float32(),
    }  # fmt: skip
    bodies = list(binary_values())
    for field_type, kind in plain.items():
        for repeated in (False, True):
            files = descriptor_pb2.FileDescriptorSet()
            file = files.file.add(name="t.proto", package="t", syntax="proto3")
            label = kinds.LABEL_REPEATED if repeated else kinds.LABEL_OPTIONAL
            file.message_type.add(name="M").field.add(name="a", number=1, type=field_type, label=label)
            for framed in (False, True):
                schema = pa.schema([("a", pa.list_(kind) if repeated else kind)])
                decoder = ProtobufDecoder(
                    schema, descriptor_set=files.SerializeToString(), message="t.M", is_framed=framed
                )
                leads = (
                    (b"\0\0\0\0\1", b"\0\0\0\0\1\0") if framed else (b"", b"\x08", b"\x09", b"\x0a", b"\x0d", b"\x0b")
                )
                values = [lead + body for lead in leads for body in bodies]
                read(decoder, values, f"protobuf {field_type}, repeated {repeated}, framed {framed}, as {kind}")


READERS = {"json": read_json, "csv": read_csv, "avro": read_avro, "protobuf": read_protobuf}

if __name__ == "__main__":
    READERS[sys.argv[1]]()
    print("all read", flush=True)
