"""What each type becomes: JSON after Debezium's conventions, Python for who reads changes directly.

| MariaDB, MySQL | JSON |
|---|---|
| tinyint … bigint, year | number; `bigint unsigned` too, up to 18446744073709551615 |
| float, double | number, the shortest that means the same |
| decimal | string (`decimal="precise"`: Connect's Decimal, `"double"`: number) |
| bit(1) | true, false |
| bit(n) | base64, lowest byte first |
| char, varchar, text, enum, set, json, uuid, inet | string |
| binary, varbinary, blob | base64 (`binary="hex"`: hexadecimal) |
| date | days since 1970 (`time="isostring"`: string) |
| datetime | micro- or, up to precision 3, milliseconds, taken as UTC (`time="isostring"`: string) |
| timestamp | string, ISO 8601 in UTC |
| time | microseconds, also negative and beyond a day (`time="isostring"`: string) |
| geometry and its kin | an object with `wkb` in base64 and `srid` |

A date that is none, like 0000-00-00 or 2024-02-00, stays text wherever it stands: nothing else is exact.
"""

import datetime as dt
import re
import struct
from collections.abc import Callable
from decimal import Decimal
from json import loads
from typing import TYPE_CHECKING, Any

from headrace.connect.filters import TypeModes
from headrace.connect.table import (
    CALLED,
    PLAIN,
    VERBATIM,
    Codec,
    base64_json,
    from_wire,
    or_text,
    quoted,
    schema_of,
    text_codec,
    unscaled_bytes,
)

if TYPE_CHECKING:
    from headrace.connect.mysql.shape import ShapeColumn

_EPOCH_DAY = dt.date(1970, 1, 1).toordinal()
_DAY_US = 86_400_000_000
_INTEGERS = {"tinyint": "int16", "smallint": "int16", "mediumint": "int32", "int": "int32", "bigint": "int64"}
_WIDER = {"int16": "int32", "int32": "int64", "int64": "int64"}
_BYTES = ("binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob")
_TIME = re.compile(r"(-?)(\d+):(\d\d):(\d\d)(?:\.(\d+))?")


_UNSIGNED_BIGINT = {
    **schema_of("bytes", "org.apache.kafka.connect.data.Decimal"),
    "parameters": {"scale": "0", "connect.decimal.precision": "20"},
}


def codec_of(column: "ShapeColumn", modes: TypeModes) -> Codec:
    base = column.base
    if base in _INTEGERS:
        kind = _INTEGERS[base]
        beyond = _UNSIGNED_BIGINT if column.is_unsigned and base == "bigint" else None
        return Codec(VERBATIM, str, _same, schema_of(_WIDER[kind] if column.is_unsigned else kind), avro=beyond)
    if column.is_spatial:
        fields = [
            {"type": "bytes", "optional": False, "field": "wkb"},
            {"type": "int32", "optional": True, "field": "srid"},
        ]
        schema = schema_of("struct", "io.debezium.data.geometry.Geometry") | {"fields": fields}
        return Codec(CALLED, geometry_json, _same, schema)
    if column.is_json or base == "json":
        return text_codec(schema_of("string", "io.debezium.data.Json"), lambda wire: loads(from_wire(wire)))
    if base in _BYTES or (column.charset is None and base not in _FIXED):
        is_hex = modes.binary == "hex"
        return Codec(CALLED, hex_json if is_hex else base64_json, _same, schema_of("string" if is_hex else "bytes"))
    if base in _FIXED:
        return _FIXED[base](column, modes)
    return text_codec()


def _same(value: Any) -> Any:
    return value


def hex_json(data: bytes) -> str:
    return f'"{data.hex()}"'


def geometry_json(data: bytes) -> str:
    """Four bytes of SRID, then well-known binary."""
    srid = int.from_bytes(data[:4], "little")
    return f'{{"wkb":{base64_json(data[4:])},"srid":{srid or "null"}}}'


def float_json(value: float) -> str:
    """The shortest decimal that is the same number in four bytes."""
    for digits in (6, 7, 8):
        text = f"{value:.{digits}g}"
        if struct.unpack("<f", struct.pack("<f", float(text)))[0] == value:
            return repr(float(text))
    return repr(float(f"{value:.9g}"))


def bit_json(value: int) -> str:
    return "true" if value else "false"


def days_json(text: str) -> str:
    try:
        return str(dt.date.fromisoformat(text).toordinal() - _EPOCH_DAY)
    except ValueError:
        return f'"{text}"'


def _moment(text: str) -> dt.datetime:
    return dt.datetime.fromisoformat(text if len(text) == 19 else text.ljust(26, "0"))


