"""What is put into a queue, and what comes out of it. Pure.

A value is JSON, text or bytes, as its queue says, and one that cannot be read is an error of that message alone. Keys
and headers are text; bytes that are not UTF-8 survive as Python's surrogates.
"""

import json
import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Final, Protocol

from headrace.coordinator.share.acknowledgement import MOST_REASON_BYTES
from headrace.delivery import headers as names
from headrace.errors import HeadraceError, nearest
from headrace.records import Header, Record

Duration = float | str | timedelta  # seconds, or a text such as 30s

_UNITS_S: Final = {"ms": 0.001, "s": 1, "m": 60, "h": 3_600, "d": 86_400, "w": 604_800}
_DURATION: Final = re.compile(r"\s*(\d+(?:\.\d+)?)\s*(ms|s|m|h|d|w)\s*")
_BYTES_SURVIVE: Final = "surrogateescape"


class QueueError(HeadraceError):
    """A queue cannot do what was asked, and the text says why and what to do."""


class InvalidValue(QueueError):
    """A value that is not what its queue holds."""


class Unsupported(QueueError):
    """Something that the broker, or the topic as it is set, cannot do."""


class Lapsed(QueueError):
    """A message that is not this program's any more was to be finished by a transaction, which was aborted."""

    def __init__(self, message: "Message", why: str) -> None:
        super().__init__(
            f"{message!r} is not held any more ({why}): nothing of its transaction counts, and it comes again unless "
            "somebody else has finished it"
        )


class Reject(Exception):
    """Raised by a worker's function: the message is a dead letter, for this reason, and not delivered again."""

    def __init__(self, reason: str = "") -> None:
        super().__init__(reason)
        self.reason = reason


def seconds(given: Duration, what: str) -> float:
    """A length of time in seconds; `what` says in an error whose it is."""
    if isinstance(given, timedelta):
        found = given.total_seconds()
    elif isinstance(given, str):
        match = _DURATION.fullmatch(given)
        if match is None:
            raise QueueError(f"{what}={given!r} is not a length of time: write seconds, or for example 500ms, 30s, 5m")
        found = float(match[1]) * _UNITS_S[match[2]]
    elif isinstance(given, int | float) and not isinstance(given, bool):
        found = float(given)
    else:
        raise QueueError(f"{what}={given!r} is not a length of time: write seconds, or for example 500ms, 30s, 5m")
    if not 0 <= found < float("inf"):
        raise QueueError(f"{what}={given!r} is not possible: give a length of time from 0 on")
    return found


# --- values


def _encode_json(value: Any) -> bytes:
    try:
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode()
    except (TypeError, ValueError) as error:
        raise InvalidValue(
            f"a value cannot be put as JSON ({error}): put numbers, texts, lists and dicts, or make the queue "
            "with values='bytes'"
        ) from None


def _encode_text(value: Any) -> bytes:
    if not isinstance(value, str):
        raise InvalidValue(f"a {type(value).__name__} is put into a queue of texts: put a str")
    return value.encode()


def _encode_bytes(value: Any) -> bytes:
    if not isinstance(value, bytes | bytearray | memoryview):
        raise InvalidValue(f"a {type(value).__name__} is put into a queue of bytes: put bytes, or use values='json'")
    return bytes(value)


class Codec:
    """How values of one form are written and read."""

    def __init__(self, form: str, encode: Callable[[Any], bytes], decode: Callable[[bytes], Any]) -> None:
        self.form = form
        self.encode = encode
        self._decode = decode

    def decode(self, data: bytes | None) -> Any:
        """The value in a record; None for one without."""
        if data is None:
            return None
        try:
            return self._decode(data)
        except (ValueError, RecursionError) as error:
            raise InvalidValue(f"a value is not {self.form} ({error}): see message.data") from None


CODECS: Final = {
    "json": Codec("JSON", _encode_json, json.loads),
    "text": Codec("UTF-8 text", _encode_text, bytes.decode),
    "bytes": Codec("bytes", _encode_bytes, bytes),
}


def codec_of(values: str) -> Codec:
    if values not in CODECS:
        raise QueueError(f"values={values!r} is not possible: {nearest(values, CODECS, 'choose among')}")
    return CODECS[values]


# --- what is put


