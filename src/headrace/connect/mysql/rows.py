"""The rows inside an event, taken apart by a function that is written for its table. Pure.

A row is a bitmap of nulls and then the values that are not null; how long each is depends on its type alone. What comes
out is what a query's text becomes too: numbers as `int` and `float`, everything else as text or bytes.
"""

import struct
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeAlias

from headrace.connect.errors import ConnectError, SourceRefused
from headrace.connect.mysql import table_maps as logged
from headrace.connect.mysql import values
from headrace.connect.mysql.events import CorruptLog, Kind, inflate
from headrace.connect.mysql.shape import Shape, ShapeColumn
from headrace.connect.mysql.table_maps import LoggedColumn, TableMap, packed_number
from headrace.connect.mysql.values import decimal_reader, decimal_size, document_text, is_utf8, text_reader
from headrace.connect.table import Row, to_wire

Parse: TypeAlias = Callable[[bytes, int], tuple[Row, int]]
_INTEGERS: Final = {logged.TINY: 1, logged.SHORT: 2, logged.INT24: 3, logged.LONG: 4, logged.LONGLONG: 8}
_FLOATS: Final = {logged.FLOAT: ("<f", 4), logged.DOUBLE: ("<d", 8)}
_NEW_MOMENTS: Final = {
    logged.TIMESTAMP2: (4, values.timestamp_text),
    logged.DATETIME2: (5, values.datetime_text),
    logged.TIME2: (3, values.time_text),
}
_OLD_MOMENTS: Final = {
    logged.DATE: (3, values.date_text),
    logged.TIMESTAMP: (4, values.old_timestamp_text),
    logged.DATETIME: (8, values.old_datetime_text),
    logged.TIME: (3, values.old_time_text),
}
_UPDATES: Final = {Kind.UPDATE, Kind.UPDATE_V1, Kind.UPDATE_COMPRESSED, Kind.UPDATE_COMPRESSED_V1}
_COMPRESSED: Final = range(Kind.WRITE_COMPRESSED_V1, Kind.DELETE_COMPRESSED + 1)
_WITH_EXTRA: Final = {
    Kind.WRITE, Kind.UPDATE, Kind.DELETE, Kind.WRITE_COMPRESSED, Kind.UPDATE_COMPRESSED, Kind.DELETE_COMPRESSED,
}  # fmt: skip


class PartsOfRows(ConnectError):
    """Rows of which the log does not hold every column: a session has another binlog_row_image than FULL."""


def row_parser(announced: TableMap, shape: Shape) -> Parse:
    """A function of an event's bytes and a row's place, to the row and the place behind it."""
    count = len(announced.columns)
    null_bytes = (count + 7) // 8
    scope: dict[str, Any] = {"number": int.from_bytes}
    lines = ["def parse(d, p):", f"    n = number(d[p:p + {null_bytes}], 'little')", f"    p += {null_bytes}"]
    for index, (column, known) in enumerate(zip(announced.columns, shape.columns, strict=True)):
        lines += [f"    if n & {1 << index}:", f"        v{index} = None", "    else:"]
        lines += [f"        {line}" for line in _code(index, column, known, shape, scope)]
    row = "".join(f"v{index}, " for index in range(count))
    lines.append(f"    return ({row}), p")
    exec(compile("\n".join(lines), f"<rows of {count} columns>", "exec"), scope)  # noqa: S102 - our own text
    parse: Parse = scope["parse"]
    return parse


