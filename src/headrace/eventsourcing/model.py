"""Events as they are appended and stored, and what may be asked of them. Pure.

A stream is the history of one thing, and its events are numbered from 1 on without gaps: an event's `version`; a stream
that does not exist is at version 0. A store numbers all of its events, too: an event's `position`, from 1 on. Positions
grow and may have gaps. A stream's category is its name up to the first dash: `account` of `account-7`.

What an event holds is bytes to a store, and JSON unless somebody chose otherwise (`event_types.py`). Tags are what else
it concerns, besides its stream (`course:cs1`, `student:ann`); by them a decision can guard more than one stream.
"""

import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple, Protocol
from uuid import uuid4

from headrace.delivery.events import MAX_TAGS
from headrace.delivery.redaction import STAND_IN
from headrace.eventsourcing.errors import InvalidAppend

NEW: Final = 0  # expected: the stream does not exist
ANY: Final = -1  # expected: whatever version the stream is at
MAX_NAME_BYTES: Final = 500  # of a stream, type, tag or id


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def new_id() -> str:
    return uuid4().hex


def category_of(stream: str) -> str:
    return stream.partition("-")[0]


@dataclass(frozen=True, slots=True)
class NewEvent:
    """An event to be appended. Its stream, version, position and command id are given to it by the append."""

    type: str
    data: bytes
    tags: tuple[str, ...] = ()
    schema: int = 1  # version of the form that `data` has
    id: str = field(default_factory=new_id)
    time_ms: int = field(default_factory=now_ms)
    causation_id: str = ""  # id of the event or command that led to it
    correlation_id: str = ""  # what all that followed from one request has in common
    headers: Mapping[str, str] = field(default_factory=dict)  # whatever else is to be known about it


class StoredEvent(NamedTuple):
    """An event as it was appended. A tuple, because a fold makes very many of them."""

    position: int
    stream: str
    version: int
    type: str
    schema: int
    data: bytes
    id: str
    time_ms: int
    tags: tuple[str, ...]
    causation_id: str
    correlation_id: str
    command_id: str
    headers: Mapping[str, str]

    def __str__(self) -> str:
        return f"event {self.version} of stream {self.stream!r} (position {self.position})"


class StreamInfo(NamedTuple):
    """A stream, and the version it is at."""

    name: str
    version: int


class Matched(Protocol):
    """What a query looks at, of a new event as of a stored one."""

    @property
    def type(self) -> str: ...
    @property
    def tags(self) -> Collection[str]: ...


@dataclass(frozen=True, slots=True)
class Criterion:
    """One of the types, all of the tags, and a stream of the category; what is empty asks for nothing."""

    types: frozenset[str] = frozenset()
    tags: frozenset[str] = frozenset()
    category: str = ""

    def matches(self, stream: str, event: Matched) -> bool:
        return (
            (not self.types or event.type in self.types)
            and (not self.tags or self.tags.issubset(event.tags))
            and (not self.category or category_of(stream) == self.category)
        )

    def __str__(self) -> str:
        parts = []
        if self.types:
            parts.append(f"type {' or '.join(sorted(self.types))}")
        if self.tags:
            parts.append(f"tag {' and '.join(sorted(self.tags))}")
        if self.category:
            parts.append(f"category {self.category}")
        return ", ".join(parts) or "any event"


@dataclass(frozen=True, slots=True)
class Query:
    """Events that match one of the criteria. Made by `where`, and joined by `|`."""

    criteria: tuple[Criterion, ...]

    def __post_init__(self) -> None:
        if not self.criteria:
            raise InvalidAppend("a query without criteria matches nothing: give it one, or use ALL for every event")

    def matches(self, stream: str, event: Matched) -> bool:
        return any(each.matches(stream, event) for each in self.criteria)

    @property
    def is_everything(self) -> bool:
        return Criterion() in self.criteria

    def __or__(self, other: "Query") -> "Query":
        return Query((*self.criteria, *other.criteria))

    def __str__(self) -> str:
        return " | ".join(f"({each})" for each in self.criteria)


def where(*, types: Iterable[str] = (), tags: Iterable[str] = (), category: str = "") -> Query:
    """Events of one of these types, with all of these tags, in streams of this category."""
    for name, given in (("types", types), ("tags", tags)):
        if isinstance(given, str):
            raise InvalidAppend(f"{name}={given!r} is one text: give a list, as in {name}=[{given!r}]")
    return Query((Criterion(frozenset(types), frozenset(tags), category),))


