"""Datagrams of a group: what their bytes mean. Pure: bytes in, values out.

    every datagram   magic "HM" · version 1 · kind, with SEALED set if a tag follows · source · incarnation · time in ms
    DATA, REPAIR     sequence · how many before it are held · number of the first message · age of the session in ms,
                     then pieces: flags (BEGIN, END) · length · bytes
    HEARTBEAT        next sequence · how many before it are held · number of the next message · age in ms · flags · name
    NAK              receiver · number of this NAK · count, then ranges: first sequence · how many
    a tag            the first 16 bytes of HMAC-SHA256 over all before it

All numbers are big-endian. Sequences count datagrams, numbers count messages. What always holds of a datagram that was
read: only its first piece continues a message, only its last is continued, and no number in it overflows.
"""

import hmac
import struct
from dataclasses import dataclass
from enum import IntEnum
from typing import Final, NamedTuple

from headrace.gateways.errors import GatewayError

MAGIC: Final = b"HM"
VERSION: Final = 1
SEALED: Final = 0x80
BEGIN, END = 1, 2  # of a piece
LAST, MIDDLE = 1, 2  # of a heartbeat: the session is over; the next datagram continues a message
TAG_BYTES: Final = 16
MOST_RANGES: Final = 96
MOST_NAME_BYTES: Final = 200
MOST_DATAGRAM_BYTES: Final = 65_507  # of UDP over IPv4
_HEAD: Final = struct.Struct("!2sBBQQQ")
_DATA: Final = struct.Struct("!QIQI")
_PIECE: Final = struct.Struct("!BH")
_BEAT: Final = struct.Struct("!QIQIB")
_NAK: Final = struct.Struct("!QQH")
_RANGE: Final = struct.Struct("!QI")
_LIMIT: Final = 1 << 62
MOST_AGE_MS: Final = 0xFFFF_FFFF
_MOST_HELD: Final = 0xFFFF_FFFF
AROUND_BYTES: Final = _HEAD.size + _DATA.size + TAG_BYTES
PIECE_BYTES: Final = _PIECE.size


class InvalidDatagram(GatewayError):
    """A datagram that is not of this protocol, or damaged, or not sealed with our key."""


class Kind(IntEnum):
    DATA = 1
    REPAIR = 2
    HEARTBEAT = 3
    NAK = 4


class Session(NamedTuple):
    """One life of one publisher: the source stays over restarts, the incarnation does not."""

    source: int
    incarnation: int

    def __str__(self) -> str:
        return f"{self.source:016x}-{self.incarnation:016x}"

    @classmethod
    def read(cls, text: str) -> "Session":
        source, _, incarnation = text.partition("-")
        return cls(int(source, 16), int(incarnation, 16))


class Piece(NamedTuple):
    """A message, or a part of one."""

    flags: int
    data: bytes


class Data(NamedTuple):
    session: Session
    is_repair: bool
    sequence: int
    held: int
    message: int  # the number of the first piece's
    age_ms: int
    pieces: tuple[Piece, ...]
    size: int


class Heartbeat(NamedTuple):
    session: Session
    sequence: int
    held: int
    message: int
    age_ms: int
    flags: int
    name: str


class Nak(NamedTuple):
    session: Session
    receiver: int
    number: int
    ranges: tuple[tuple[int, int], ...]  # first and count


Datagram = Data | Heartbeat | Nak


@dataclass(frozen=True, slots=True)
class Seal:
    """The shared key of a group: what is not sealed with it, or too long ago, is refused."""

    key: bytes
    window_s: float = 30.0

    def tag(self, data: bytes) -> bytes:
        return hmac.digest(self.key, data, "sha256")[:TAG_BYTES]


def write_data(
    session: Session,
    *,
    is_repair: bool,
    sequence: int,
    held: int,
    message: int,
    age_ms: int,
    pieces: bytes,
    wall_ms: int,
    seal: Seal | None,
) -> bytes:
    """A datagram around pieces that `write_piece` wrote."""
    kind = Kind.REPAIR if is_repair else Kind.DATA
    body = _DATA.pack(sequence, min(held, _MOST_HELD), message, min(age_ms, MOST_AGE_MS))
    return _sealed(_head(session, kind, wall_ms, seal) + body + pieces, seal)


def write_piece(flags: int, data: bytes) -> bytes:
    return _PIECE.pack(flags, len(data)) + data


def write_heartbeat(beat: Heartbeat, wall_ms: int, seal: Seal | None) -> bytes:
    body = _BEAT.pack(
        beat.sequence, min(beat.held, _MOST_HELD), beat.message, min(beat.age_ms, MOST_AGE_MS), beat.flags
    )
    head = _head(beat.session, Kind.HEARTBEAT, wall_ms, seal)
    return _sealed(head + body + beat.name.encode()[:MOST_NAME_BYTES], seal)


