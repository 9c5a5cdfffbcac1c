"""The events of the binary log, told apart: which they are, and what is in those that are not about rows. Pure."""

import struct
import zlib
from enum import IntEnum
from typing import Final, NamedTuple

from headrace.connect.errors import ConnectError

HEADER_BYTES: Final = 19
_HEADER: Final = struct.Struct("<IBIIIH").unpack_from
_QUERY: Final = struct.Struct("<IIBHH").unpack_from
_MARIADB_GTID: Final = struct.Struct("<QIB").unpack_from
_COMPRESSED: Final = 0x07  # bits that say how many bytes the length has


class CorruptLog(ConnectError):
    """Bytes of the binary log that make no sense."""

    def __init__(self, what: str) -> None:
        super().__init__(
            f"the binary log cannot be read ({what}): run mariadb-binlog or mysqlbinlog on it, or update headrace"
        )


class Kind(IntEnum):
    """The events that mean something here, and those that are known to say nothing about rows."""

    QUERY = 2
    STOP = 3
    ROTATE = 4
    INTVAR = 5
    APPEND_BLOCK = 9
    DELETE_FILE = 11
    RAND = 13
    USER_VAR = 14
    FORMAT = 15
    XID = 16
    BEGIN_LOAD = 17
    EXECUTE_LOAD = 18
    TABLE_MAP = 19
    WRITE_V1 = 23
    UPDATE_V1 = 24
    DELETE_V1 = 25
    INCIDENT = 26
    HEARTBEAT = 27
    IGNORABLE = 28
    ROWS_QUERY = 29
    WRITE = 30
    UPDATE = 31
    DELETE = 32
    MYSQL_GTID = 33
    ANONYMOUS_GTID = 34
    PREVIOUS_GTIDS = 35
    TRANSACTION_CONTEXT = 36
    VIEW_CHANGE = 37
    XA_PREPARE = 38
    PARTIAL_UPDATE = 39
    PAYLOAD = 40
    HEARTBEAT_V2 = 41
    TAGGED_GTID = 42
    ANNOTATE = 160
    CHECKPOINT = 161
    MARIADB_GTID = 162
    GTID_LIST = 163
    START_ENCRYPTION = 164
    QUERY_COMPRESSED = 165
    WRITE_COMPRESSED_V1 = 166
    UPDATE_COMPRESSED_V1 = 167
    DELETE_COMPRESSED_V1 = 168
    WRITE_COMPRESSED = 169
    UPDATE_COMPRESSED = 170
    DELETE_COMPRESSED = 171


SILENT: Final = frozenset(
    {
        Kind.STOP, Kind.INTVAR, Kind.APPEND_BLOCK, Kind.DELETE_FILE, Kind.RAND, Kind.USER_VAR, Kind.BEGIN_LOAD,
        Kind.HEARTBEAT, Kind.IGNORABLE, Kind.ROWS_QUERY, Kind.PREVIOUS_GTIDS, Kind.TRANSACTION_CONTEXT,
        Kind.VIEW_CHANGE, Kind.HEARTBEAT_V2, Kind.ANNOTATE, Kind.CHECKPOINT, Kind.GTID_LIST, Kind.START_ENCRYPTION,
    }
)  # fmt: skip
MAY_BE_IGNORED: Final = 0x80  # a flag of the header: who does not know the event loses nothing


class Header(NamedTuple):
    """What every event begins with; `end` is the place behind it in its file."""

    timestamp_s: int
    kind: int
    server_id: int
    size: int
    end: int
    flags: int


def read_header(data: bytes) -> Header:
    if len(data) < HEADER_BYTES:
        raise CorruptLog(f"an event of {len(data)} bytes")
    return Header(*_HEADER(data))


def checked_body(data: bytes, *, has_checksum: bool) -> bytes:
    """What stands between header and checksum."""
    if not has_checksum:
        return data[HEADER_BYTES:]
    if zlib.crc32(data[:-4]) != int.from_bytes(data[-4:], "little"):
        raise CorruptLog("a checksum does not fit")
    return data[HEADER_BYTES:-4]


class Statement(NamedTuple):
    """A statement, the database that was in use, and the SQL mode in which it was meant."""

    database: str
    text: str
    sql_mode: int = 0


def read_query(body: bytes, *, is_compressed: bool = False, is_load: bool = False) -> Statement:
    """A QUERY event, or one that loads a file."""
    _thread, _seconds, database_size, _error, status_size = _QUERY(body)
    start = 13 + (_LOAD_BYTES if is_load else 0)
    at = start + status_size
    sql_mode, codec = _session(body[start:at])
    database = body[at : at + database_size].decode(errors="replace")
    text = body[at + database_size + 1 :]
    if is_compressed:
        text = inflate(text)
    return Statement(database, text.decode(codec, errors="replace"), sql_mode)