ALL: Final = where()


@dataclass(frozen=True, slots=True)
class Condition:
    """The append happens only if no event after the position `after` matches: a boundary of its own for a decision."""

    query: Query
    after: int


@dataclass(frozen=True, slots=True)
class StreamAppend:
    """Events for the end of one stream, which is expected to be at a version, at `NEW`, or at `ANY`."""

    stream: str
    events: Sequence[NewEvent]
    expected: int = ANY


@dataclass(frozen=True, slots=True)
class Appended:
    """What an append did; with `is_repeat`, what it did before: its command id was stored, and nothing was written."""

    position: int  # of its last event
    versions: Mapping[str, int]  # of each stream, after it
    is_repeat: bool = False


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A stream's state after the event `version`, as bytes; of use only to the very fold that made it."""

    version: int
    fold: str  # fingerprint of the fold's code
    data: bytes


def check_append(appends: Sequence[StreamAppend], condition: Condition | None, command_id: str) -> None:
    """Refuse what no store can keep; every store calls it before anything else."""
    if not appends:
        raise InvalidAppend("there is nothing to append: give at least one stream with events")
    streams = [each.stream for each in appends]
    if len(set(streams)) < len(streams):
        stream = next(each for each in streams if streams.count(each) > 1)
        raise InvalidAppend(f"stream {stream!r} is named twice in one append: put its events together")
    if command_id:
        check_name("command id", command_id)
    if condition is not None and condition.after < 0:
        raise InvalidAppend(f"a condition cannot begin after position {condition.after}: give 0 or more")
    for each in appends:
        check_name("stream", each.stream)
        if each.expected < ANY:
            raise InvalidAppend(
                f"stream {each.stream!r} cannot be at version {each.expected}: expect 0 or more, NEW or ANY"
            )
        if not each.events:
            raise InvalidAppend(f"there are no events for stream {each.stream!r}: leave it out, or give some")
        for event in each.events:
            _check_event(each.stream, event)


def _check_event(stream: str, event: NewEvent) -> None:
    check_name("event type", event.type)
    check_name("event id", event.id)
    for tag in event.tags:
        check_name("tag", tag)
    if len(event.tags) > MAX_TAGS:
        raise InvalidAppend(f"an event {event.type!r} for stream {stream!r} has {len(event.tags)} tags: give at most "
                            f"{MAX_TAGS}")  # fmt: skip
    if type(event.schema) is not int or not 0 <= event.schema < 2**31:  # below 0 is what was archived
        raise InvalidAppend(f"an event {event.type!r} for stream {stream!r} cannot have schema {event.schema!r}: count "
                            "from 1 on")  # fmt: skip
    if type(event.time_ms) is not int or not -(2**63) <= event.time_ms < 2**63:
        raise InvalidAppend(f"an event {event.type!r} for stream {stream!r} has no time {event.time_ms!r}: give "
                            "milliseconds since 1970")  # fmt: skip
    if len(set(event.tags)) < len(event.tags):
        raise InvalidAppend(f"an event {event.type!r} for stream {stream!r} has the same tag twice: {event.tags}")
    if not isinstance(event.data, bytes):
        raise InvalidAppend(
            f"an event {event.type!r} for stream {stream!r} holds a {type(event.data).__name__}: encode it to bytes"
        )
    if event.data.startswith(STAND_IN):
        raise InvalidAppend(f"an event {event.type!r} for stream {stream!r} holds the mark of a redacted event: add a "
                            "field before it")  # fmt: skip
    for what, ident in (("causation id", event.causation_id), ("correlation id", event.correlation_id)):
        if ident:
            check_name(what, ident)
    for name, value in event.headers.items():
        check_name("header", name)
        if not isinstance(value, str) or "\0" in value:
            raise InvalidAppend(f"header {name!r} of an event {event.type!r} is not a text without NUL: {value!r}")


def check_name(what: str, name: str) -> None:
    """A text that every store can keep and look up: short, printable, valid Unicode."""
    if name.isascii() and name.isprintable() and 0 < len(name) <= MAX_NAME_BYTES:
        return
    try:
        size = len(name.encode())
    except UnicodeEncodeError:
        size = 0
    if not name.isprintable() or not 0 < size <= MAX_NAME_BYTES:
        raise InvalidAppend(f"{what} {name!r} is not possible: use 1 to {MAX_NAME_BYTES} bytes of printable text")
