"""A message of a group: what it carries beside its bytes. Pure.

flags · timestamp in ms, then by the flags: where it stands in a log (partition, offset, offset of the record before,
id of the topic, length and bytes of its name) · key · headers; the value is the rest
"""

import re
import struct
from typing import Final, NamedTuple

from headrace.gateways.errors import GatewayError
from headrace.gateways.multicast.wire import Session
from headrace.protocol.schema import ZERO_UUID

_KEY, _HEADERS, _NO_VALUE, _ORIGIN = 1, 2, 4, 8
_FIXED: Final = struct.Struct("!Bq")
_PLACE: Final = struct.Struct("!Iqq16sB")
_SHORT: Final = struct.Struct("!H")
_LONG: Final = struct.Struct("!I")
_NULL: Final = 0xFFFF_FFFF
_MOST_TOPIC_BYTES: Final = 249
_SURROGATE: Final = re.compile("[\ud800-\udfff]")
_MOST_HEADERS: Final = 10_000
_MOST_NAME: Final = 10_000  # characters, each up to four bytes

Headers = tuple[tuple[str, bytes | None], ...]


class InvalidMessage(GatewayError):
    """Bytes that are no message of this form."""


class Origin(NamedTuple):
    """Where a message stands in a log; no record of its partition stands between `after` and `offset`.

    A topic that is deleted and made again has another id; one of zeroes is not known.
    """

    topic: str
    partition: int
    offset: int
    after: int  # -1 if it is not known
    topic_id: bytes = ZERO_UUID


class Content(NamedTuple):
    """What a publisher gives."""

    value: bytes | None
    key: bytes | None = None
    headers: Headers = ()
    timestamp_ms: int = -1
    origin: Origin | None = None


class Message(NamedTuple):
    """What a subscriber gets."""

    value: bytes | None
    key: bytes | None
    headers: Headers
    timestamp_ms: int
    origin: Origin | None
    session: Session
    number: int  # of the session's messages, from 0
    sequence: int  # of the datagram in which it ends


def check_content(content: Content) -> None:
    """Raise what cannot be written of it, in a sentence."""
    _, key, headers, timestamp_ms, origin = content
    if len(headers) > _MOST_HEADERS or any(len(name) > _MOST_NAME for name, _ in headers):
        raise InvalidMessage(f"a message has at most {_MOST_HEADERS} headers with names up to {_MOST_NAME} characters")
    if not -(1 << 63) <= timestamp_ms < 1 << 63:
        raise InvalidMessage(f"timestamp_ms = {timestamp_ms} is no time: give milliseconds since 1970")
    if key is not None and len(key) >= _NULL:
        raise InvalidMessage("a key is longer than any message: shorten it")
    if origin is not None and not (
        len(origin.topic) <= _MOST_TOPIC_BYTES
        and origin.topic.isascii()
        and 0 <= origin.partition < 1 << 31
        and -1 <= origin.after < origin.offset < 1 << 63
        and len(origin.topic_id) == len(ZERO_UUID)
    ):
        raise InvalidMessage(f"{origin} is no place in a log: offset is above after, and topic is a topic's name")


def write_content(content: Content) -> bytes:
    value, key, headers, timestamp_ms, origin = content
    flags = 0
    parts: list[bytes] = []
    if origin is not None:
        flags |= _ORIGIN
        topic = origin.topic.encode()
        parts += (_PLACE.pack(origin.partition, origin.offset, origin.after, origin.topic_id, len(topic)), topic)
    if key is not None:
        flags |= _KEY
        parts += (_LONG.pack(len(key)), key)
    if headers:
        if any(_SURROGATE.search(name) for name, _ in headers):
            raise InvalidMessage("the name of a header has characters that no text has: give it as text")
        flags |= _HEADERS
        parts.append(_SHORT.pack(len(headers)))
        for name, held in headers:
            encoded = name.encode()
            parts += (_SHORT.pack(len(encoded)), encoded, _LONG.pack(_NULL if held is None else len(held)), held or b"")
    if value is None:
        flags |= _NO_VALUE
    else:
        parts.append(value)
    try:
        return b"".join((_FIXED.pack(flags, timestamp_ms), *parts))
    except (TypeError, struct.error) as error:
        raise InvalidMessage(
            "value, key and values of headers are bytes or None, and timestamp_ms is a number"
        ) from error


def read_content(data: bytes) -> Content:
    """A message of these bytes; raises `InvalidMessage`."""
    try:
        flags, timestamp_ms = _FIXED.unpack_from(data)
        if not flags:
            return Content(data[_FIXED.size :], None, (), timestamp_ms)
        return _read_rest(data, flags, timestamp_ms)
    except (struct.error, UnicodeDecodeError, IndexError) as error:
        raise InvalidMessage("a message is cut or changed: its sender speaks another form") from error


def _read_rest(data: bytes, flags: int, timestamp_ms: int) -> Content:
    if flags > _KEY | _HEADERS | _NO_VALUE | _ORIGIN:
        raise InvalidMessage(f"a message has flags {flags:#x}, which are not known: update this program")
    place = _FIXED.size
    origin = key = None
    headers: list[tuple[str, bytes | None]] = []
    if flags & _ORIGIN:
        partition, offset, after, topic_id, length = _PLACE.unpack_from(data, place)
        topic, place = _take(data, place + _PLACE.size, length)
        if offset < 0 or not -1 <= after < offset or length > _MOST_TOPIC_BYTES:
            raise InvalidMessage("a message stands at a place that no log has")
        origin = Origin(topic.decode(), partition, offset, after, topic_id)
    if flags & _KEY:
        (length,) = _LONG.unpack_from(data, place)
        key, place = _take(data, place + _LONG.size, length)
    if flags & _HEADERS:
        (count,) = _SHORT.unpack_from(data, place)
        place += _SHORT.size
        for _ in range(count):
            (length,) = _SHORT.unpack_from(data, place)
            name, place = _take(data, place + _SHORT.size, length)
            (length,) = _LONG.unpack_from(data, place)
            held, place = (None, place + _LONG.size) if length == _NULL else _take(data, place + _LONG.size, length)
            headers.append((name.decode(), held))
    if flags & _NO_VALUE:
        if place != len(data):
            raise InvalidMessage("a message without a value has bytes behind its end")
        return Content(None, key, tuple(headers), timestamp_ms, origin)
    return Content(data[place:], key, tuple(headers), timestamp_ms, origin)


def _take(data: bytes, place: int, length: int) -> tuple[bytes, int]:
    end = place + length
    if end > len(data):
        raise InvalidMessage("a message ends before what it holds does")
    return data[place:end], end
