"""Commands handled: state is loaded, a decision made, and its events appended, or another attempt made.

    accounts = Repository(store)
    accounts.handle(account, "7", Withdraw(5), command_id="order-1")

Of two that decide about the same stream, one is first; the other loads again and decides again, as often as its `retry`
allows, and then gets the `Conflict`. A command that is sent again under its id is done once. Several things are changed
together by a function of one's own (`run`), which may be called more than once and so should do nothing else:

    def transfer(work):
        work.handle(account, "7", Withdraw(5))
        work.handle(account, "8", Deposit(5))

A decision may also rest on events of many streams: those that a query matches (`handle_within`). It is made again if
another such event was appended meanwhile.
"""

import asyncio
import inspect
import random
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, Final, Generic, TypeVar

from headrace.clock import Clock, SystemClock
from headrace.errors import HeadraceError
from headrace.eventsourcing.aggregate import Aggregate
from headrace.eventsourcing.errors import ArchivedEvents, Conflict, InvalidCommand, Refused, UndecodableEvent
from headrace.eventsourcing.model import ANY, Appended, Condition, NewEvent, Query, Snapshot, StoredEvent, StreamAppend
from headrace.eventsourcing.store import ErasableStore, EventStore, SnapshotStore
from headrace.eventsourcing.traces import ARCHIVAL, ArchivalTrace
from headrace.retry import Backoff, spread
from headrace.telemetry.logs import get_logger

_log = get_logger(__name__)
S = TypeVar("S")
R = TypeVar("R")
RETRY: Final = Backoff(first_s=0.005, longest_s=0.5, retries=10)


@dataclass(frozen=True, slots=True)
class Snapshots:
    """When a snapshot is written: after so many events since the last, or if loading took so long; 0 is never."""

    every: int = 0
    cost_ms: float = 0.0

    def is_due(self, events: int, took_s: float) -> bool:
        by_count = 0 < self.every <= events
        return by_count or (0 < self.cost_ms <= took_s * 1000 and events > 0)


@dataclass(frozen=True, slots=True)
class Loaded(Generic[S]):
    """A state, and the version of its stream; 0 if nothing was ever appended to it.

    `redacted` are events among those read now whose data was deleted, and that the aggregate has no function for.
    """

    state: S
    version: int
    redacted: int = 0


@dataclass(frozen=True, slots=True)
class Handled(Generic[R]):
    """What came of commands. Nothing was appended if no events were decided, and nothing now if it is a repeat."""

    result: R | None  # what the function returned; None for a repeat
    events: tuple[Any, ...]
    appended: Appended | None

    @property
    def is_repeat(self) -> bool:
        return self.appended is not None and self.appended.is_repeat


@dataclass(slots=True)
class _Part(Generic[S]):
    """A stream, or what a query matches, as far as the work has come with it."""

    aggregate: Aggregate[S]
    state: S
    version: int
    query: Query | None = None
    folded: int = 0  # events since the last snapshot
    took_s: float = 0.0
    redacted: int = 0
    decided: dict[str, list[NewEvent]] = field(default_factory=dict)  # by stream


@dataclass(frozen=True, slots=True)
class _Cause:
    command_id: str
    correlation_id: str
    causation_id: str
    headers: Mapping[str, str]

    def fields(self) -> dict[str, Any]:
        return {
            "causation_id": self.causation_id or self.command_id,
            "correlation_id": self.correlation_id or self.command_id,
            "headers": dict(self.headers),
        }


