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
    """The events that mean something here."""

    QUERY = 2
    STOP = 3
    ROTATE = 4
    FORMAT = 15
    XID = 16
    TABLE_MAP = 19
    WRITE_V1 = 23
    UPDATE_V1 = 24
    DELETE_V1 = 25
    INCIDENT = 26
    HEARTBEAT = 27
    WRITE = 30
    UPDATE = 31
    DELETE = 32
    MYSQL_GTID = 33
    ANONYMOUS_GTID = 34
    XA_PREPARE = 38
    PARTIAL_UPDATE = 39
    PAYLOAD = 40
    HEARTBEAT_V2 = 41
    TAGGED_GTID = 42
    MARIADB_GTID = 162
    QUERY_COMPRESSED = 165
    WRITE_COMPRESSED_V1 = 166
    UPDATE_COMPRESSED_V1 = 167
    DELETE_COMPRESSED_V1 = 168
    WRITE_COMPRESSED = 169
    UPDATE_COMPRESSED = 170
    DELETE_COMPRESSED = 171


class Header(NamedTuple):
    """What every event begins with; `end` is the place behind it in its file."""

    timestamp_s: int
    kind: int
    server_id: int
    size: int
    end: int
    flags: int


def read_header(data: bytes) -> Header:
    """The header of an event."""
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
    """A statement, and the database that was in use."""

    database: str
    text: str


def read_query(body: bytes, *, is_compressed: bool) -> Statement:
    """A QUERY event."""
    _thread, _seconds, database_size, _error, status_size = _QUERY(body)
    at = 13 + status_size
    database = body[at : at + database_size].decode(errors="replace")
    text = body[at + database_size + 1 :]
    if is_compressed:
        text = inflate(text)
    return Statement(database, text.decode(errors="replace"))


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
    """A GTID event of MariaDB."""
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