def _moments_json(divisor: int) -> Callable[[str], str]:
    """A function that writes a datetime, taken as UTC, as so many microseconds since 1970; one that is none as text."""

    def write(text: str) -> str:
        try:
            moment = _moment(text)
        except ValueError:
            return f'"{text}"'
        seconds = (moment.hour * 60 + moment.minute) * 60 + moment.second
        days = moment.toordinal() - _EPOCH_DAY
        return str((days * _DAY_US + seconds * 1_000_000 + moment.microsecond) // divisor)

    return write


micros_json, millis_json = _moments_json(1), _moments_json(1000)


def zoned_json(text: str) -> str:
    """A timestamp in ISO 8601; its text is in UTC."""
    return f'"{text}"' if text.startswith("0000") else f'"{text[:10]}T{text[11:]}Z"'


def local_json(text: str) -> str:
    """A datetime in ISO 8601."""
    return f'"{text[:10]}T{text[11:]}"'


def time_us(text: str) -> int:
    """Microseconds, from -838:59:59 to 838:59:59."""
    found = _TIME.fullmatch(text)
    assert found is not None
    sign, hours, minutes, seconds, fraction = found.groups()
    micros = ((int(hours) * 60 + int(minutes)) * 60 + int(seconds)) * 1_000_000 + int((fraction or "").ljust(6, "0"))
    return -micros if sign else micros


_python_moment = or_text(_moment)
_python_zoned = or_text(lambda text: _moment(text).replace(tzinfo=dt.UTC))
_python_date = or_text(dt.date.fromisoformat)


def _decimal(column: "ShapeColumn", modes: TypeModes) -> Codec:
    if modes.decimal == "string":
        return Codec(PLAIN, quoted, Decimal, schema_of("string"))
    if modes.decimal == "double":
        return Codec(CALLED, lambda text: repr(float(text)), Decimal, schema_of("double"))
    precision, scale = column.numbers if column.numbers[0] else (10, 0)
    schema = schema_of("bytes", "org.apache.kafka.connect.data.Decimal", scale=str(scale))
    schema["parameters"]["connect.decimal.precision"] = str(precision)
    return Codec(CALLED, lambda text: base64_json(unscaled_bytes(int(text.replace(".", "")))), Decimal, schema)


def _bit(column: "ShapeColumn", _modes: TypeModes) -> Codec:
    length = column.numbers[0] or 1
    if length == 1:
        return Codec(CALLED, bit_json, bool, schema_of("boolean"))
    size = (length + 7) // 8
    schema = schema_of("bytes", "io.debezium.data.Bits", length=str(length))
    return Codec(CALLED, lambda value: base64_json(value.to_bytes(size, "little")), _same, schema)


def _date(_column: "ShapeColumn", modes: TypeModes) -> Codec:
    if modes.time == "isostring":
        return Codec(PLAIN, quoted, _python_date, schema_of("string", "io.debezium.time.IsoDate"))
    return Codec(CALLED, days_json, _python_date, schema_of("int32", "io.debezium.time.Date"))


def _datetime(column: "ShapeColumn", modes: TypeModes) -> Codec:
    if modes.time == "isostring":
        return Codec(CALLED, local_json, _python_moment, schema_of("string", "io.debezium.time.IsoTimestamp"))
    if column.precision <= 3:
        return Codec(CALLED, millis_json, _python_moment, schema_of("int64", "io.debezium.time.Timestamp"))
    return Codec(CALLED, micros_json, _python_moment, schema_of("int64", "io.debezium.time.MicroTimestamp"))


def _timestamp(_column: "ShapeColumn", _modes: TypeModes) -> Codec:
    return Codec(CALLED, zoned_json, _python_zoned, schema_of("string", "io.debezium.time.ZonedTimestamp"))


def _time(_column: "ShapeColumn", modes: TypeModes) -> Codec:
    to_python: Callable[[str], dt.timedelta] = lambda text: dt.timedelta(microseconds=time_us(text))  # noqa: E731
    if modes.time == "isostring":
        return Codec(PLAIN, quoted, to_python, schema_of("string"))
    return Codec(CALLED, lambda text: str(time_us(text)), to_python, schema_of("int64", "io.debezium.time.MicroTime"))


def _enum(column: "ShapeColumn", _modes: TypeModes) -> Codec:
    kind = "Enum" if column.base == "enum" else "EnumSet"
    return text_codec(schema_of("string", f"io.debezium.data.{kind}", allowed=",".join(column.labels)))


_FIXED: dict[str, Callable[["ShapeColumn", TypeModes], Codec]] = {
    "decimal": _decimal,
    "bit": _bit,
    "date": _date,
    "datetime": _datetime,
    "timestamp": _timestamp,
    "time": _time,
    "enum": _enum,
    "set": _enum,
    "year": lambda _column, _modes: Codec(VERBATIM, str, _same, schema_of("int32", "io.debezium.time.Year")),
    "float": lambda _column, _modes: Codec(CALLED, float_json, _same, schema_of("float")),
    "double": lambda _column, _modes: Codec(CALLED, repr, _same, schema_of("double")),
    "uuid": lambda _column, _modes: text_codec(schema_of("string", "io.debezium.data.Uuid")),
    "inet6": lambda _column, _modes: text_codec(),
    "inet4": lambda _column, _modes: text_codec(),
}