class Work:
    """One attempt: what it decides is appended at the end, all or nothing, if nobody decided about the same meanwhile.

    What is only loaded is not guarded; a decision that rests on more than its own stream is one for `handle_within`.
    """

    def __init__(self, store: EventStore, snapshots: Snapshots, cause: _Cause, now_ms: int) -> None:
        self._store, self._policy, self._cause = store, snapshots, cause
        self._fields = {**cause.fields(), "time_ms": now_ms}
        self.events: list[Any] = []
        self._kept = store if isinstance(store, SnapshotStore) and snapshots != Snapshots() else None
        self._parts: dict[Any, _Part[Any]] = {}

    def load(self, aggregate: Aggregate[S], ident: str) -> Loaded[S]:
        """A state, with what this work has decided about it."""
        part = self.part(aggregate, ident)
        return Loaded(part.state, part.version + sum(map(len, part.decided.values())), part.redacted)

    def handle(self, aggregate: Aggregate[S], ident: str, command: Any) -> list[Any]:
        """Decide about a command; its events."""
        part = self.part(aggregate, ident)
        return self.add(part, aggregate.stream(ident), part.aggregate.decision(part.state, command))

    def handle_within(self, aggregate: Aggregate[S], query: Query, command: Any, *, stream: str) -> list[Any]:
        """Decide about a command by the events that a query matches; what is decided goes to `stream`."""
        part = self.part_within(aggregate, query)
        return self.add(part, stream, part.aggregate.decision(part.state, command))

    def part(self, aggregate: Aggregate[S], ident: str) -> _Part[S]:
        stream = aggregate.stream(ident)
        if (part := self._parts.get(stream)) is None:
            part = self._parts[stream] = load_part(self._store, aggregate, stream, self._kept)
        return part

    def part_within(self, aggregate: Aggregate[S], query: Query) -> _Part[S]:
        if (part := self._parts.get((aggregate.name, query))) is None:
            head = self._store.last_position()
            if isinstance(self._store, ErasableStore) and (found := self._store.find_archived(query)) is not None:
                raise ArchivedEvents(
                    f"an event at position {found} matches {query} and was archived: a decision by these events "
                    "needs all of them"
                )
            state, _ = aggregate.fold(aggregate.initial(), self._store.read(query, to=head))
            part = self._parts[aggregate.name, query] = _Part(aggregate, state, head, query)
        return part

    def add(self, part: _Part[Any], stream: str, decision: Any) -> list[Any]:
        """What was decided, on its way to a stream; later decisions of this work see it."""
        events = part.aggregate.events_of(decision)
        decided = part.decided.setdefault(stream, [])
        for event in events:
            decided.append(part.aggregate.types.encode(event, **self._fields))
            part.state = part.aggregate.evolved(part.state, event)
        self.events += events
        return events

    def commit(self) -> Appended | None:
        """Append what was decided."""
        appends: dict[str, StreamAppend] = {}
        guarded = [part for part in self._parts.values() if part.query is not None]
        for part in self._parts.values():
            for stream, new in part.decided.items():
                expected = part.version if part.query is None else ANY
                if (known := appends.get(stream)) is not None:
                    appends[stream] = StreamAppend(stream, [*known.events, *new], max(known.expected, expected))
                elif new:
                    appends[stream] = StreamAppend(stream, new, expected)
        if not appends:
            return None
        condition = None
        if guarded:
            criteria = tuple(each for part in guarded if part.query for each in part.query.criteria)
            condition = Condition(Query(criteria), min(part.version for part in guarded))
        appended = self._store.append(list(appends.values()), condition=condition, command_id=self._cause.command_id)
        if not appended.is_repeat:
            self._write_snapshots(appended)
        return appended

    def _write_snapshots(self, appended: Appended) -> None:
        """A snapshot that fails is written another time: the events are stored, and that is what was asked for."""
        for stream, part in self._parts.items():
            folded = part.folded + sum(map(len, part.decided.values()))
            if self._kept is None or part.query is not None or not self._policy.is_due(folded, part.took_s):
                continue
            version = appended.versions.get(stream, part.version)
            try:
                data = part.aggregate.dump_state(part.state)
                self._kept.write_snapshot(stream, Snapshot(version, part.aggregate.fingerprint, data))
            except HeadraceError as error:
                _log.warning("a snapshot cannot be written", stream=stream, error=str(error))


