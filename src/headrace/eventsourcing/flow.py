"""Events flow on: a store's events into a topic, each once, in the order of their positions, without a second write.

The application writes its store and nothing else. A flow is a capture (`connect/`) whose source follows the store
instead of a database's log: it reads what comes after its position, and records and position go to the broker in one
transaction, so that it goes on there after any crash. A store lets no reader miss an event, whatever commits when; that
is what a log would be read for. A record has the form of `event_records.py`, and its position besides.

A store that is a topic needs none of this: any client reads it.
"""

import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Final

from headrace.client.cluster import Cluster
from headrace.client.errors import UnknownTopic
from headrace.client.offsets import bounds
from headrace.connect.capture.settings import CaptureSettings, Kind
from headrace.connect.change import Batch, Event, Origin, Position, Ready
from headrace.connect.delivery import TopicSettings
from headrace.connect.envelope import TopicNames
from headrace.connect.errors import SourceRefused, SourceUnavailable
from headrace.connect.filters import Filters
from headrace.connect.sections import InvalidSettingsFile, checked, shown_address
from headrace.connect.source import Source
from headrace.eventsourcing.broker_store import KEPT
from headrace.eventsourcing.errors import EventSourcingError, StoreUnavailable
from headrace.eventsourcing.event_records import headers_of_copy
from headrace.eventsourcing.model import StoredEvent
from headrace.eventsourcing.opening import check_address, open_store
from headrace.eventsourcing.store import EventStore
from headrace.model import check_topic_name
from headrace.records import Codec

SECTION: Final = "events"
CONNECTOR: Final = "events"  # the kind of such a capture
_KEYS: Final[Mapping[str, type]] = {
    "url": str, "topic": str, "partitions": int, "compression": str, "aggregates": list, "projections": list,
    "processes": list, "views": str, "on_change": str,
}  # fmt: skip
_MEND: Final = "give it a section with another name and another topic"
_BATCH_EVENTS: Final = 5_000  # in a transaction
_BATCH_BYTES: Final = 8 << 20


@dataclass(frozen=True, slots=True)
class FlowSettings:
    """Which store flows where."""

    url: str = field(repr=False)  # it may hold a password
    topic: str