def write_nak(nak: Nak, wall_ms: int, seal: Seal | None) -> bytes:
    assert 0 < len(nak.ranges) <= MOST_RANGES
    body = _NAK.pack(nak.receiver, nak.number, len(nak.ranges))
    ranges = b"".join(_RANGE.pack(first, count) for first, count in nak.ranges)
    return _sealed(_head(nak.session, Kind.NAK, wall_ms, seal) + body + ranges, seal)


def _head(session: Session, kind: Kind, wall_ms: int, seal: Seal | None) -> bytes:
    flagged = kind if seal is None else kind | SEALED
    return _HEAD.pack(MAGIC, VERSION, flagged, session.source, session.incarnation, wall_ms)


def _sealed(data: bytes, seal: Seal | None) -> bytes:
    return data if seal is None else data + seal.tag(data)


def read_datagram(data: bytes, wall_ms: int, seal: Seal | None) -> Datagram:
    """What a datagram says; raises `InvalidDatagram` in one sentence."""
    size = len(data)
    if size < _HEAD.size or data[:2] != MAGIC:
        raise InvalidDatagram(
            f"a datagram of {size} bytes is not of this protocol: does another program use the group?"
        )
    _, version, flagged, source, incarnation, time_ms = _HEAD.unpack_from(data)
    if version != VERSION:
        raise InvalidDatagram(f"a datagram has version {version} and {VERSION} is known: update this program")
    end = size
    if seal is not None:
        if not flagged & SEALED:
            raise InvalidDatagram("a datagram is not sealed and this group has a key: give its sender the key")
        end -= TAG_BYTES
        if end < _HEAD.size or not hmac.compare_digest(seal.tag(data[:end]), data[end:]):
            raise InvalidDatagram("a datagram is sealed with another key, or was changed on its way")
        if abs(wall_ms - time_ms) > seal.window_s * 1000:
            raise InvalidDatagram(
                f"a sealed datagram is {abs(wall_ms - time_ms) / 1000:.0f} s away from this clock: it was recorded and "
                "sent again, or the clocks differ"
            )
    elif flagged & SEALED:
        raise InvalidDatagram("a datagram is sealed and no key is set here: give this program the group's key")
    session = Session(source, incarnation)
    kind = flagged & ~SEALED
    if kind in (Kind.DATA, Kind.REPAIR):
        return _read_data(session, kind == Kind.REPAIR, data, end)
    if kind == Kind.HEARTBEAT:
        return _read_heartbeat(session, data, end)
    if kind == Kind.NAK:
        return _read_nak(session, data, end)
    raise InvalidDatagram(f"a datagram is of kind {kind}, which is not known: update this program")


def _read_data(session: Session, is_repair: bool, data: bytes, end: int) -> Data:
    place = _HEAD.size + _DATA.size
    if place >= end:
        raise _cut()
    sequence, held, message, age_ms = _DATA.unpack_from(data, _HEAD.size)
    pieces: list[Piece] = []
    while place < end:
        begin = place + PIECE_BYTES
        if begin >= end:
            raise _cut()
        flags, length = _PIECE.unpack_from(data, place)
        place = begin + length
        if place > end or not length:
            raise _cut()
        if flags > BEGIN | END or (pieces and not (flags & BEGIN and pieces[-1].flags & END)):
            raise InvalidDatagram("a datagram has pieces that do not follow each other")
        pieces.append(Piece(flags, data[begin:place]))
    if held > sequence or sequence >= _LIMIT or message >= _LIMIT:
        raise _beyond()
    return Data(session, is_repair, sequence, held, message, age_ms, tuple(pieces), len(data))


def _read_heartbeat(session: Session, data: bytes, end: int) -> Heartbeat:
    place = _HEAD.size + _BEAT.size
    if place > end or end - place > MOST_NAME_BYTES:
        raise _cut()
    sequence, held, message, age_ms, flags = _BEAT.unpack_from(data, _HEAD.size)
    if held > sequence or sequence >= _LIMIT or message >= _LIMIT:
        raise _beyond()
    name = data[place:end].decode(errors="replace")
    return Heartbeat(session, sequence, held, message, age_ms, flags, name)


def _read_nak(session: Session, data: bytes, end: int) -> Nak:
    place = _HEAD.size + _NAK.size
    if place > end:
        raise _cut()
    receiver, number, count = _NAK.unpack_from(data, _HEAD.size)
    if not 0 < count <= MOST_RANGES or end - place != count * _RANGE.size:
        raise _cut()
    ranges = tuple((first, many) for first, many in _RANGE.iter_unpack(data[place:end]))
    if any(first >= _LIMIT or not many for first, many in ranges):
        raise _beyond()
    return Nak(session, receiver, number, ranges)


def _cut() -> InvalidDatagram:
    return InvalidDatagram("a datagram ends before what it holds does: it was cut, or changed on its way")


def _beyond() -> InvalidDatagram:
    return InvalidDatagram("a datagram has a number that no sender reaches: it was changed on its way")