def load_part(
    store: EventStore, aggregate: Aggregate[S], stream: str, kept: SnapshotStore | None, to: int | None = None
) -> _Part[S]:
    """A stream's state, from its snapshot if there is one of this very fold, and the events after it."""
    started = time.perf_counter()
    state, version = aggregate.initial(), 0
    snapshot = kept.read_snapshot(stream, aggregate.fingerprint) if kept is not None else None
    if snapshot is not None and (to is None or snapshot.version <= to):
        try:
            state, version = aggregate.load_state(snapshot.data), snapshot.version
        except UndecodableEvent as error:
            _log.warning("a snapshot cannot be read, and all events are", stream=stream, error=str(error))
    events, passed_by = iter(store.read_stream(stream, after=version, to=to)), list[StoredEvent]()
    first = next(events, None)
    if _are_missing(store, stream, version, to, first):
        state, version = _load_archived(store, aggregate, stream, to)
        events = iter(store.read_stream(stream, after=version, to=to))
        first = next(events, None)
    state, last = aggregate.fold(state, chain(() if first is None else (first,), events), passed_by)
    reached = version if last is None else last.version
    took_s = time.perf_counter() - started
    return _Part(aggregate, state, reached, folded=reached - version, took_s=took_s, redacted=len(passed_by))


def _are_missing(store: EventStore, stream: str, after: int, to: int | None, first: StoredEvent | None) -> bool:
    """Whether events after a version, of which this is the first there is, were archived."""
    if first is None and to is not None and after < to:
        first = next(iter(store.read_stream(stream, limit=1)), None)
    return first is not None and first.version > after + 1


def _load_archived(store: EventStore, aggregate: Aggregate[S], stream: str, to: int | None) -> tuple[S, int]:
    """The state that archived events led to, as their trace has it, and its version."""
    found = (each for each in store.read_stream(stream, backward=True) if each.type == ARCHIVAL)
    event = next(found, None)
    if event is None:
        raise ArchivedEvents(f"events of stream {stream!r} are missing, and there is no trace of it: verify the store")
    trace: ArchivalTrace = aggregate.types.decode(event)
    where = f"in the archive {trace.archive}" if trace.archive else "deleted"
    if trace.state is None or (to is not None and to < trace.state_version):
        raise ArchivedEvents(
            f"events up to {trace.last} of stream {stream!r} are {where}: the state "
            f"{'after them' if to is None else f'as of version {to}'} cannot be loaded from this store"
        )
    try:
        return aggregate.load_state(trace.state), trace.state_version
    except UndecodableEvent as error:
        raise ArchivedEvents(
            f"events up to {trace.last} of stream {stream!r} are {where}, and the state that they led to is not what "
            f"{aggregate!r} has now ({error}): give its class the fields that are stored"
        ) from error


class _Base:
    def __init__(
        self,
        store: EventStore,
        *,
        retry: Backoff = RETRY,
        snapshots: Snapshots = Snapshots(),  # noqa: B008 - frozen
        clock: Clock = SystemClock(),  # noqa: B008 - it has no state
    ) -> None:
        if snapshots != Snapshots() and not isinstance(store, SnapshotStore):
            raise InvalidCommand(f"{store} keeps no snapshots: use another store, or leave `snapshots` out")
        self.store, self.snapshots = store, snapshots
        self._retry, self._clock = retry, clock

    def _pauses(self) -> Iterator[float]:
        return (spread(pause_s, random.random()) for pause_s in self._retry.pauses())  # noqa: S311 - against herds

    def _load(self, aggregate: Aggregate[S], ident: str, to: int | None) -> Loaded[S]:
        kept = self.store if isinstance(self.store, SnapshotStore) and self.snapshots != Snapshots() else None
        part = load_part(self.store, aggregate, aggregate.stream(ident), kept, to)
        return Loaded(part.state, part.version, part.redacted)

    def _end(self, work: Work, cause: _Cause) -> Appended | None:
        appended = work.commit()
        return self._find(cause) if appended is None else appended

    def _find(self, cause: _Cause) -> Appended | None:
        """What the same command did before, if it did."""
        return self.store.find_command(cause.command_id) if cause.command_id else None


def _handled(result: R, work: Work, appended: Appended | None) -> Handled[R]:
    if appended is not None and appended.is_repeat:
        return Handled(None, (), appended)
    return Handled(result, tuple(work.events), appended)