class FlowSource:
    """The source of a capture: the events of a store after a position."""

    def __init__(self, settings: FlowSettings, cluster: Cluster) -> None:
        self.database = shown_address(settings.url)
        self._cluster = cluster
        self._settings = settings
        self._store: EventStore | None = None
        self._events: Iterator[StoredEvent] | None = None  # what was settled when it was last looked
        self._settled = 0  # up to there `_events` reads
        self._position: Position = {}
        self._handed = self._acknowledged = 0
        self._lag: int | None = None
        self._lock = threading.Lock()  # facts are asked for while the source is closed

    def open(self, position: Position | None) -> None:
        with _reachable():
            self._store = open_store(self._settings.url)
        self._position = position or {"position": 0}
        self._handed = self._acknowledged = self._settled = int(self._position["position"])
        self._events = None
        if position is not None:
            self._check_place(position)

    def _check_place(self, position: Position) -> None:
        """Refuse to go on where another store was, or in another topic: events would be missing there."""
        with _reachable():
            self._check_store(self._opened.last_position())
        if position["topic"] != self._settings.topic:
            raise SourceRefused(
                f"events up to position {self._handed} are in topic {position['topic']!r}, and would be missing in "
                f"{self._settings.topic!r}",
                _MEND,
            )
        if not self._has_records(self._settings.topic):
            raise SourceRefused(
                f"events up to position {self._handed} flowed to topic {self._settings.topic!r}, and nothing is there: "
                "it was deleted",
                "give the section another name, and all events flow there again",
            )

    def _check_store(self, last: int) -> None:
        """Refuse a store that is not the one whose last event was handed out: another, or an older copy of it."""
        # What stands there may have been archived since; then nothing speaks against it.
        there = self._opened.read(after=self._handed - 1, to=self._handed) if self._handed else ()
        if last < self._handed or any(each.id != self._position["event"] for each in there):
            raise SourceRefused(
                f"events flowed up to position {self._handed} already, and this store has another event there, or none",
                f"for another store than before, {_MEND}",
            )

    def _has_records(self, topic: str) -> bool:
        """Whether anything was ever written to a topic, and it is still there."""
        try:
            self._cluster.topic(topic, refresh=True)
            return any(bound.end for bound in bounds(self._cluster, self._cluster.partitions(topic)).values())
        except UnknownTopic:
            return False

    def next_batch(self, timeout_s: float) -> Batch | None:
        with _reachable():
            found = self._take()
            if not found and self._opened.wait(self._settled, timeout_s):
                found = self._take()
        if not found:
            return None
        topic = self._settings.topic
        origin = Origin(None, found[-1].time_ms * 1000)
        events: list[Event] = [
            Ready(topic, each.stream.encode(), each.data, each.time_ms, headers_of_copy(each), origin) for each in found
        ]
        self._handed = found[-1].position
        self._position = {"position": self._handed, "event": found[-1].id, "topic": topic}
        return Batch(events, self._position)

    def _take(self) -> list[StoredEvent]:
        """Some of the next events; none if there are no more."""
        if self._events is None:
            after, last = self._settled, self._opened.last_position()
            if last != after:
                self._check_store(last)  # it may have been set back to a backup meanwhile, and grown again
            self._settled = last
            self._events = self._opened.read(after=after, to=self._settled)
        found, size = list[StoredEvent](), 0
        for event in islice(self._events, _BATCH_EVENTS):
            found.append(event)
            size += len(event.data)
            if size > _BATCH_BYTES:
                return found
        if len(found) < _BATCH_EVENTS:
            self._events = None
        return found

    @property
    def _opened(self) -> EventStore:
        assert self._store is not None
        return self._store

    def position(self) -> Position:
        return self._position

    def acknowledge(self, position: Position) -> None:
        self._acknowledged = int(position["position"])

    def facts(self) -> dict[str, Any]:
        """How many positions it is behind: of events, and of those that a store left out."""
        with self._lock, suppress(EventSourcingError):
            if self._store is not None:
                is_through = self._events is None and self._acknowledged == self._handed
                self._lag = max(self._store.last_position() - (self._settled if is_through else self._acknowledged), 0)
        return {} if self._lag is None else {"lag_records": self._lag}

    def close(self) -> None:
        with self._lock:
            store, self._store, self._events = self._store, None, None
        if store is not None:
            store.close()


@contextmanager
def _reachable() -> Iterator[None]:
    """A store that is away is waited for, as a database is."""
    try:
        yield
    except StoreUnavailable as error:
        raise SourceUnavailable(str(error)) from error


def check_section(name: str, section: Mapping[str, Any]) -> dict[str, Any]:
    """A section `[events.NAME]`, checked; nothing is opened."""
    where = f"{SECTION}.{name}"
    if "url" not in section:
        raise InvalidSettingsFile(f'section [{where}] has no url: add url = "sqlite:///…" or another store')
    given = checked(where, section, _KEYS)
    check_address(given["url"])
    if "topic" in given:
        check_topic_name(given["topic"])
    Codec.named(given.get("compression", "none"))
    return given


def from_section(name: str, section: Mapping[str, Any]) -> CaptureSettings:
    """The flow that a section describes, as the capture that it is; raises before anything is done."""
    given = check_section(name, section)
    if "topic" not in given:
        raise InvalidSettingsFile(f'section [{SECTION}.{name}] has no topic for its events to flow to: add topic = "…"')
    topics = TopicSettings(
        given.get("partitions", 1), tuple(KEPT.items()), Codec.named(given.get("compression", "none"))
    )
    return CaptureSettings(
        f"{SECTION}.{name}",
        KIND,
        FlowSettings(given["url"], given["topic"]),
        Filters(),
        TopicNames(given["topic"]),
        topics,
        {},
        database=shown_address(given["url"]),
    )


def _make(settings: FlowSettings, cluster: Cluster, _: str) -> Source:
    return FlowSource(settings, cluster)


def _read_anew(_: FlowSettings, tables: Sequence[str]) -> None:
    raise SourceRefused(f"events flow once, and {', '.join(tables)} cannot be read again")


def _no_tables(_: FlowSettings) -> Any:
    raise SourceRefused("a store of events has no tables to compare with its topic")


KIND: Final = Kind(CONNECTOR, FlowSettings, None, _make, _read_anew, _no_tables)
