"""What a listener asks for: from where, of which records, and what becomes of it when it is slow. Pure."""

import base64
import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final, NamedTuple

from headrace.client.offsets import Start, StartKind
from headrace.client.reader import ReadRecord
from headrace.gateways.http.cloud_events import event_of
from headrace.gateways.http.record_form import shown_record
from headrace.records import Header
from headrace.serving.asking import Asked, InvalidRequest
from headrace.serving.record_feed import InvalidPlace, Kept, Place, Slow, read_place

LISTENER: Final = ("from", "slow", "heartbeat", "key", "key_base64", "key_prefix", "partition", "format")
HEADER: Final = "header."  # and its name: a filter by a header of records
JSON, EVENTS = "json", "cloudevents"
_OVERHEAD: Final = 400  # bytes of a record that is kept, besides its own
_OFFSET: Final = re.compile(r"\d{1,18}")
_TIME: Final = re.compile(r"\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d(:\d\d(\.\d{1,6})?)?([Zz]|[+-]\d\d:\d\d)?|@\d{1,15}")


class LiveRecord(NamedTuple):
    """A record that is kept for listeners, and how it is shown to them."""

    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...]
    text: str


def keep(read: ReadRecord) -> tuple[LiveRecord, int]:
    """What is kept of a record, and how large it is."""
    record = read.record
    key = None if record.key is None else bytes(record.key)
    value = None if record.value is None else bytes(record.value)
    text = shown_record(*read.partition, record.offset, record.timestamp, key, value, record.headers)
    size = len(key or b"") + len(value or b"") + len(text) + _OVERHEAD
    return LiveRecord(record.timestamp, key, value, tuple(record.headers), text), size


@dataclass(frozen=True, slots=True)
class Filter:
    """Which records a listener wants; what it does not say is any."""

    key: bytes | None = None
    key_prefix: bytes | None = None
    headers: tuple[tuple[str, bytes], ...] = ()
    partitions: frozenset[int] = frozenset()

    def takes(self, kept: Kept[LiveRecord]) -> bool:
        record = kept.item
        if self.partitions and kept.partition not in self.partitions:
            return False
        if self.key is not None and record.key != self.key:
            return False
        if self.key_prefix is not None and not (record.key or b"").startswith(self.key_prefix):
            return False
        return all(
            any(header.key == name and bytes(header.value or b"") == value for header in record.headers)
            for name, value in self.headers
        )


class Wish(NamedTuple):
    """What a listener asks for: a place, or what stands for one."""

    start: Place | Start
    filter: Filter
    slow: Slow
    heartbeat_s: float
    is_events: bool

    def shown(self, topic: str, kept: Kept[LiveRecord]) -> str:
        """A record as the listener wants it."""
        if not self.is_events:
            return kept.item.text
        one = kept.item
        return event_of(topic, kept.partition, kept.offset, one.timestamp, one.key, one.value, one.headers)


def read_wish(asked: Asked, last_event_id: str | None, slow: Slow, usual: str = "latest") -> Wish:
    """What stands in an address and in Last-Event-ID, which goes before; raises `InvalidRequest`."""
    start = read_place(last_event_id) if last_event_id else read_start(asked.text("from") or usual)
    return Wish(
        start,
        read_filter(asked),
        Slow(asked.one_of("slow", [str(each) for each in Slow], str(slow))),
        float(asked.number("heartbeat", 1, 60, 15)),
        asked.one_of("format", (JSON, EVENTS), JSON) == EVENTS,
    )


def read_start(text: str) -> Place | Start:
    """Where to begin: earliest, latest, an offset, a place, a time, or @milliseconds."""
    if text == "earliest":
        return Start(StartKind.EARLIEST)
    if text == "latest":
        return Start(StartKind.LATEST)
    if _OFFSET.fullmatch(text):
        return Start(StartKind.OFFSET, int(text))
    if _TIME.fullmatch(text):
        if text.startswith("@"):
            return Start(StartKind.TIME, int(text[1:]))
        try:
            when = datetime.fromisoformat(text.upper())
            return Start(StartKind.TIME, int((when if when.tzinfo else when.replace(tzinfo=UTC)).timestamp() * 1000))
        except (ValueError, OverflowError):
            pass
    try:
        return read_place(text, "from")
    except InvalidPlace:
        raise InvalidRequest(
            f"from is {text[:40]!r}: write earliest, latest, an offset, a place such as 0-17,1-5, a time "
            "(2026-01-31T12:00:00Z) or @ and milliseconds"
        ) from None


def read_filter(asked: Asked) -> Filter:
    key: bytes | None = None
    if (encoded := asked.text("key_base64")) is not None:
        try:
            key = base64.b64decode(encoded, validate=True)
        except ValueError:
            raise InvalidRequest("key_base64 is not base64") from None
    elif (text := asked.text("key")) is not None:
        key = text.encode(errors="replace")
    prefix = asked.text("key_prefix")
    return Filter(
        key,
        None if prefix is None else prefix.encode(errors="replace"),
        tuple((name, value.encode(errors="replace")) for name, value in asked.beginning(HEADER)),
        _partitions(asked.texts("partition")),
    )


def _partitions(texts: Sequence[str]) -> frozenset[int]:
    found = [each for text in texts for each in text.split(",")]
    for each in found:
        if not (each.isascii() and each.isdecimal() and len(each) < 10):
            raise InvalidRequest(f"partition is the number of one, or several with commas, not {each[:40]!r}")
    return frozenset(map(int, found))