class Repository(_Base):
    """Loads aggregates and handles commands. Several threads may use one at once."""

    def load(self, aggregate: Aggregate[S], ident: str, *, to: int | None = None) -> Loaded[S]:
        """The state of one aggregate, now or as of a version."""
        return self._load(aggregate, ident, to)

    def handle(
        self,
        aggregate: Aggregate[Any],
        ident: str,
        command: Any,
        *,
        command_id: str = "",
        correlation_id: str = "",
        causation_id: str = "",
        headers: Mapping[str, str] | None = None,
    ) -> Handled[list[Any]]:
        """Decide about one command. Raises `Refused`, or `Conflict` after too many attempts."""
        return self.run(
            lambda work: work.handle(aggregate, ident, command),
            command_id=command_id, correlation_id=correlation_id, causation_id=causation_id, headers=headers,
        )  # fmt: skip

    def run(
        self,
        function: Callable[[Work], R],
        *,
        command_id: str = "",
        correlation_id: str = "",
        causation_id: str = "",
        headers: Mapping[str, str] | None = None,
    ) -> Handled[R]:
        """Call a function that decides about several things, and append all of it or nothing."""
        cause, pauses = _Cause(command_id, correlation_id, causation_id, headers or {}), self._pauses()
        while True:
            work = Work(self.store, self.snapshots, cause, self._clock.now_ms())
            try:
                result = function(work)
                return _handled(result, work, self._end(work, cause))
            except Refused:
                if (done := self._find(cause)) is None:
                    raise
                return Handled(None, (), done)
            except Conflict:
                if (pause_s := next(pauses, None)) is None:
                    raise
                time.sleep(pause_s)


class AsyncWork:
    """As `Work`, for functions that decide asynchronously; the store is used in threads."""

    def __init__(self, work: Work) -> None:
        self._work = work

    async def load(self, aggregate: Aggregate[S], ident: str) -> Loaded[S]:
        return await asyncio.to_thread(self._work.load, aggregate, ident)

    async def handle(self, aggregate: Aggregate[S], ident: str, command: Any) -> list[Any]:
        part = await asyncio.to_thread(self._work.part, aggregate, ident)
        return await self._decide(part, aggregate.stream(ident), command)

    async def handle_within(self, aggregate: Aggregate[S], query: Query, command: Any, *, stream: str) -> list[Any]:
        part = await asyncio.to_thread(self._work.part_within, aggregate, query)
        return await self._decide(part, stream, command)

    async def _decide(self, part: _Part[Any], stream: str, command: Any) -> list[Any]:
        decision = part.aggregate.decision(part.state, command)
        return self._work.add(part, stream, await decision if inspect.isawaitable(decision) else decision)


class AsyncRepository(_Base):
    """As `Repository`, for asyncio: decisions may be `async`, and the loop does not wait for the store."""

    async def load(self, aggregate: Aggregate[S], ident: str, *, to: int | None = None) -> Loaded[S]:
        """The state of one aggregate, now or as of a version."""
        return await asyncio.to_thread(self._load, aggregate, ident, to)

    async def handle(
        self,
        aggregate: Aggregate[Any],
        ident: str,
        command: Any,
        *,
        command_id: str = "",
        correlation_id: str = "",
        causation_id: str = "",
        headers: Mapping[str, str] | None = None,
    ) -> Handled[list[Any]]:
        """Decide about one command. Raises `Refused`, or `Conflict` after too many attempts."""
        return await self.run(
            lambda work: work.handle(aggregate, ident, command),
            command_id=command_id, correlation_id=correlation_id, causation_id=causation_id, headers=headers,
        )  # fmt: skip

    async def run(
        self,
        function: Callable[[AsyncWork], Awaitable[R]],
        *,
        command_id: str = "",
        correlation_id: str = "",
        causation_id: str = "",
        headers: Mapping[str, str] | None = None,
    ) -> Handled[R]:
        """Call a function that decides about several things, and append all of it or nothing."""
        cause, pauses = _Cause(command_id, correlation_id, causation_id, headers or {}), self._pauses()
        while True:
            work = Work(self.store, self.snapshots, cause, self._clock.now_ms())
            try:
                result = await function(AsyncWork(work))
                return _handled(result, work, await asyncio.to_thread(self._end, work, cause))
            except Refused:
                if (done := await asyncio.to_thread(self._find, cause)) is None:
                    raise
                return Handled(None, (), done)
            except Conflict:
                if (pause_s := next(pauses, None)) is None:
                    raise
                await asyncio.sleep(pause_s)
