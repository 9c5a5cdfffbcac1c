"""The state of one stream: from a snapshot, or what an archive left of it, and the events thereafter."""

import time
from dataclasses import dataclass
from itertools import chain, count
from operator import itemgetter
from typing import Final, Generic, TypeVar

from headrace.eventsourcing.aggregate import Aggregate, PassedBy
from headrace.eventsourcing.errors import ArchivedEvents, ForgottenState, UndecodableEvent
from headrace.eventsourcing.model import StoredEvent
from headrace.eventsourcing.snapshots import SnapshotKeeper
from headrace.eventsourcing.store import EventStore
from headrace.eventsourcing.traces import ARCHIVAL, ArchivalTrace

S = TypeVar("S")
_ATTEMPTS: Final = 5  # to load a stream that is archived meanwhile


@dataclass(frozen=True, slots=True)
class LoadedStream(Generic[S]):
    """A state, the version of its stream, and what it took."""

    state: S
    version: int
    folded: int  # events since the last snapshot
    took_s: float  # for these
    last_id: str  # of the last event, if there was one
    passed_by: PassedBy


def load_stream(
    store: EventStore, aggregate: Aggregate[S], stream: str, keeper: SnapshotKeeper | None, to: int | None = None
) -> LoadedStream[S]:
    """A stream's state, from its snapshot if there is one of this very fold, and the events after it."""
    for _ in range(_ATTEMPTS):
        if (loaded := _load_once(store, aggregate, stream, keeper, to)) is not None:
            return loaded
    raise _missing(stream)


def _load_once(
    store: EventStore, aggregate: Aggregate[S], stream: str, keeper: SnapshotKeeper | None, to: int | None
) -> LoadedStream[S] | None:
    """As `load_stream`; None if events were archived before they were read."""
    restored = keeper.read(aggregate, stream, to) if keeper is not None else None
    started = time.perf_counter()  # what another snapshot would save
    state, version = (aggregate.initial(), 0) if restored is None else (restored.state, restored.version)
    events, passed_by = iter(store.read_stream(stream, after=version, to=to)), PassedBy()
    passed_by.opened |= frozenset() if restored is None else restored.opened
    first = next(events, None)
    if _are_missing(store, stream, version, to, first):
        state, version = _load_archived(store, aggregate, stream, to, passed_by.opened)
        events = iter(store.read_stream(stream, after=version, to=to))
        first = next(events, None)
    numbers = count(version)
    counted = map(itemgetter(0), zip(chain(() if first is None else (first,), events), numbers, strict=False))
    state, last = aggregate.fold(state, counted, passed_by)
    reached, ident = (version, "") if last is None else (last.version, last.id)
    if reached != next(numbers):
        return None
    return LoadedStream(state, reached, reached - version, time.perf_counter() - started, ident, passed_by)


def _missing(stream: str) -> ArchivedEvents:
    return ArchivedEvents(f"events of stream {stream!r} are missing, and there is no trace of it: verify the store")


def _are_missing(store: EventStore, stream: str, after: int, to: int | None, first: StoredEvent | None) -> bool:
    """Whether events after a version, of which this is the first there is, were archived."""
    if first is None and to is not None and after < to:
        first = next(iter(store.read_stream(stream, limit=1)), None)
    return first is not None and first.version > after + 1


def _load_archived(
    store: EventStore, aggregate: Aggregate[S], stream: str, to: int | None, opened: set[str]
) -> tuple[S, int]:
    """The state that archived events led to, as their trace has it, and its version."""
    found = (each for each in store.read_stream(stream, backward=True) if each.type == ARCHIVAL)
    event = next(found, None)
    if event is None:
        raise _missing(stream)
    trace: ArchivalTrace = aggregate.types.decode(event)
    where = f"in the archive {trace.archive}" if trace.archive else "deleted"
    if trace.state is None or (to is not None and to < trace.state_version):
        raise ArchivedEvents(
            f"events up to {trace.last} of stream {stream!r} are {where}: the state "
            f"{'after them' if to is None else f'as of version {to}'} cannot be loaded from this store"
        )
    try:
        return aggregate.load_state(trace.state, opened), trace.state_version
    except ForgottenState:
        raise ArchivedEvents(
            f"events up to {trace.last} of stream {stream!r} are {where}, and somebody in the state they led to was "
            "forgotten: it cannot be loaded from this store"
        ) from None
    except UndecodableEvent as error:
        raise ArchivedEvents(
            f"events up to {trace.last} of stream {stream!r} are {where}, and the state that they led to is not what "
            f"{aggregate!r} has now ({error}): give its class the fields that are stored"
        ) from error
