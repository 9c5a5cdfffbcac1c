"""The headers by which a message asks for more than to be delivered: any client can set them, values are text.

Only topics that opted in (`headrace.queue`) are looked into; in all others these headers mean nothing. What a record
asks for depends on the record alone, and not on when it is looked at: everybody who reads it comes to the same result,
before and after a crash.
"""

import re
from collections.abc import Collection
from typing import Final, NamedTuple

from headrace.delivery.recurrence import Recurrence, parse_recurrence
from headrace.errors import HeadraceError
from headrace.records import Header, Record

DELIVER_AT: Final = "headrace-deliver-at"  # ms since the epoch
DELAY_MS: Final = "headrace-delay-ms"  # from the record's timestamp on
EXPIRES_AT: Final = "headrace-expires-at"  # ms since the epoch
TTL_MS: Final = "headrace-ttl-ms"  # from the record's timestamp on
DEDUP_ID: Final = "headrace-dedup-id"
REPEAT: Final = "headrace-repeat"  # an interval, such as 5m, or a cron line, in UTC
SCHEDULE_ID: Final = "headrace-schedule-id"  # what a message that waits is cancelled or replaced by
CANCEL: Final = "headrace-cancel"  # the schedule id of what is not to be delivered any more

ORIGIN: Final = "headrace-origin"  # of a copy: topic/partition/offset of the record that it was made of

CORRELATION_ID: Final = "headrace-correlation-id"
REPLY_TO: Final = "headrace-reply-to"
DEADLINE: Final = "headrace-deadline"  # ms since the epoch

LATEST_MS: Final = 253_402_300_799_999  # the end of the year 9999
MAX_ID_BYTES: Final = 1024
_PREFIX: Final = "headrace-"
# What is done with when a message that waited is delivered. Its id was seen when it came, and would be a duplicate now.
_SCHEDULED: Final = frozenset((DELIVER_AT, DELAY_MS, REPEAT, DEDUP_ID))
_NEED_A_TIME: Final = frozenset((DELAY_MS, TTL_MS, REPEAT))
_NUMBER: Final = re.compile("[0-9]{1,19}")


class InvalidHeader(HeadraceError):
    """A header that asks for something, and does not say it in the form that it has to have."""


class Delivery(NamedTuple):
    """What a record asks for."""

    due_ms: int | None = None  # it is to be delivered at this time, which is after its own, and not before
    expires_ms: int | None = None  # it is not to be delivered from this time on
    dedup_id: bytes | None = None
    repeat: Recurrence | None = None
    schedule_id: bytes | None = None
    cancels: bytes | None = None
    origin: bytes | None = None

    @property
    def is_delayed(self) -> bool:
        """Whether it waits, and what is delivered is a copy of it."""
        return self.due_ms is not None


PLAIN: Final = Delivery()


class Origin(NamedTuple):
    """The record that a copy was made of; of one that is delivered again and again, which time it is, from 0 on."""

    topic: str
    partition: int
    offset: int
    number: int | None = None

    @property
    def text(self) -> bytes:
        number = "" if self.number is None else f"/{self.number}"
        return f"{self.topic}/{self.partition}/{self.offset}{number}".encode()


def parse_origin(text: bytes) -> Origin | None:
    """What a copy says of where it came from; None if that is not what we write."""
    topic, *numbers = text.decode(errors="replace").split("/")
    if len(numbers) not in (2, 3) or not all(_NUMBER.fullmatch(each) for each in numbers):
        return None  # any client may have written this
    return Origin(topic, *map(int, numbers))


