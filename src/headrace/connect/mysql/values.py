"""Values inside the log's rows: binary JSON, moments, exact numbers and character sets, as a query shows them.

Pure.

An object or array begins with its count and size; keys and values are found by offsets from there, and small values
stand in the place of their offset. The large form has four bytes where the small one has two. (MariaDB stores text.)
"""

import base64
import datetime as dt
import struct
from collections.abc import Callable
from functools import lru_cache
from json import dumps
from typing import Final

from headrace.connect.errors import ConnectError, SourceRefused
from headrace.connect.table import to_wire

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


_UTF8: Final = {"utf8mb4", "utf8mb3", "utf8", "ascii"}
_CODECS: Final = {
    "latin1": "cp1252", "latin2": "iso8859_2", "latin5": "iso8859_9", "latin7": "iso8859_13", "ucs2": "utf_16_be",
    "utf16": "utf_16_be", "utf16le": "utf_16_le", "utf32": "utf_32_be", "cp1250": "cp1250", "cp1251": "cp1251",
    "cp1256": "cp1256", "cp1257": "cp1257", "cp850": "cp850", "cp852": "cp852", "cp866": "cp866", "cp932": "cp932",
    "sjis": "shift_jis", "ujis": "euc_jp", "eucjpms": "euc_jp", "euckr": "euc_kr", "gb2312": "gb2312", "gbk": "gbk",
    "gb18030": "gb18030", "big5": "big5", "greek": "iso8859_7", "hebrew": "iso8859_8", "koi8r": "koi8_r",
    "koi8u": "koi8_u", "tis620": "tis_620", "macroman": "mac_roman", "macce": "mac_latin2",
}  # fmt: skip


def is_utf8(charset: str) -> bool:
    """Whether the bytes are wire text as they stand."""
    return charset in _UTF8


def text_reader(charset: str, where: str) -> Callable[[bytes], str]:
    """A function from bytes in a character set to wire text."""
    if charset in _UTF8:
        return lambda data: data.decode("latin-1")
    codec = _CODECS.get(charset)
    if codec is None:
        raise SourceRefused(
            f"column {where} has the character set {charset}, which is not read here",
            f"ALTER TABLE {where.rpartition('.')[0]} CONVERT TO CHARACTER SET utf8mb4",
        )

    def read(data: bytes) -> str:
        try:
            return to_wire(data.decode(codec))
        except UnicodeDecodeError:
            # Five bytes of cp1252 mean nothing to the rest of the world; MySQL takes them as control characters.
            return to_wire("".join(_one(byte, codec) for byte in data))

    return read


def _one(byte: int, codec: str) -> str:
    try:
        return bytes([byte]).decode(codec)
    except UnicodeDecodeError:
        return chr(byte)


_EPOCH = dt.datetime(1970, 1, 1)  # noqa: DTZ001 - the text that is made of it is UTC and says so nowhere
_SIGN_DATETIME = 1 << 39
_SIGN_TIME = 1 << 23


def fraction_size(precision: int) -> int:
    """How many bytes a fraction of so many digits takes."""
    return (precision + 1) // 2


def _fraction(data: bytes, precision: int) -> str:
    """Hundredths, ten-thousandths or millionths, shown with the digits that the column has."""
    if not precision:
        return ""
    digits = 2 * fraction_size(precision)
    return f".{int.from_bytes(data):0{digits}d}"[: precision + 1]


def date_text(data: bytes) -> str:
    """Three bytes: day, month, year."""
    packed = int.from_bytes(data, "little")
    return f"{packed >> 9:04d}-{packed >> 5 & 15:02d}-{packed & 31:02d}"


def datetime_text(data: bytes, precision: int) -> str:
    """Five bytes, and a fraction."""
    packed = int.from_bytes(data[:5]) - _SIGN_DATETIME
    year, month = divmod(packed >> 22, 13)
    clock = f"{packed >> 12 & 31:02d}:{packed >> 6 & 63:02d}:{packed & 63:02d}"
    text = f"{year:04d}-{month:02d}-{packed >> 17 & 31:02d} {clock}"
    return text + _fraction(data[5:], precision) if precision else text


