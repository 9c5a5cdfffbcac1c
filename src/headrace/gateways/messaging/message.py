"""The form that a message has between two programs, on ZeroMQ and on nng alike: one frame. Pure.

    topic, UTF-8, at most 255 bytes | 00 | head, 36 bytes | headers | key | value, to the end of the frame

    head, big-endian: "HR" | version u8 = 1 | flags u8 | session u64 | sequence u64 | timestamp i64 in ms
                      | bytes of key u32 | bytes of headers u32
    flags: 1 has a key, 2 has a value, 4 is a request, 8 is a reply
    a header: bytes of name u16 | name, UTF-8 | bytes of value i32, -1 for none | value

The topic stands first, so that a subscription, which to both libraries is the beginning of a frame, is one to a topic:
`orders` and the 00 behind it is that topic alone. Without a key or a value its length is 0 and its flag is not set, so
that an empty one is not none. A session is a random number of a sender and a sequence counts from 0: what a publisher
sends of one topic, and what any other sender sends at all. A reply has session and sequence of its request.

What always holds: whatever bytes come, `decode` answers a message that is no larger than they are or raises
`InvalidMessage`; what `encode` wrote it reads as it was; and a message of a later version is refused as such.
"""

import secrets
import time
from collections.abc import Iterable, Mapping
from struct import Struct, error
from typing import Final, NamedTuple

from headrace.gateways.errors import GatewayError

VERSION: Final = 1
HAS_KEY, HAS_VALUE, IS_REQUEST, IS_REPLY = 1, 2, 4, 8
LONGEST_TOPIC: Final = 255
MOST_HEADERS: Final = 1000
_MAGIC: Final = b"HR"
_HEAD: Final = Struct(">2sBBQQqII")
_NAME: Final = Struct(">H")
_SIZE: Final = Struct(">i")
_pack, _unpack = _HEAD.pack, _HEAD.unpack_from
_HEAD_BYTES: Final = _HEAD.size
_EARLIEST_MS, _LATEST_MS = -(2**63), 2**63 - 1

Headers = tuple[tuple[str, bytes | None], ...]
GivenHeaders = Mapping[str, bytes | str | None] | Iterable[tuple[str, bytes | str | None]]


class InvalidMessage(GatewayError):
    """A frame that is not in our form, or something that cannot be sent in it."""


class Message(NamedTuple):
    """What was received, or is to be sent."""

    value: bytes | None
    key: bytes | None = None
    topic: str = ""
    headers: Headers = ()
    timestamp_ms: int = -1
    session: int = 0
    sequence: int = 0
    flags: int = 0

    def header(self, name: str) -> bytes | None:
        """The value of the last header of this name; None without one."""
        for known, value in reversed(self.headers):
            if known == name:
                return value
        return None


_make = Message._make


def new_session() -> int:
    """A number that no other sender has."""
    return secrets.randbits(64)


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def topic_prefix(topic: str) -> bytes:
    """What every frame of a topic begins with, and of no other one."""
    try:
        encoded = topic.encode()
    except UnicodeEncodeError:
        raise InvalidMessage(f"topic {topic!r} is not text that UTF-8 can hold: name it otherwise") from None
    if len(encoded) > LONGEST_TOPIC or b"\0" in encoded:
        raise InvalidMessage(
            f"topic {topic[:40]!r} has a NUL in it, or more than {LONGEST_TOPIC} bytes: give it another name"
        )
    return encoded + b"\0"


def subscription(topic: str) -> bytes:
    """What the frames begin with that a subscriber to `orders`, to `orders.*` or to `*` is to get."""
    return topic_prefix(topic[:-1])[:-1] if topic.endswith("*") else topic_prefix(topic)


def headers_of(given: GivenHeaders) -> Headers:
    """Headers as they are sent; text is UTF-8."""
    pairs = given.items() if isinstance(given, Mapping) else given
    return tuple((name, value.encode() if isinstance(value, str) else value) for name, value in pairs)


def encode(
    value: bytes | None,
    key: bytes | None = None,
    prefix: bytes = b"\0",
    headers: Headers = (),
    timestamp_ms: int | None = None,
    session: int = 0,
    sequence: int = 0,
    flags: int = 0,
) -> bytes:
    """A frame; `prefix` is the topic's, of `topic_prefix`."""
    held = _encode_headers(headers) if headers else b""
    if value is None:
        value = b""
    else:
        flags |= HAS_VALUE
    if key is None:
        key = b""
    else:
        flags |= HAS_KEY
    if timestamp_ms is None:
        timestamp_ms = time.time_ns() // 1_000_000
    try:
        head = _pack(_MAGIC, VERSION, flags, session, sequence, timestamp_ms, len(key), len(held))
        return b"".join((prefix, head, held, key, value))
    except (TypeError, error):
        raise _not_sendable(value, key, timestamp_ms) from None