def headers_for(
    given: Mapping[str, str | bytes] | None,
    *,
    delay: Duration | None = None,
    at: datetime | float | None = None,
    ttl: Duration | None = None,
    dedup_id: str | None = None,
    repeat: str | None = None,
    schedule_id: str | None = None,
) -> tuple[list[Header], list[str]]:
    """A message's headers, and the names of the options for which a broker of ours is needed."""
    asked: dict[str, tuple[str, object]] = {}
    if delay is not None:
        asked["delay"] = names.DELAY_MS, round(seconds(delay, "delay") * 1000)
    if at is not None:
        asked["at"] = names.DELIVER_AT, _epoch_ms(at)
    if ttl is not None:
        asked["ttl"] = names.TTL_MS, round(seconds(ttl, "ttl") * 1000)
    if dedup_id is not None:
        asked["dedup_id"] = names.DEDUP_ID, dedup_id
    if repeat is not None:
        asked["repeat"] = names.REPEAT, repeat
    if schedule_id is not None:
        asked["schedule_id"] = names.SCHEDULE_ID, schedule_id
    found = [Header(name, _bytes(value)) for name, value in (given or {}).items()]
    return [*found, *(Header(name, str(value).encode()) for name, value in asked.values())], list(asked)


def _epoch_ms(at: datetime | float) -> int:
    if isinstance(at, datetime):
        at = (at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp()
    return max(round(at * 1000), 0)


def _bytes(value: str | bytes) -> bytes:
    if isinstance(value, str):
        return value.encode(errors=_BYTES_SURVIVE)
    if isinstance(value, bytes):
        return value
    raise QueueError(f"a {type(value).__name__} is given as a key or a header: give a str, or bytes")


def key_bytes(key: str | bytes | None) -> bytes | None:
    return None if key is None else _bytes(key)


# --- what comes


def short_reason(reason: str) -> str:
    """As much of a reason as a broker takes; whatever an error says, what became of its message must be sent."""
    return reason.encode(errors="replace")[:MOST_REASON_BYTES].decode(errors="ignore")


class Keeper(Protocol):
    """Who holds messages for a program."""

    def accept(self, held: Any) -> None:
        """It is done."""

    def release(self, held: Any, after_s: float | None, reason: str) -> None:
        """It is to be delivered again."""

    def reject(self, held: Any, reason: str) -> None:
        """It is never to be delivered again."""


class Message:
    """A message that this program has, until it says what became of it, or forgets it.

    Its lock is renewed in the background for as long as the program holds on to it. What is said of a message counts
    once: whatever is said later changes nothing.
    """

    __slots__ = ("__weakref__", "_codec", "_held", "_keeper", "_record", "deliveries", "partition", "topic")

    def __init__(
        self, keeper: Keeper, held: object, topic: str, partition: int, record: Record, deliveries: int, codec: Codec
    ) -> None:
        self._keeper = keeper
        self._held = held
        self._record = record
        self._codec = codec
        self.topic = topic
        self.partition = partition
        self.deliveries = deliveries  # with this one

    def __repr__(self) -> str:
        return f"Message({self.topic}-{self.partition} offset {self.offset}, delivery {self.deliveries})"

    @property
    def id(self) -> str:
        """Topic, partition and offset: the same each time that it is delivered."""
        return f"{self.topic}/{self.partition}/{self.offset}"

    @property
    def record(self) -> Record:
        """The record in the log, as it is."""
        return self._record

    @property
    def value(self) -> Any:
        """As it was put; raises `InvalidValue` if it is not of the queue's form."""
        return self._codec.decode(self._record.value)

    @property
    def data(self) -> bytes | None:
        """The value as it is in the log."""
        return self._record.value

    @property
    def key(self) -> str | None:
        return None if self._record.key is None else self._record.key.decode(errors=_BYTES_SURVIVE)

    @property
    def headers(self) -> dict[str, str]:
        return {name: (value or b"").decode(errors=_BYTES_SURVIVE) for name, value in self._record.headers}

    @property
    def offset(self) -> int:
        return self._record.offset

    @property
    def timestamp_ms(self) -> int:
        """When it was put, in milliseconds since the epoch."""
        return self._record.timestamp

    def ack(self) -> None:
        """It is done: it is not delivered again. Sent soon; `Queue.flush` waits until it is durable."""
        self._keeper.accept(self._held)

    def retry(self, after: Duration | None = None, reason: str = "") -> None:
        """It is to be delivered again, at once or not before `after`; it counts as delivered once more."""
        self._keeper.release(self._held, None if after is None else seconds(after, "after"), reason)

    def reject(self, reason: str = "") -> None:
        """It is never to be delivered again; where the group has dead letters it becomes one, with the reason."""
        self._keeper.reject(self._held, reason)