def read_delivery(record: Record, ttl_ms: int = -1) -> Delivery:
    """What a record asks for, in a topic in which messages live for `ttl_ms`; raises `InvalidHeader`."""
    asked = {header.key: header.value for header in record.headers if header.key.startswith(_PREFIX)}
    if not asked:
        if ttl_ms < 0:
            return PLAIN
        return Delivery(expires_ms=record.timestamp + ttl_ms if record.timestamp >= 0 else None)
    if record.timestamp < 0 and (timeless := asked.keys() & _NEED_A_TIME):
        raise InvalidHeader(f"{min(timeless)} counts from the record's timestamp, and it has none: give it one")
    repeat = _read_repeat(asked[REPEAT] or b"") if REPEAT in asked else None
    return Delivery(
        _due_ms(record, asked, repeat),
        _expires_ms(record, asked, ttl_ms),
        _read_id(DEDUP_ID, asked),
        repeat,
        _read_id(SCHEDULE_ID, asked),
        _read_cancel(record, asked),
        asked.get(ORIGIN),
    )


def _due_ms(record: Record, asked: dict[str, bytes | None], repeat: Recurrence | None) -> int | None:
    if DELIVER_AT in asked and DELAY_MS in asked:
        raise InvalidHeader(f"{DELIVER_AT} and {DELAY_MS} are both given: give one of them")
    due_ms = None
    if DELIVER_AT in asked:
        due_ms = _read_number(DELIVER_AT, asked)
    elif DELAY_MS in asked:
        due_ms = record.timestamp + _read_number(DELAY_MS, asked)
    if repeat is not None and (due_ms is None or due_ms <= record.timestamp):
        try:
            due_ms = repeat.next_after(record.timestamp)
        except ValueError as error:
            raise InvalidHeader(f"{REPEAT} behind the record's timestamp {record.timestamp}: {error}") from None
    if due_ms is not None and due_ms > LATEST_MS:
        raise InvalidHeader(f"{due_ms} ms since the epoch, when the record is to be delivered, is after the year 9999")
    return due_ms if due_ms is not None and due_ms > record.timestamp else None


def _expires_ms(record: Record, asked: dict[str, bytes | None], ttl_ms: int) -> int | None:
    if EXPIRES_AT in asked and TTL_MS in asked:
        raise InvalidHeader(f"{EXPIRES_AT} and {TTL_MS} are both given: give one of them")
    if EXPIRES_AT in asked:
        return _read_number(EXPIRES_AT, asked)
    if TTL_MS in asked:
        return record.timestamp + _read_number(TTL_MS, asked)
    return record.timestamp + ttl_ms if ttl_ms >= 0 and record.timestamp >= 0 else None


def _read_number(name: str, asked: dict[str, bytes | None]) -> int:
    value = asked[name] or b""
    if not value.isdigit() or len(value) > len(str(LATEST_MS)):
        raise InvalidHeader(f"{name}={_show(value)} is not a number of milliseconds: give digits, such as 60000")
    return int(value)


def _read_id(name: str, asked: dict[str, bytes | None]) -> bytes | None:
    if name not in asked:
        return None
    value = asked[name] or b""
    if not 0 < len(value) <= MAX_ID_BYTES:
        raise InvalidHeader(f"{name} has {len(value)} bytes: give 1 to {MAX_ID_BYTES}")
    return value


def _read_repeat(value: bytes) -> Recurrence:
    try:
        return parse_recurrence(value.decode(errors="replace"))
    except ValueError as error:
        raise InvalidHeader(f"{REPEAT}={_show(value)} is invalid: {error}") from None


def _read_cancel(record: Record, asked: dict[str, bytes | None]) -> bytes | None:
    cancelled = _read_id(CANCEL, asked)
    if cancelled is not None and record.value:
        raise InvalidHeader(f"{CANCEL} is on a record with a value, which nobody would get: leave the value empty")
    return cancelled


def _show(value: bytes) -> str:
    text = value.decode(errors="replace")
    return repr(text if len(text) <= 100 else f"{text[:100]}…")


def headers_of_copy(record: Record, origin: Origin, without: Collection[str] = _SCHEDULED) -> tuple[Header, ...]:
    """The headers of a copy of a record: its own but for those that are done with, and where it came from."""
    kept = [each for each in record.headers if each.key != ORIGIN and each.key not in without]
    return (*kept, Header(ORIGIN, origin.text))
