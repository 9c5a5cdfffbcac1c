"""MySQL's binary JSON, made into the text that MySQL shows for it. Pure.

An object or array begins with its count and size; keys and values are found by offsets from there, and small values
stand in the place of their offset. The large form has four bytes where the small one has two. (MariaDB stores text.)
"""

import base64
import struct
from json import dumps
from typing import Final

from headrace.connect.errors import ConnectError
from headrace.connect.mysql.moments import datetime_text, time_text
from headrace.connect.mysql.numbers import decimal_reader

_SMALL_OBJECT, _LARGE_OBJECT, _SMALL_ARRAY, _LARGE_ARRAY, _LITERAL = 0, 1, 2, 3, 4
_INT16, _UINT16, _INT32, _UINT32, _INT64, _UINT64, _DOUBLE, _STRING, _OPAQUE = 5, 6, 7, 8, 9, 10, 11, 12, 15
_LITERALS: Final = {0: "null", 1: "true", 2: "false"}
_NUMBERS: Final = {_INT16: "<h", _UINT16: "<H", _INT32: "<i", _UINT32: "<I", _INT64: "<q", _UINT64: "<Q"}
_DATE, _TIME, _DATETIME, _TIMESTAMP, _DECIMAL = 10, 11, 12, 7, 246


class BrokenDocument(ConnectError):
    """Bytes that are no binary JSON."""

    def __init__(self, what: str) -> None:
        super().__init__(f"a JSON document in the binary log cannot be read ({what}): update headrace")


def document_text(data: bytes) -> str:
    """A whole document; an empty one is what a statement with IGNORE leaves, and means null."""
    if not data:
        return "null"
    try:
        return _value(data[0], data, 1)
    except (IndexError, struct.error, UnicodeDecodeError) as error:
        raise BrokenDocument(str(error)) from error


def _value(kind: int, data: bytes, at: int) -> str:
    if kind <= _LARGE_ARRAY:
        return _container(data, at, is_large=kind in (_LARGE_OBJECT, _LARGE_ARRAY), is_object=kind <= _LARGE_OBJECT)
    if kind == _LITERAL:
        return _literal(data[at])
    if kind in _NUMBERS:
        return str(struct.unpack_from(_NUMBERS[kind], data, at)[0])
    if kind == _DOUBLE:
        return repr(struct.unpack_from("<d", data, at)[0])
    if kind == _STRING:
        size, at = _length(data, at)
        return dumps(data[at : at + size].decode(), ensure_ascii=False)
    if kind == _OPAQUE:
        size, start = _length(data, at + 1)
        return _opaque(data[at], data[start : start + size])
    raise BrokenDocument(f"unknown type {kind}")


def _literal(value: int) -> str:
    if value not in _LITERALS:
        raise BrokenDocument(f"unknown literal {value}")
    return _LITERALS[value]


def _container(data: bytes, start: int, *, is_large: bool, is_object: bool) -> str:
    width = 4 if is_large else 2

    def number(at: int) -> int:
        return int.from_bytes(data[at : at + width], "little")

    count = number(start)
    at = start + 2 * width
    keys = []
    if is_object:
        for index in range(count):
            entry = at + index * (width + 2)
            key = start + number(entry)
            size = int.from_bytes(data[entry + width : entry + width + 2], "little")
            keys.append(dumps(data[key : key + size].decode(), ensure_ascii=False))
        at += count * (width + 2)
    values = []
    for index in range(count):
        entry = at + index * (width + 1)
        kind = data[entry]
        if kind == _LITERAL:
            values.append(_literal(data[entry + 1]))
        elif kind in (_INT16, _UINT16) or (is_large and kind in (_INT32, _UINT32)):
            values.append(_value(kind, data, entry + 1))
        else:
            values.append(_value(kind, data, start + number(entry + 1)))
    if is_object:
        return "{" + ", ".join(f"{key}: {value}" for key, value in zip(keys, values, strict=True)) + "}"
    return "[" + ", ".join(values) + "]"


def _length(data: bytes, at: int) -> tuple[int, int]:
    """Seven bits a byte, the lowest first; and the place behind."""
    size = shift = 0
    while True:
        byte = data[at]
        at += 1
        size |= (byte & 0x7F) << shift
        if byte < 0x80:
            return size, at
        shift += 7


def _opaque(kind: int, data: bytes) -> str:
    """A value of a column type inside a document."""
    if kind == _DECIMAL:
        return decimal_reader(data[0], data[1])(data[2:])
    if kind in (_DATE, _TIME, _DATETIME, _TIMESTAMP):
        return f'"{_moment(kind, int.from_bytes(data, "little", signed=True))}"'
    return dumps(f"base64:type{kind}:{base64.b64encode(data).decode()}")


def _moment(kind: int, packed: int) -> str:
    """A moment in one number: 24 bits of microseconds below what a column holds."""
    if kind == _TIME:
        return time_text((packed + (1 << 47)).to_bytes(6), 6)
    whole, micros = packed >> 24, packed & 0xFFFFFF
    text = datetime_text((whole + (1 << 39)).to_bytes(5) + micros.to_bytes(3), 6)
    return text[:10] if kind == _DATE else text