def timestamp_text(data: bytes, precision: int) -> str:
    """Seconds since 1970, and a fraction; in UTC. Nothing at all stands for `0000-00-00 00:00:00`."""
    seconds = int.from_bytes(data[:4])
    fraction = _fraction(data[4:], precision)
    if not seconds and not any(data[4:]):
        return f"0000-00-00 00:00:00{fraction}"
    return f"{_EPOCH + dt.timedelta(seconds=seconds)}{fraction}"


def time_text(data: bytes, precision: int) -> str:
    """Three bytes and a fraction; a negative time is the complement of both together."""
    size = 3 + fraction_size(precision)
    packed = int.from_bytes(data[:size])
    middle = _SIGN_TIME << 8 * (size - 3)
    is_negative = packed < middle
    packed = abs(packed - middle)
    clock, fraction = packed >> 8 * (size - 3), packed & (1 << 8 * (size - 3)) - 1
    shown = _fraction(fraction.to_bytes(size - 3), precision)
    return f"{'-' if is_negative else ''}{clock >> 12 & 1023:02d}:{clock >> 6 & 63:02d}:{clock & 63:02d}{shown}"


def old_datetime_text(data: bytes) -> str:
    """Eight bytes holding the digits YYYYMMDDhhmmss, as before MySQL 5.6."""
    digits = f"{int.from_bytes(data, 'little'):014d}"
    return f"{digits[:4]}-{digits[4:6]}-{digits[6:8]} {digits[8:10]}:{digits[10:12]}:{digits[12:14]}"


def old_timestamp_text(data: bytes) -> str:
    """Four bytes of seconds, as before MySQL 5.6."""
    return timestamp_text(data[::-1], 0)


def old_time_text(data: bytes) -> str:
    """Three bytes holding the digits hhmmss, as before MySQL 5.6."""
    number = int.from_bytes(data, "little", signed=True)
    digits = f"{abs(number):06d}"
    return f"{'-' if number < 0 else ''}{digits[:-4]}:{digits[-4:-2]}:{digits[-2:]}"


_SIZES: Final = (0, 1, 1, 2, 2, 3, 3, 4, 4, 4)  # bytes for so many digits


def decimal_size(precision: int, scale: int) -> int:
    """How many bytes a decimal takes."""
    whole = precision - scale
    return whole // 9 * 4 + _SIZES[whole % 9] + scale // 9 * 4 + _SIZES[scale % 9]


@lru_cache(maxsize=256)
def decimal_reader(precision: int, scale: int) -> Callable[[bytes], str]:
    """A function from such bytes to text with all digits of the scale."""
    whole = precision - scale
    size = decimal_size(precision, scale)
    left = _groups([whole % 9] + [9] * (whole // 9), 8 * size)
    right = _groups([9] * (scale // 9) + [scale % 9], 8 * (size - decimal_size(whole, 0)))
    sign, ones = 1 << 8 * size - 1, (1 << 8 * size) - 1
    form = f"%d.%0{scale}d" if scale else "%d"

    def read(data: bytes) -> str:
        number = int.from_bytes(data) ^ sign
        is_negative = number & sign
        if is_negative:
            number ^= ones
        units = 0
        for shift, mask, factor in left:
            units = units * factor + (number >> shift & mask)
        if not scale:
            return f"-{units}" if is_negative else str(units)
        parts = 0
        for shift, mask, factor in right:
            parts = parts * factor + (number >> shift & mask)
        shown = form % (units, parts)
        return f"-{shown}" if is_negative else shown

    return read


def _groups(digits: list[int], bits: int) -> list[tuple[int, int, int]]:
    """Where each group of digits is: shift, mask, and what the groups before it count for."""
    found = []
    for count in filter(None, digits):
        width = 8 * _SIZES[count]
        bits -= width
        found.append((bits, (1 << width) - 1, 10**count))
    return found
