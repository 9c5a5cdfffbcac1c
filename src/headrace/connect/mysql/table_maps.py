"""A table as the binary log announces it before its rows: types and what they need to be read, seldom names. Pure."""

from dataclasses import dataclass
from typing import Final

from headrace.connect.mysql.events import CorruptLog

TINY, SHORT, LONG, FLOAT, DOUBLE, TIMESTAMP, LONGLONG, INT24 = 1, 2, 3, 4, 5, 7, 8, 9
DATE, TIME, DATETIME, YEAR, VARCHAR, BIT, TIMESTAMP2, DATETIME2, TIME2 = 10, 11, 12, 13, 15, 16, 17, 18, 19
BLOB_COMPRESSED, VARCHAR_COMPRESSED, VECTOR = 140, 141, 242
JSON, DECIMAL, ENUM, SET, BLOB, VAR_STRING, STRING, GEOMETRY = 245, 246, 247, 248, 252, 253, 254, 255
_ONE_BYTE: Final = {FLOAT, DOUBLE, BLOB, GEOMETRY, JSON, TIMESTAMP2, DATETIME2, TIME2, BLOB_COMPRESSED, VECTOR}
_TWO_BYTES: Final = {VARCHAR, VAR_STRING, BIT, DECIMAL, STRING, ENUM, SET, VARCHAR_COMPRESSED}
_NAMES_FIELD = 4


@dataclass(frozen=True, slots=True)
class LoggedColumn:
    """A column's type as the log has it; what `size` and `scale` are depends on it."""

    type: int
    size: int = 0
    scale: int = 0


@dataclass(frozen=True, slots=True)
class TableMap:
    id: int
    database: str
    table: str
    columns: tuple[LoggedColumn, ...]
    names: tuple[str, ...] | None  # only with binlog_row_metadata=FULL


def read_table_map(body: bytes) -> TableMap:
    table_id = int.from_bytes(body[:6], "little")
    at = 8
    size = body[at]
    database = body[at + 1 : at + 1 + size].decode()
    at += size + 2
    size = body[at]
    table = body[at + 1 : at + 1 + size].decode()
    at += size + 2
    count, at = packed_number(body, at)
    types = body[at : at + count]
    at += count
    size, at = packed_number(body, at)
    columns = _columns(types, body[at : at + size])
    at += size + (count + 7) // 8
    return TableMap(table_id, database, table, columns, _names(body, at))


def packed_number(data: bytes, at: int) -> tuple[int, int]:
    """A number in one to nine bytes, and the place behind."""
    first = data[at]
    if first < 251:
        return first, at + 1
    size = {252: 2, 253: 3, 254: 8}.get(first)
    if size is None:
        raise CorruptLog(f"a number that begins with {first}")
    return int.from_bytes(data[at + 1 : at + 1 + size], "little"), at + 1 + size


def _columns(types: bytes, metadata: bytes) -> tuple[LoggedColumn, ...]:
    found = []
    at = 0
    for kind in types:
        if kind in _ONE_BYTE:
            found.append(LoggedColumn(kind, metadata[at]))
            at += 1
        elif kind in _TWO_BYTES:
            found.append(_two_bytes(kind, metadata[at], metadata[at + 1]))
            at += 2
        else:
            found.append(LoggedColumn(kind))
    return tuple(found)


def _two_bytes(kind: int, first: int, second: int) -> LoggedColumn:
    if kind == DECIMAL:
        return LoggedColumn(kind, first, second)
    if kind == BIT:
        return LoggedColumn(kind, second * 8 + first)
    if kind == STRING:
        # The real type is in the first byte; lengths above 255 have their two high bits there as well, inverted.
        if first & 0x30 != 0x30:
            return LoggedColumn(first | 0x30, second | ((first & 0x30) ^ 0x30) << 4)
        return LoggedColumn(first, second)
    return LoggedColumn(kind, second << 8 | first)


def _names(body: bytes, at: int) -> tuple[str, ...] | None:
    while at < len(body):
        field = body[at]
        size, at = packed_number(body, at + 1)
        if field == _NAMES_FIELD:
            end = at + size
            names = []
            while at < end:
                length, at = packed_number(body, at)
                names.append(body[at : at + length].decode())
                at += length
            return tuple(names)
        at += size
    return None
