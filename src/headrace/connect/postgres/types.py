"""What each type of PostgreSQL becomes: JSON after Debezium's conventions, Python for who reads changes directly.

Where Debezium has modes, ours are named after them. The defaults are Debezium's except for two: `decimal` is `string`,
because Debezium's own default is base64 of an unscaled number, which nobody can read and few can compute with; and
`interval` is `string`, because its own default makes a month 30.4375 days.

| PostgreSQL | JSON |
|---|---|
| smallint, integer, bigint, oid | number |
| real, double precision | number; NaN and the infinities as strings |
| numeric | string (`decimal="precise"`: Connect's Decimal, `"double"`: number) |
| money | string holding a decimal |
| boolean, bit(1) | true, false |
| text, varchar, char, json, jsonb, xml, uuid, enums, ranges, network, geometric and text-search types | string |
| bytea | base64 (`binary="hex"`: hexadecimal) |
| bit(n), bit varying | base64, lowest byte first |
| date | days since 1970 (`time="isostring"`: string) |
| time, timestamp | micro- or, up to precision 3, milliseconds (`time="isostring"`: string) |
| timestamptz, timetz | string, ISO 8601 |
| interval | string, ISO 8601 (`interval="numeric"`: microseconds, a month being 30.4375 days) |
| arrays | list, nested as the array is |
| domains | what their base type becomes |
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final
from uuid import UUID

from headrace.connect.filters import TypeModes as CommonModes
from headrace.connect.postgres import values
from headrace.connect.postgres.values import array_json, array_python, interval_micros
from headrace.connect.table import (
    CALLED,
    PLAIN,
    QUOTED,
    UNAVAILABLE_BYTES,
    UNAVAILABLE_TEXT,
    VERBATIM,
    Codec,
    quoted,
    schema_of,
    text_codec,
)

BUILT_IN_BELOW: Final = 16384  # types with such ids are PostgreSQL's own, the same in every database


@dataclass(frozen=True, slots=True)
class TypeModes(CommonModes):
    interval: str = "string"


@dataclass(frozen=True, slots=True)
class TypeInfo:
    """What the catalog says of a type that is not built in."""

    id: int
    name: str
    kind: str  # pg_type.typtype: b(ase), c(omposite), d(omain), e(num), m(ultirange), r(ange)
    element: int = 0  # of an array
    base: int = 0  # of a domain
    modifier: int = -1  # of a domain
    labels: tuple[str, ...] = ()  # of an enum


LookUp = Callable[[int], TypeInfo | None]


def _number(kind: str, to_python: Callable[[str], Any] = int) -> Codec:
    return Codec(VERBATIM, str, to_python, schema_of(kind))


def _called(
    to_json: Callable[[str], str], to_python: Callable[[str], Any], schema: dict[str, Any], **more: Any
) -> Codec:
    return Codec(CALLED, to_json, to_python, schema, **more)


def _plain(to_python: Callable[[str], Any], schema: dict[str, Any]) -> Codec:
    return Codec(PLAIN, quoted, to_python, schema)


_TEXT = text_codec()
_JSON = text_codec(schema_of("string", "io.debezium.data.Json"), values.python_json)
_FLOAT = _called(values.float_json, float, schema_of("float"))
_DOUBLE = _called(values.float_json, float, schema_of("double"))

_FIXED: Final[Mapping[int, tuple[str, Codec]]] = {
    16: ("bool", _called(values.boolean_json, values.boolean, schema_of("boolean"))),
    18: ("char", _TEXT),
    19: ("name", _TEXT),
    20: ("int8", _number("int64")),
    21: ("int2", _number("int16")),
    23: ("int4", _number("int32")),
    25: ("text", _TEXT),
    26: ("oid", _number("int64")),
    28: ("xid", _number("int64")),
    114: ("json", _JSON),
    142: ("xml", text_codec(schema_of("string", "io.debezium.data.Xml"))),
    700: ("float4", _FLOAT),
    701: ("float8", _DOUBLE),
    790: ("money", _called(values.money_json, values.python_money, schema_of("string"))),
    1042: ("bpchar", _TEXT),
    1043: ("varchar", _TEXT),
    1184: (
        "timestamptz",
        _called(values.zoned_json, values.python_timestamptz, schema_of("string", "io.debezium.time.ZonedTimestamp")),
    ),
    1266: (
        "timetz",
        _called(values.time_zoned_json, values.time_zoned_iso, schema_of("string", "io.debezium.time.ZonedTime")),
    ),
    1562: (
        "varbit",
        _called(values.bits_json, str, schema_of("bytes", "io.debezium.data.Bits"), unavailable=UNAVAILABLE_BYTES),
    ),
    2950: ("uuid", _plain(UUID, schema_of("string", "io.debezium.data.Uuid"))),
    3220: ("pg_lsn", _plain(str, schema_of("string"))),
    3802: ("jsonb", _JSON),
}
_NAMES: Final = {
    17: "bytea",
    1082: "date",
    1083: "time",
    1114: "timestamp",
    1186: "interval",
    1560: "bit",
    1700: "numeric",
}

_ELEMENTS: Final = {  # built-in arrays by the type of their elements
    143: 142, 199: 114, 651: 650, 791: 790, 1000: 16, 1001: 17, 1002: 18, 1003: 19, 1005: 21, 1007: 23, 1009: 25,
    1014: 1042, 1015: 1043, 1016: 20, 1020: 603, 1021: 700, 1022: 701, 1028: 26, 1040: 829, 1041: 869, 1115: 1114,
    1182: 1082, 1183: 1083, 1185: 1184, 1187: 1186, 1231: 1700, 1270: 1266, 1561: 1560, 1563: 1562, 2951: 2950,
    3221: 3220, 3807: 3802, 3905: 3904, 3907: 3906, 3909: 3908, 3911: 3910, 3913: 3912, 3927: 3926,
}  # fmt: skip
_BOX = 603


def codec_of(type_id: int, modifier: int, modes: TypeModes, look_up: LookUp) -> tuple[str, Codec]:
    """The name of a type and how its values are written; a type that nobody knows is text."""
    fixed = _FIXED.get(type_id)
    if fixed is not None:
        return fixed
    if type_id in _NAMES:
        return _NAMES[type_id], _adjustable(type_id, modifier, modes)
    if type_id in _ELEMENTS:
        return _array(_ELEMENTS[type_id], modifier, modes, look_up)
    info = look_up(type_id) if type_id >= BUILT_IN_BELOW else None
    if info is None:
        return f"type {type_id}", _TEXT
    if info.base:
        return info.name, codec_of(info.base, info.modifier, modes, look_up)[1]
    if info.element:
        return _array(info.element, modifier, modes, look_up)
    if info.kind == "e":
        return info.name, text_codec(schema_of("string", "io.debezium.data.Enum", allowed=",".join(info.labels)))
    return info.name, _TEXT


def _array(element: int, modifier: int, modes: TypeModes, look_up: LookUp) -> tuple[str, Codec]:
    name, codec = codec_of(element, modifier, modes, look_up)
    delimiter = ";" if element == _BOX else ","
    return f"{name}[]", Codec(
        CALLED,
        array_json(_writer(codec), delimiter),
        array_python(codec.to_python, delimiter),
        {"type": "array", "items": {**codec.schema, "optional": True}},
        f'["{UNAVAILABLE_TEXT}"]',
    )


def _writer(codec: Codec) -> Callable[[str], str]:
    return quoted if codec.form == QUOTED else codec.to_json


def _adjustable(type_id: int, modifier: int, modes: TypeModes) -> Codec:
    """The types whose JSON depends on a mode or on their precision."""
    iso = modes.time == "isostring"
    coarse = 0 <= modifier <= 3
    match _NAMES[type_id]:
        case "numeric":
            return _decimal(modifier, modes.decimal)
        case "bytea":
            is_hex = modes.binary == "hex"
            return _called(
                values.hex_json if is_hex else values.bytea_json,
                values.bytes_of,
                schema_of("string" if is_hex else "bytes"),
                unavailable=f'"{UNAVAILABLE_TEXT.encode().hex()}"' if is_hex else UNAVAILABLE_BYTES,
            )
        case "date":
            if iso:
                return _plain(values.python_date, schema_of("string", "io.debezium.time.IsoDate"))
            return _called(values.days_json, values.python_date, schema_of("int32", "io.debezium.time.Date"))
        case "time":
            if iso:
                return _plain(values.python_time, schema_of("string", "io.debezium.time.IsoTime"))
            if coarse:
                return _called(values.time_millis_json, values.python_time, schema_of("int32", "io.debezium.time.Time"))
            return _called(
                values.time_micros_json, values.python_time, schema_of("int64", "io.debezium.time.MicroTime")
            )
        case "timestamp":
            if iso:
                schema = schema_of("string", "io.debezium.time.IsoTimestamp")
                return _called(values.local_json, values.python_timestamp, schema)
            if coarse:
                schema = schema_of("int64", "io.debezium.time.Timestamp")
                return _called(values.millis_json, values.python_timestamp, schema)
            schema = schema_of("int64", "io.debezium.time.MicroTimestamp")
            return _called(values.micros_json, values.python_timestamp, schema)
        case "interval":
            if modes.interval == "numeric":
                return _called(interval_micros, str, schema_of("int64", "io.debezium.time.MicroDuration"))
            return _plain(str, schema_of("string", "io.debezium.time.Interval"))
        case _:  # bit
            if modifier == 1:
                return _called(values.bit_json, str, schema_of("boolean"))
            schema = schema_of("bytes", "io.debezium.data.Bits", length=str(modifier))
            return _called(values.bits_json, str, schema, unavailable=UNAVAILABLE_BYTES)


def _decimal(modifier: int, mode: str) -> Codec:
    if mode == "double":
        return _called(values.decimal_double_json, Decimal, schema_of("double"))
    if mode == "string":
        return _plain(Decimal, schema_of("string"))
    if modifier < 4:
        schema = schema_of("struct", "io.debezium.data.VariableScaleDecimal") | {
            "fields": [
                {"type": "int32", "optional": False, "field": "scale"},
                {"type": "bytes", "optional": False, "field": "value"},
            ]
        }
        return _called(values.variable_scale_json, Decimal, schema, unavailable="null")
    precision = (modifier - 4) >> 16 & 0xFFFF
    scale = ((modifier - 4 & 0x7FF) ^ 1024) - 1024  # eleven bits, signed since PostgreSQL 15
    schema = schema_of("bytes", "org.apache.kafka.connect.data.Decimal", scale=str(scale))
    schema["parameters"]["connect.decimal.precision"] = str(precision)
    write = values.precise_json if scale >= 0 else values.rounded_json(scale)
    return _called(write, Decimal, schema, unavailable="null")
