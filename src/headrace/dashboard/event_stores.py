"""Stores of events as pages show them: which there are, what is in them, and the states that an aggregate went through.

The stores are those of the stack's sections `[events.NAME]`, and the cluster's own topics that keep events. Nothing
here writes, makes a store that is not there, or reads one whole: streams and events come a page at a time, and what a
topic has no list of is looked for among its last events. States are folded by the user's own code, which is imported
from where the dashboard runs; the last ones are kept, so that a step costs an event.
"""

import asyncio
import copy
import re
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Any, Final, NamedTuple, TypeVar

from headrace.client.cluster import Cluster
from headrace.connect.sections import shown_address
from headrace.dashboard.errors import NotThere
from headrace.dashboard.settings import Settings, StoreSection
from headrace.delivery.redaction import REDACTION
from headrace.errors import HeadraceError
from headrace.eventsourcing.aggregate import Aggregate
from headrace.eventsourcing.broker_store import BrokerEventStore
from headrace.eventsourcing.errors import EventSourcingError
from headrace.eventsourcing.followers import load
from headrace.eventsourcing.loading import load_stream
from headrace.eventsourcing.model import ALL, StoredEvent, StreamInfo, category_of, where
from headrace.eventsourcing.opening import open_store
from headrace.eventsourcing.sql import SqlEventStore
from headrace.eventsourcing.store import EventStore
from headrace.eventsourcing.traces import ARCHIVAL, trace_tag
from headrace.eventsourcing.travel import state_as_json
from headrace.forgetting.keyring import FORGOTTEN, Keyring
from headrace.forgetting.sealed import parse

R = TypeVar("R")
TOPIC: Final = "topic:"  # begins the name of a store that is a topic of the cluster
STREAMS: Final = 100  # on a page
EVENTS: Final = 50
LOOKED_AT: Final = 2_000  # of a store's last events, where it has no list of what is asked for
CATEGORIES: Final = 100
_MOST_FOLDED: Final = 100_000  # events, for one state
_KEPT_STATES: Final = 64  # of a store
_ASKED_AT_ONCE: Final = 4  # questions to one store
_PATIENCE_S: Final = 10.0
_HIGHEST: Final = "\U0010ffff"
_SEALED: Final = re.compile(r"sealed:1:[A-Za-z0-9_-]{22}:[A-Za-z0-9_-]*")


@dataclass(frozen=True, slots=True)
class Listing:
    """Streams of a store; `is_whole` is false where only its last events were looked at."""

    streams: tuple[StreamInfo, ...]
    is_whole: bool
    next_after: str = ""  # where the next page begins


class StateStep(NamedTuple):
    """A state before and after one event, as JSON."""

    before: Any
    after: Any


class NoKeys(Keyring):
    """Opens nothing: what is personal stays sealed in a page, and has its stand-in in a state."""

    def __init__(self) -> None:
        pass

    def open_value(self, text: object, *, field: str, subject: str = "") -> Any:  # noqa: ARG002 - nothing is opened
        return text if parse(text) is None else FORGOTTEN


class EventStores:
    """Opens stores when a page first asks for them, and keeps them open. For threads."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._sections = {section.name: section for section in settings.stores}
        self._opened: dict[str, EventStore] = {}
        self._aggregates: dict[str, Aggregate[Any] | HeadraceError] = {}
        self._kept = {name: KeptStates() for name in self._sections}
        self._lock = threading.RLock()
        self._threads = {
            name: ThreadPoolExecutor(_ASKED_AT_ONCE, f"headrace-events-{name}") for name in (*self._sections, TOPIC)
        }

    @property
    def sections(self) -> Iterable[StoreSection]:
        return self._sections.values()

    def describe(self, name: str) -> str:
        """Where a store is, as others may see it."""
        if name.startswith(TOPIC):
            return f"topic {name.removeprefix(TOPIC)}"
        return shown_address(self._find(name).url)

    def _find(self, name: str) -> StoreSection:
        if name not in self._sections:
            raise NotThere(f"There is no store of events {name!r}: add a section [events.{name}] to headrace.toml.")
        return self._sections[name]

    def open(self, name: str) -> EventStore:
        """A store by its name; it must be there."""
        known = self._opened.get(name)
        if known is None:
            made = self._open(name)  # without the lock: a database that is away takes its time
            known = self._opened.setdefault(name, made)
            if known is not made:
                made.close()
        return known

    def _open(self, name: str) -> EventStore:
        if name.startswith(TOPIC):
            connect = partial(Cluster, self._settings.bootstrap, self._settings.connection)
            return BrokerEventStore(connect, name.removeprefix(TOPIC), create=False)
        return open_store(self._find(name).url, create=False)

    async def ask(self, name: str, question: Callable[[], R]) -> R:
        """What a store, or the code that folds its events, answers in time.

        Each has threads of its own, and all topics together: one that hangs holds up no other page.
        """
        asked = asyncio.get_running_loop().run_in_executor(
            self._threads[TOPIC if name.startswith(TOPIC) else self._find(name).name], question
        )
        try:
            return await asyncio.wait_for(asked, _PATIENCE_S)
        except TimeoutError:
            raise EventSourcingError(f"it does not answer within {_PATIENCE_S:.0f} s") from None

    def close(self) -> None:
        for threads in self._threads.values():
            threads.shutdown(wait=False, cancel_futures=True)
        with self._lock:
            for store in self._opened.values():
                store.close()
            self._opened.clear()

    # --- states

    def aggregate_of(self, name: str, stream: str) -> Aggregate[Any] | None:
        """What folds the events of a stream, if the store's section names it; raises what is wrong with the code."""
        if name.startswith(TOPIC):
            return None
        found = [self._load(target) for target in self._find(name).aggregates]
        for each in found:
            if isinstance(each, Aggregate) and each.name == category_of(stream):
                return each
        for each in found:
            if isinstance(each, HeadraceError):
                raise each
        return None

    def _load(self, target: str) -> Aggregate[Any] | HeadraceError:
        with self._lock:
            if target not in self._aggregates:
                try:
                    found = load("aggregate", target)
                    found.types.use_keys(NoKeys())
                    self._aggregates[target] = found
                except HeadraceError as error:
                    self._aggregates[target] = error
            return self._aggregates[target]

    def step(self, name: str, aggregate: Aggregate[Any], stream: str, version: int) -> StateStep:
        """The states before and after the event of a version."""
        return self._kept[name].step(self.open(name), aggregate, stream, version)


