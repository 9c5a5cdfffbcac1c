"""pgoutput messages as a server would write them, for tests."""

import struct
from collections.abc import Sequence

from headrace.connect.change import Event, Origin, Place
from headrace.connect.postgres.decode import Decoder
from headrace.connect.postgres.relation import LogPosition, Relation
from headrace.connect.postgres.shapes import build_table
from headrace.connect.postgres.types import TypeModes
from headrace.connect.table import UNCHANGED, Table

Value = object  # str, None or UNCHANGED
INT4, INT8, TEXT = 23, 20, 25


def _text(text: str) -> bytes:
    return text.encode() + b"\0"


def _xid(xid: int | None) -> bytes:
    return b"" if xid is None else struct.pack(">I", xid)


def row(values: Sequence[Value]) -> bytes:
    found = struct.pack(">H", len(values))
    for value in values:
        if value is None:
            found += b"n"
        elif value is UNCHANGED:
            found += b"u"
        else:
            encoded = str(value).encode()
            found += b"t" + struct.pack(">I", len(encoded)) + encoded
    return found


def begin(commit_lsn: int, xid: int = 7, time: int = 0) -> bytes:
    return b"B" + struct.pack(">QqI", commit_lsn, time, xid)


def commit(commit_lsn: int, end_lsn: int) -> bytes:
    return b"C" + struct.pack(">BQQq", 0, commit_lsn, end_lsn, 0)


def relation(
    columns: Sequence[tuple[str, int, bool]],
    *,
    id_: int = 1,
    name: str = "t",
    identity: str = "d",
    xid: int | None = None,
) -> bytes:
    found = b"R" + _xid(xid) + struct.pack(">I", id_) + _text("public") + _text(name) + identity.encode()
    found += struct.pack(">H", len(columns))
    for column, type_id, is_key in columns:
        found += bytes([is_key]) + _text(column) + struct.pack(">Ii", type_id, -1)
    return found


def insert(values: Sequence[Value], *, id_: int = 1, xid: int | None = None) -> bytes:
    return b"I" + _xid(xid) + struct.pack(">I", id_) + b"N" + row(values)


def update(
    values: Sequence[Value],
    *,
    key: Sequence[Value] | None = None,
    old: Sequence[Value] | None = None,
    id_: int = 1,
) -> bytes:
    found = b"U" + struct.pack(">I", id_)
    if key is not None:
        found += b"K" + row(key)
    if old is not None:
        found += b"O" + row(old)
    return found + b"N" + row(values)


def delete(key: Sequence[Value], *, id_: int = 1, whole: bool = False) -> bytes:
    return b"D" + struct.pack(">I", id_) + (b"O" if whole else b"K") + row(key)


def truncate(*ids: int) -> bytes:
    return b"T" + struct.pack(">IB", len(ids), 0) + b"".join(struct.pack(">I", id_) for id_ in ids)


def message(prefix: str, content: bytes, *, lsn: int = 0, transactional: bool = True) -> bytes:
    flags = 1 if transactional else 0
    return b"M" + struct.pack(">BQ", flags, lsn) + _text(prefix) + struct.pack(">I", len(content)) + content


def stream_start(xid: int, *, first: bool = True) -> bytes:
    return b"S" + struct.pack(">IB", xid, first)


STREAM_STOP = b"E"


def stream_commit(xid: int, commit_lsn: int, end_lsn: int) -> bytes:
    return b"c" + struct.pack(">IBQQq", xid, 0, commit_lsn, end_lsn, 0)


def stream_abort(xid: int, subxid: int) -> bytes:
    return b"A" + struct.pack(">II", xid, subxid)


def begin_prepare(lsn: int, xid: int, gid: str) -> bytes:
    return b"b" + struct.pack(">QQqI", lsn, lsn + 8, 0, xid) + _text(gid)


def prepare(lsn: int, xid: int, gid: str) -> bytes:
    return b"P" + struct.pack(">BQQqI", 0, lsn, lsn + 8, 0, xid) + _text(gid)


def commit_prepared(lsn: int, end_lsn: int, xid: int, gid: str) -> bytes:
    return b"K" + struct.pack(">BQQqI", 0, lsn, end_lsn, 0, xid) + _text(gid)


def rollback_prepared(lsn: int, xid: int, gid: str) -> bytes:
    return b"r" + struct.pack(">BQQqqI", 0, lsn, lsn + 8, 0, 0, xid) + _text(gid)


def resolve(announced: Relation, _origin: Origin, _place: Place, _is_known: bool) -> tuple[Table | None, list[Event]]:
    """Every table but one called `unwanted`."""
    if announced.name == "unwanted":
        return None, []
    return build_table(announced, TypeModes(), lambda _: None, None), []


def decoded(messages: Sequence[bytes], start: LogPosition | None = None) -> Decoder:
    """A decoder that was fed all of these, as the source would."""
    decoder = Decoder(resolve, start or LogPosition(0))
    for number, data in enumerate(messages):
        header = b"w" + bytes(24)
        if decoder.feed(header + data, len(header), 1000 + number):
            while not decoder.advance(2):
                pass
    return decoder