def _not_sendable(value: object, key: object, timestamp_ms: object) -> InvalidMessage:
    for what, given in (("value", value), ("key", key)):
        if not isinstance(given, bytes | bytearray | memoryview):
            return InvalidMessage(f"the {what} to be sent is a {type(given).__name__}: send bytes, or None for none")
    return InvalidMessage(f"a message cannot be sent with the timestamp {timestamp_ms!r}: give milliseconds since 1970")


def _encode_headers(headers: Headers) -> bytes:
    if len(headers) > MOST_HEADERS:
        raise InvalidMessage(f"a message has {len(headers)} headers: send at most {MOST_HEADERS}")
    parts: list[bytes] = []
    for name, value in headers:
        try:
            encoded = name.encode()
            parts += [_NAME.pack(len(encoded)), encoded, _SIZE.pack(-1 if value is None else len(value)), value or b""]
        except (AttributeError, TypeError, UnicodeEncodeError, error):
            raise InvalidMessage(
                f"header {str(name)[:40]!r} cannot be sent: its name is a text of at most 65,535 bytes, and its value "
                "bytes, text or None"
            ) from None
    return b"".join(parts)


_topics: dict[bytes, str] = {}  # texts of the topics that came last: the same few come again and again
_MOST_TOPICS: Final = 4096


def _topic(encoded: bytes) -> str:
    try:
        topic = encoded.decode()
    except UnicodeDecodeError:
        raise InvalidMessage("a frame is not in our form: its topic is not UTF-8") from None
    if len(_topics) >= _MOST_TOPICS:
        _topics.clear()
    _topics[encoded] = topic
    return topic


def decode(frame: bytes) -> Message:
    """The message in a frame."""
    end = frame.find(0, 0, LONGEST_TOPIC + 1)
    try:
        magic, version, flags, session, sequence, timestamp_ms, key_bytes, headers_bytes = _unpack(frame, end + 1)
    except error:
        raise InvalidMessage(
            f'a frame of {len(frame)} bytes is not in our form: it ends within its head; set form = "raw" for programs '
            "that send values alone"
        ) from None
    if end < 0 or magic != _MAGIC:
        raise InvalidMessage(
            f'a frame of {len(frame)} bytes is not in our form: no topic, 00 and HR at its beginning; set form = "raw" '
            "for programs that send values alone"
        )
    if version != VERSION:
        raise InvalidMessage(f"a frame has version {version} of our form, and this program reads {VERSION}: update it")
    encoded = frame[:end]
    topic = _topics.get(encoded)
    if topic is None:
        topic = _topic(encoded)
    start = end + 1 + _HEAD_BYTES
    headers: Headers = ()
    if headers_bytes:
        headers = _decode_headers(frame, start, start + headers_bytes)
        start += headers_bytes
    at = start + key_bytes
    if at > len(frame):
        raise InvalidMessage(f"a frame of {len(frame)} bytes is cut short: its key ends at {at}")
    key = frame[start:at] if flags & 1 else None
    value = frame[at:] if flags & 2 else None
    if (key is None and key_bytes) or (value is None and at != len(frame)):
        raise InvalidMessage("a frame has a key or a value that its flags deny: the program that sent it is mistaken")
    return _make((value, key, topic, headers, timestamp_ms, session, sequence, flags & 12))


def _decode_headers(frame: bytes, at: int, end: int) -> Headers:
    if end > len(frame):
        raise InvalidMessage(f"a frame of {len(frame)} bytes is cut short: its headers end at {end}")
    found: list[tuple[str, bytes | None]] = []
    try:
        while at < end:
            (size,) = _NAME.unpack_from(frame, at)
            name = frame[at + 2 : at + 2 + size].decode()
            at += 2 + size
            (size,) = _SIZE.unpack_from(frame, at)
            at += 4
            if size < -1 or at + max(size, 0) > end or len(found) == MOST_HEADERS:
                break
            found.append((name, None if size < 0 else frame[at : at + size]))
            at += max(size, 0)
        else:
            if at == end:
                return tuple(found)
    except (error, UnicodeDecodeError):
        pass
    raise InvalidMessage(f"a frame's header {len(found) + 1} does not decode: the program that sent it is mistaken")