_LOAD_BYTES: Final = 13  # the file's number, two places in the statement, what to do with duplicates
_SIZES: Final = {0: 4, 1: 8, 3: 4, 4: 6, 7: 2, 8: 2}  # of the variables of a session, by their numbers
_SQL_MODE, _CATALOG, _CHARSET, _ZONE, _CATALOG_NOW = 1, 2, 4, 5, 6
# Character sets of clients that are no part of UTF-8, by the numbers of their collations.
_CLIENTS: Final = {
    number: codec
    for codec, numbers in {
        "cp1252": (5, 8, 15, 31, 47, 48, 49, 94), "iso8859_2": (2, 9, 21, 27, 77), "iso8859_9": (30, 78),
        "iso8859_13": (20, 41, 42, 79), "cp1250": (26, 34, 44, 66, 99), "cp1251": (14, 23, 50, 51, 52),
        "cp1256": (57, 67), "cp1257": (29, 58, 59), "iso8859_7": (25, 70), "iso8859_8": (16, 71), "koi8_r": (7, 74),
        "koi8_u": (22, 75), "cp850": (4, 80), "cp852": (40, 81), "cp866": (36, 68), "gbk": (28, 87),
        "gb2312": (24, 86), "big5": (1, 84), "shift_jis": (13, 88), "cp932": (95, 96), "euc_jp": (12, 91, 97, 98),
        "euc_kr": (19, 85), "tis_620": (18, 89),
    }.items()
    for number in numbers
}  # fmt: skip


def _session(status: bytes) -> tuple[int, str]:
    """The SQL mode, and how the statement's text is encoded; what comes behind them is of no use here."""
    sql_mode, codec, at = 0, "utf-8", 0
    while at < len(status):
        number = status[at]
        size = _SIZES.get(number)
        if size is None:
            if number not in (_CATALOG, _ZONE, _CATALOG_NOW) or at + 1 >= len(status):
                break
            size = 1 + status[at + 1] + (number == _CATALOG)
        value = status[at + 1 : at + 1 + size]
        if number == _SQL_MODE:
            sql_mode = int.from_bytes(value, "little")
        elif number == _CHARSET:
            codec = _CLIENTS.get(int.from_bytes(value[:2], "little"), codec)
        at += 1 + size
    return sql_mode, codec


def inflate(data: bytes) -> bytes:
    """What MariaDB compressed: a byte that says how long the length is, the length, and zlib's bytes."""
    size = data[0] & _COMPRESSED
    plain = zlib.decompress(data[1 + size :])
    if len(plain) != int.from_bytes(data[1 : 1 + size]):
        raise CorruptLog("a compressed event has another length than it says")
    return plain


class Begin(NamedTuple):
    """The transaction that begins; `is_standalone` if it is one statement and no commit follows."""

    gtid: str
    is_standalone: bool
    is_prepared: bool
    ts_us: int


_STANDALONE, _PREPARED_XA, _COMPLETED_XA = 1, 64, 128


def read_mariadb_gtid(header: Header, body: bytes) -> Begin:
    number, domain, flags = _MARIADB_GTID(body)
    return Begin(
        f"{domain}-{header.server_id}-{number}",
        bool(flags & _STANDALONE),
        bool(flags & (_PREPARED_XA | _COMPLETED_XA)),
        header.timestamp_s * 1_000_000,
    )


def read_mysql_gtid(header: Header, body: bytes) -> Begin:
    """A GTID event of MySQL; since 8.0 with the time of the commit in microseconds."""
    uuid = body[1:17].hex()
    shown = f"{uuid[:8]}-{uuid[8:12]}-{uuid[12:16]}-{uuid[16:20]}-{uuid[20:]}"
    number = int.from_bytes(body[17:25], "little")
    ts_us = header.timestamp_s * 1_000_000
    if len(body) >= 49:  # a type byte, two logical clocks, seven bytes of time
        immediate = int.from_bytes(body[42:49], "little")
        ts_us = immediate & (1 << 55) - 1 or ts_us
    return Begin(f"{shown}:{number}", False, False, ts_us)


def read_rotate(body: bytes) -> tuple[str, int]:
    """The next file, and the place in it."""
    return body[8:].decode(), int.from_bytes(body[:8], "little")