def _code(index: int, column: LoggedColumn, known: ShapeColumn, shape: Shape, scope: dict[str, Any]) -> Sequence[str]:
    """The lines that read one value into its variable and move on."""
    value, function = f"v{index}", f"f{index}"
    kind, size = column.type, column.size

    def fixed(length: int, expression: str) -> list[str]:
        return [f"{value} = {expression}", f"p += {length}"]

    def prefixed(width: int, expression: str) -> list[str]:
        length = "d[p]" if width == 1 else f"number(d[p:p + {width}], 'little')"
        return [f"e = p + {width} + {length}", f"{value} = {expression.format(f'd[p + {width}:e]')}", "p = e"]

    if kind in _INTEGERS:
        length = _INTEGERS[kind]
        if length == 1:
            return fixed(1, "d[p]" if known.is_unsigned else "(d[p] ^ 128) - 128")
        if length == 3:
            return fixed(3, f"number(d[p:p + 3], 'little', signed={not known.is_unsigned})")
        form = {2: "<h", 4: "<i", 8: "<q"}[length]
        scope[function] = struct.Struct(form.upper() if known.is_unsigned else form).unpack_from
        return fixed(length, f"{function}(d, p)[0]")
    if kind in _FLOATS:
        form, length = _FLOATS[kind]
        scope[function] = struct.Struct(form).unpack_from
        return fixed(length, f"{function}(d, p)[0]")
    if kind == logged.YEAR:
        return fixed(1, "d[p] + 1900 if d[p] else 0")
    if kind == logged.DECIMAL:
        length = decimal_size(size, column.scale)
        scope[function] = decimal_reader(size, column.scale)
        return fixed(length, f"{function}(d[p:p + {length}])")
    if kind in _NEW_MOMENTS:
        length, scope[function] = _NEW_MOMENTS[kind]
        length += values.fraction_size(size)
        return fixed(length, f"{function}(d[p:p + {length}], {size})")
    if kind in _OLD_MOMENTS:
        if known.precision:
            raise SourceRefused(
                f"column {shape.full_name}.{known.name} keeps its fractions of a second in MariaDB's old format",
                f"SET GLOBAL mysql56_temporal_format=ON; ALTER TABLE {shape.full_name} FORCE",
            )
        length, scope[function] = _OLD_MOMENTS[kind]
        return fixed(length, f"{function}(d[p:p + {length}])")
    if kind == logged.BIT:
        length = (size + 7) // 8
        return fixed(length, f"number(d[p:p + {length}])")
    if kind == logged.ENUM:
        labels = ["", *map(to_wire, known.labels)]
        scope[function] = labels.__getitem__
        return fixed(size, f"{function}(number(d[p:p + {size}], 'little'))")
    if kind == logged.SET:
        scope[function] = _set_reader([to_wire(label) for label in known.labels])
        return fixed(size, f"{function}(number(d[p:p + {size}], 'little'))")
    if kind == logged.JSON:
        scope[function] = lambda data: to_wire(document_text(data))
        return prefixed(size, f"{function}({{}})")
    if kind in (logged.BLOB, logged.GEOMETRY, logged.VECTOR):
        return prefixed(size, _text_or_bytes(known, shape, scope, function))
    if kind in (logged.VARCHAR, logged.VAR_STRING):
        return prefixed(1 if size < 256 else 2, _text_or_bytes(known, shape, scope, function))
    if kind == logged.STRING:
        return prefixed(1 if size < 256 else 2, _text_or_bytes(known, shape, scope, function, size))
    raise SourceRefused(
        f"column {shape.full_name}.{known.name} has a type that is not read here ({known.type}, {kind} in the log)",
        f"ALTER TABLE {shape.full_name} MODIFY {known.name} …, or exclude the table",
    )


def _text_or_bytes(known: ShapeColumn, shape: Shape, scope: dict[str, Any], function: str, pad: int = 0) -> str:
    """How bytes of a string are read, `{}` being the bytes."""
    if known.base in _PACKED:
        scope[function] = _PACKED[known.base]
        return f"{function}({{}})"
    if known.charset is None:
        return f"{{}}.ljust({pad}, b'\\0')" if pad else "{}"  # a BINARY comes without the zeros at its end
    if is_utf8(known.charset):
        return "{}.decode('latin-1')"
    scope[function] = text_reader(known.charset, f"{shape.full_name}.{known.name}")
    return f"{function}({{}})"


def _uuid(data: bytes) -> str:
    """MariaDB keeps UUIDs of most versions with their segments turned around, so that those of one time are close."""
    data = data.ljust(16, b"\0")
    if data[8] & 0x80 > 0 or not 0x10 <= data[8] < 0x60:
        parts = [data[:4], data[4:6], data[6:8], data[8:10], data[10:]]
    else:
        parts = [data[12:], data[10:12], data[8:10], data[6:8], data[:6]]
    return "-".join(part.hex() for part in parts)


def _inet6(data: bytes) -> str:
    import ipaddress

    address = ipaddress.IPv6Address(data.ljust(16, b"\0"))
    if address.ipv4_mapped is not None:
        return f"::ffff:{address.ipv4_mapped}"
    return str(address)


def _inet4(data: bytes) -> str:
    return ".".join(str(part) for part in data.ljust(4, b"\0"))


_PACKED: Final = {"uuid": _uuid, "inet6": _inet6, "inet4": _inet4}


def _set_reader(labels: list[str]) -> Callable[[int], str]:
    def read(bits: int) -> str:
        return ",".join(label for index, label in enumerate(labels) if bits >> index & 1)

    return read


def rows_table_id(body: bytes) -> int:
    """Which announcement an event's rows belong to."""
    return int.from_bytes(body[:6], "little")


def read_rows(kind: int, body: bytes, columns: int, parse: Parse) -> list[tuple[Row | None, Row | None]]:
    """The rows of an event: before and after, None where there is none."""
    at = 8
    if kind in _WITH_EXTRA:
        at += int.from_bytes(body[8:10], "little")
    count, at = packed_number(body, at)
    bitmap = (count + 7) // 8
    images = 2 if kind in _UPDATES else 1
    whole = (1 << count) - 1
    for _ in range(images):
        if int.from_bytes(body[at : at + bitmap], "little") & whole != whole:
            raise PartsOfRows
        at += bitmap
    if count != columns:
        raise CorruptLog(f"rows of {count} columns in a table of {columns}")
    if kind in _COMPRESSED:
        body, at = inflate(body[at:]), 0
    found: list[tuple[Row | None, Row | None]] = []
    end = len(body)
    is_delete = kind in (Kind.DELETE, Kind.DELETE_V1, Kind.DELETE_COMPRESSED, Kind.DELETE_COMPRESSED_V1)
    while at < end:
        row, at = parse(body, at)
        if images == 2:
            after, at = parse(body, at)
            found.append((row, after))
        else:
            found.append((row, None) if is_delete else (None, row))
    return found