class KeptStates:
    """The last states of one store's aggregates. One is folded at a time: a fold may change its state in place."""

    def __init__(self) -> None:
        self._states: OrderedDict[tuple[str, int], Any] = OrderedDict()
        self._erased: OrderedDict[str, int] = OrderedDict()  # where a stream was erased from last
        self._lock = threading.Lock()

    def step(self, store: EventStore, aggregate: Aggregate[Any], stream: str, version: int) -> StateStep:
        with self._lock:
            try:
                self._forget_erased(store, stream)
                state = self._state(store, aggregate, stream, version - 1)
                before = state_as_json(state)
                after, _ = aggregate.fold(state, store.read_stream(stream, after=version - 1, to=version))
            except HeadraceError:
                raise
            except Exception as error:
                raise EventSourcingError(f"{aggregate!r} fails with {type(error).__name__}: {error}") from error
            self._keep((stream, version), after)
            return StateStep(before, state_as_json(after))

    def _forget_erased(self, store: EventStore, stream: str) -> None:
        """Drop a stream's states if an event of it was redacted or archived since: they hold what is erased."""
        traces = where(types=[REDACTION, ARCHIVAL], tags=[trace_tag(stream)])
        last = next((event.position for event in store.read(traces, backward=True, limit=1)), 0)
        if self._erased.get(stream) != last:
            for key in [key for key in self._states if key[0] == stream]:
                del self._states[key]
        self._erased[stream] = last
        self._erased.move_to_end(stream)
        if len(self._erased) > _KEPT_STATES:  # no more streams than states are kept
            self._erased.popitem(last=False)

    def _state(self, store: EventStore, aggregate: Aggregate[Any], stream: str, version: int) -> Any:
        """A state that is the caller's to change."""
        kept = [number for of, number in self._states if of == stream and number <= version]
        if kept:
            start = max(kept)
            state = copy.deepcopy(self._states[stream, start])
            if version - start <= _MOST_FOLDED:
                state, _ = aggregate.fold(state, store.read_stream(stream, after=start, to=version))
                self._keep((stream, version), state)
                return state
        if version > _MOST_FOLDED:
            raise EventSourcingError(
                f"the state as of version {version} is a fold of more than {_MOST_FOLDED:,} events: see headrace "
                "events replay"
            )
        # Without snapshots, which may hold what is sealed in events.
        state = load_stream(store, aggregate, stream, None, version).state
        self._keep((stream, version), state)
        return state

    def _keep(self, key: tuple[str, int], state: Any) -> None:
        self._states[key] = copy.deepcopy(state)
        self._states.move_to_end(key)
        while len(self._states) > _KEPT_STATES:
            self._states.popitem(last=False)


# --- what is in a store


def list_streams(store: EventStore, category: str, after: str) -> Listing:
    """A page of streams: by name where the store has an index of them, else those of its last events."""
    if isinstance(store, SqlEventStore):
        found = tuple(islice(store.list_streams(category, after=after), STREAMS + 1))
        return Listing(found[:STREAMS], True, found[STREAMS - 1].name if len(found) > STREAMS else "")
    versions: dict[str, int] = {}
    for event in store.read(where(category=category) if category else ALL, backward=True, limit=LOOKED_AT):
        versions.setdefault(event.stream, event.version)
    return Listing(tuple(StreamInfo(*each) for each in islice(versions.items(), STREAMS)), False)


def list_categories(store: EventStore) -> list[str]:
    """The categories of a store, or of its last events where it has no index of streams."""
    if isinstance(store, SqlEventStore):
        return list(islice(_categories_by_index(store), CATEGORIES))
    last = store.read(backward=True, limit=LOOKED_AT)
    return sorted({category_of(event.stream) for event in last})[:CATEGORIES]


def _categories_by_index(store: EventStore) -> Iterator[str]:
    """One look-up for each: behind the first stream of a category all others of it are skipped."""
    after, seen = "", set[str]()  # a stream may have the category's own name, and others between it and the rest
    while (found := next(store.list_streams(after=after), None)) is not None:
        category = category_of(found.name)
        if category not in seen:
            yield category
        seen.add(category)
        after = f"{category}-{_HIGHEST}" if "-" in found.name else found.name


def find_request(store: EventStore, correlation_id: str) -> list[StoredEvent]:
    """What followed from one request, as far as it is among the store's last events; the oldest first."""
    last = store.read(backward=True, limit=LOOKED_AT)
    return [event for event in last if event.correlation_id == correlation_id][::-1][:EVENTS]


def hide_sealed(text: str) -> str:
    """A text without what is sealed in it: nobody can read that, and it is long."""
    return _SEALED.sub("sealed", text)
