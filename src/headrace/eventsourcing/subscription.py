"""Events as they come: first those that are there, then the new ones, in the order of their positions.

    for event, stored in Subscription(store, where(category="account"), after=17):
        ...

A subscription waits for the store to say that there is more (`store.wait`), and remembers nothing beyond its own life:
whoever keeps `position` goes on from there (`after=`). It is for one thread; `stop` may be called by others.

What always holds: no event is left out or given twice, and after a batch `position` is beyond all that was looked at,
also what the query does not match. An event that cannot be decoded ends the subscription with an error that says which
it is, and it can be taken again from there; or it is handed as a dead letter to `on_invalid`, and left out.
"""

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from itertools import islice
from typing import Any, Final, NamedTuple

from headrace.delivery.letters import Letter
from headrace.eventsourcing.errors import InvalidSubscription, UndecodableEvent, UnknownEventType
from headrace.eventsourcing.event_types import EVENT_TYPES, EventTypes
from headrace.eventsourcing.model import ALL, Query, StoredEvent
from headrace.eventsourcing.store import EventStore
from headrace.records import Header

BATCH: Final = 1000
_SLICE_S: Final = 0.25  # how long a wait goes on after `stop`


class Received(NamedTuple):
    """An event, and how it is stored."""

    event: Any
    stored: StoredEvent


class Batch(NamedTuple):
    """Events that came together, and the position up to which all has been looked at."""

    events: list[Received]
    position: int


class Subscription:
    """Events that match a query, from a position on."""

    def __init__(
        self,
        store: EventStore,
        query: Query = ALL,
        *,
        after: int = 0,
        types: EventTypes = EVENT_TYPES,
        batch: int = BATCH,
        on_invalid: Callable[[Letter], object] | None = None,
        name: str = "",
    ) -> None:
        """`batch` is how many events are taken at once, at the most; `name` is whose the dead letters are."""
        if batch < 1:
            raise InvalidSubscription(f"a batch of {batch} events is not possible: give 1 or more")
        if after < 0:
            raise InvalidSubscription(f"a subscription cannot begin after position {after}: give 0 or more")
        self.position = after
        self._store, self._query, self._types, self._size = store, query, types, batch
        self._on_invalid, self._name = on_invalid, name
        self._reading: Iterator[StoredEvent] | None = None
        self._end = after  # up to where `_reading` goes
        self._stopped = threading.Event()
        self.opened: dict[int, set[str]] = {}  # the keys that opened personal values of the last batch, by position

    def stop(self) -> None:
        """Have iterations end, and whoever waits return soon; from any thread."""
        self._stopped.set()

    @property
    def is_stopped(self) -> bool:
        return self._stopped.is_set()

    def move(self, position: int) -> None:
        """Go on after another position."""
        self.position, self._reading = position, None

    # --- taking

    def take(self, timeout_s: float | None = 0.0) -> Batch | None:
        """The next batch; None if nothing came in time (None: for as long as it takes) or it was stopped.

        A batch may be empty: then only the position has moved on.
        """
        stored, position = self._take_stored(timeout_s)
        if position == self.position:
            return None
        try:
            batch = Batch(self.decode(stored), position)
        except BaseException:
            self._reading = None  # taken again from where we are
            raise
        self.position = position
        return batch

    def _take_stored(self, timeout_s: float | None) -> tuple[list[StoredEvent], int]:
        while True:
            if self._reading is None:
                if not self._wait(timeout_s):
                    return [], self.position
                self._end = self._store.last_position()
                self._reading = self._store.read(self._query, after=self.position, to=self._end)
            try:
                stored = list(islice(self._reading, self._size))
            except BaseException:
                self._reading = None
                raise
            if len(stored) == self._size:
                return stored, stored[-1].position
            self._reading = None
            if self._end > self.position:
                return stored, self._end
            # The batch before was the last of what was there then: there may be more by now.

    def _wait(self, timeout_s: float | None) -> bool:
        """Wait until there is more than we have; whether there is."""
        until = None if timeout_s is None else time.monotonic() + timeout_s
        while not self.is_stopped:
            left_s = _SLICE_S if until is None else until - time.monotonic()
            if left_s <= 0:
                return self._store.last_position() > self.position
            if self._store.wait(self.position, min(left_s, _SLICE_S)):
                return True
        return False

    def decode(self, stored: list[StoredEvent]) -> list[Received]:
        """Stored events, without those that `on_invalid` has taken."""
        self.opened = {}
        if self._on_invalid is None:
            return receive(self._types, stored, self.opened)
        found = list[Received]()
        for each in stored:
            try:
                found += receive(self._types, (each,), self.opened)
            except (UndecodableEvent, UnknownEventType) as error:
                self._on_invalid(letter_of(self._store, each, str(error), self._name))
        return found

    # --- iterating

    def batches(self) -> Iterator[Batch]:
        """Batches as they come, until `stop`; those without an event are left out."""
        while not self.is_stopped:
            batch = self.take(None)
            if batch is not None and batch.events:
                yield batch

    def __iter__(self) -> Iterator[Received]:
        for batch in self.batches():
            yield from batch.events

    async def batches_async(self) -> AsyncIterator[Batch]:
        """As `batches`; the store is waited for in a thread."""
        while not self.is_stopped:
            batch = await asyncio.to_thread(self.take, _SLICE_S)
            if batch is not None and batch.events:
                yield batch

    async def __aiter__(self) -> AsyncIterator[Received]:
        async for batch in self.batches_async():
            for received in batch.events:
                yield received


def receive(
    types: EventTypes, stored: Iterable[StoredEvent], opened: dict[int, set[str]] | None = None
) -> list[Received]:
    """Events decoded; one that an upcast has split is here several times.

    `opened` gets the ids of keys that opened personal values, by the positions of the events.
    """
    if types.keys is not None and opened is not None:
        found = list[Received]()
        for each in stored:
            keys = set[str]()
            found += [Received(event, each) for event in types.decode_all(each, keys)]
            if keys:
                opened[each.position] = keys
        return found
    if types.upcasts:
        return [Received(event, each) for each in stored for event in types.decode_all(each)]
    decode, new = types.decode, tuple.__new__
    return [new(Received, (decode(each), each)) for each in stored]


def letter_of(store: EventStore, stored: StoredEvent, reason: str, job: str) -> Letter:
    """An event that could not be used, as a dead letter; of a store in a database, with its position as the offset."""
    topic = getattr(store, "topic", None)
    headers = [
        Header("stream-version", str(stored.version).encode()),
        Header("event-type", stored.type.encode()),
        *(Header(name, value.encode()) for name, value in stored.headers.items()),
    ]
    return Letter(
        topic or str(store), 0, stored.position - 1 if topic else stored.position, stored.time_ms,
        stored.stream.encode(), stored.data, reason, "event", job, tuple(headers),
    )  # fmt: skip
