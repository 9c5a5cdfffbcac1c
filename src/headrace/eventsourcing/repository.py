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
from datetime import datetime
from typing import Any, Final, Generic, NamedTuple, TypeVar

from headrace.clock import Clock, SystemClock
from headrace.eventsourcing.aggregate import Aggregate, PassedBy
from headrace.eventsourcing.causation import cause_ids
from headrace.eventsourcing.errors import ArchivedEvents, Conflict, Refused
from headrace.eventsourcing.loading import LoadedStream, load_stream
from headrace.eventsourcing.model import ANY, Appended, Condition, NewEvent, Query, StoredEvent, StreamAppend
from headrace.eventsourcing.snapshots import SnapshotKeeper, Snapshots
from headrace.eventsourcing.store import ErasableStore, EventStore, SnapshotStore
from headrace.eventsourcing.travel import AsOf, Step, as_of, steps_of
from headrace.forgetting.sealed import key_ids_in
from headrace.retry import Backoff, spread

S = TypeVar("S")
R = TypeVar("R")
_CHANCE: Final = random.SystemRandom()  # a program that seeds `random` keeps its own; forks differ
RETRY: Final = Backoff(first_s=0.005, longest_s=0.5, retries=10)


@dataclass(frozen=True, slots=True)
class Loaded(Generic[S]):
    """A state, and the version of its stream; 0 if nothing was ever appended to it.

    `redacted` are events among those read now whose data was deleted, and that the aggregate has no function for.
    """

    state: S
    version: int
    redacted: int = 0
    unknown: Mapping[str, int] = field(default_factory=dict)  # events that the code does not know, by type


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
    version: int  # without what the work has decided
    stream: str = ""
    query: Query | None = None
    loaded: LoadedStream[S] | None = None  # None for a query
    passed_by: PassedBy = field(default_factory=PassedBy)
    decided: list[NewEvent] = field(default_factory=list)  # by this work, and in the state

    def take(self, decided: "_Decided") -> None:
        """Have an event of this work in the state, if it is one that would be loaded."""
        stream, event, new = decided
        if stream == self.stream if self.query is None else self.query.matches(stream, new):
            if self.aggregate.types.keys is not None:
                self.passed_by.opened |= key_ids_in(new.data)
            self.state = self.aggregate.evolved(self.state, event)
            self.decided.append(new)


class _Decided(NamedTuple):
    """An event on its way to a stream."""

    stream: str
    event: Any
    new: NewEvent


@dataclass(frozen=True, slots=True)
class _Cause:
    command_id: str
    correlation_id: str
    causation_id: str
    headers: Mapping[str, str]
    event: StoredEvent | None = None

    def fields(self) -> dict[str, Any]:
        causation, correlation = (self.command_id, self.command_id) if self.event is None else cause_ids(self.event)
        return {
            "causation_id": self.causation_id or causation,
            "correlation_id": self.correlation_id or correlation,
            "headers": dict(self.headers),
        }


class Work:
    """One attempt: what it decides is appended at the end, all or nothing, if nobody decided about the same meanwhile.

    Every decision sees what was decided before it, by whichever of its states. What is only loaded is not guarded; a
    decision that rests on more than its own stream is one for `handle_within`.
    """

    def __init__(self, store: EventStore, keeper: SnapshotKeeper, cause: _Cause, now_ms: int) -> None:
        self._store, self._keeper, self._cause = store, keeper, cause
        self._fields = {**cause.fields(), "time_ms": now_ms}
        self._decided: list[_Decided] = []
        self._parts: dict[tuple[Aggregate[Any], str | Query], _Part[Any]] = {}

    @property
    def events(self) -> list[Any]:
        """What was decided, in that order."""
        return [each.event for each in self._decided]

    def load(self, aggregate: Aggregate[S], ident: str) -> Loaded[S]:
        """A state, with what this work has decided about it."""
        part = self.part(aggregate, ident)
        version = part.version + len(part.decided)
        return Loaded(part.state, version, part.passed_by.redacted, part.passed_by.unknown)

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
        if (part := self._parts.get((aggregate, stream))) is None:
            loaded = load_stream(self._store, aggregate, stream, self._keeper)
            part = _Part(aggregate, loaded.state, loaded.version, stream, None, loaded, loaded.passed_by)
            self._keep((aggregate, stream), part)
        return part

    def part_within(self, aggregate: Aggregate[S], query: Query) -> _Part[S]:
        if (part := self._parts.get((aggregate, query))) is None:
            head = self._store.last_position()
            state, _ = aggregate.fold(aggregate.initial(), self._store.read(query, to=head))
            # After they were read: one that was archived meanwhile may be missing among them.
            if isinstance(self._store, ErasableStore) and (found := self._store.find_archived(query)) is not None:
                raise ArchivedEvents(
                    f"an event at position {found} matches {query} and was archived: a decision by these events "
                    "needs all of them"
                )
            part = _Part(aggregate, state, head, query=query)
            self._keep((aggregate, query), part)
        return part

    def _keep(self, key: tuple[Aggregate[Any], str | Query], part: _Part[Any]) -> None:
        for each in self._decided:
            part.take(each)
        self._parts[key] = part

    def add(self, part: _Part[Any], stream: str, decision: Any) -> list[Any]:
        """What was decided, on its way to a stream; later decisions of this work see it."""
        events = part.aggregate.events_of(decision)
        added = [_Decided(stream, each, part.aggregate.types.encode(each, **self._fields)) for each in events]
        for decided in added:
            for each in self._parts.values():
                each.take(decided)
        self._decided += added
        return events

    def commit(self) -> Appended | None:
        """Append what was decided."""
        new: dict[str, list[NewEvent]] = {}
        for each in self._decided:
            new.setdefault(each.stream, []).append(each.new)
        expected: dict[str, int] = {}
        guarded = [part for part in self._parts.values() if part.query is not None]
        for part in self._parts.values():
            if part.query is None:  # of two that were loaded at different times, the older one tells
                expected[part.stream] = min(part.version, expected.get(part.stream, part.version))
        appends = [StreamAppend(stream, events, expected.get(stream, ANY)) for stream, events in new.items()]
        if not appends:
            return None
        condition = None
        if guarded:
            criteria = tuple(each for part in guarded if part.query for each in part.query.criteria)
            condition = Condition(Query(criteria), min(part.version for part in guarded))
        appended = self._store.append(appends, condition=condition, command_id=self._cause.command_id)
        if not appended.is_repeat:
            self._write_snapshots(appended)
        return appended

    def _write_snapshots(self, appended: Appended) -> None:
        for part in self._parts.values():
            if (loaded := part.loaded) is None:
                continue
            stream, new = part.stream, part.decided
            version = part.version + len(new)
            is_due = self._keeper.policy.is_due(loaded.folded + len(new), loaded.took_s)
            # Not a state that others have gone beyond, nor one from which unknown events were left out: they would not
            # be counted again.
            if is_due and version == appended.versions.get(stream, version) and not part.passed_by.unknown:
                last_id = new[-1].id if new else loaded.last_id
                self._keeper.write(part.aggregate, stream, part.state, version, last_id, part.passed_by.opened)


class _Base:
    def __init__(
        self,
        store: EventStore,
        *,
        retry: Backoff = RETRY,
        snapshots: Snapshots = Snapshots(),  # noqa: B008 - frozen
        snapshot_store: SnapshotStore | None = None,
        clock: Clock = SystemClock(),  # noqa: B008 - it has no state
    ) -> None:
        self.store = store
        self._keeper = SnapshotKeeper(store, snapshots, snapshot_store)
        self._retry, self._clock = retry, clock

    def _pauses(self) -> Iterator[float]:
        return (spread(pause_s, _CHANCE.random()) for pause_s in self._retry.pauses())

    def _load(self, aggregate: Aggregate[S], ident: str, until: AsOf) -> Loaded[S]:
        stream = aggregate.stream(ident)
        loaded = load_stream(self.store, aggregate, stream, self._keeper, until.find_version(self.store, stream))
        return Loaded(loaded.state, loaded.version, loaded.passed_by.redacted, loaded.passed_by.unknown)

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

    def load(
        self,
        aggregate: Aggregate[S],
        ident: str,
        *,
        to: int | None = None,
        at: datetime | None = None,
        position: int | None = None,
        event_id: str = "",
    ) -> Loaded[S]:
        """The state of one aggregate: now, or as of a version (`to`), a time (`at`) or an event, by position or id.

        As of a time is up to the first event that is later.
        """
        until = as_of(to, at, position, event_id)
        return self._load(aggregate, ident, until)

    def history(
        self, aggregate: Aggregate[S], ident: str, *, to: int | None = None, at: datetime | None = None
    ) -> Iterator[Step[S]]:
        """The states of one aggregate, from the one before its first event on, each with the event that led to it."""
        return steps_of(self.store, aggregate, aggregate.stream(ident), as_of(to, at, None, ""))

    def handle(
        self,
        aggregate: Aggregate[Any],
        ident: str,
        command: Any,
        *,
        command_id: str = "",
        cause: StoredEvent | None = None,
        correlation_id: str = "",
        causation_id: str = "",
        headers: Mapping[str, str] | None = None,
    ) -> Handled[list[Any]]:
        """Decide about one command. Raises `Refused`, or `Conflict` after too many attempts.

        `cause` is the stored event that it answers: what is decided names it, and goes on under its correlation id.
        """
        return self.run(
            lambda work: work.handle(aggregate, ident, command),
            command_id=command_id, cause=cause, correlation_id=correlation_id, causation_id=causation_id,
            headers=headers,
        )  # fmt: skip

    def run(
        self,
        function: Callable[[Work], R],
        *,
        command_id: str = "",
        cause: StoredEvent | None = None,
        correlation_id: str = "",
        causation_id: str = "",
        headers: Mapping[str, str] | None = None,
    ) -> Handled[R]:
        """Call a function that decides about several things, and append all of it or nothing."""
        because, pauses = _Cause(command_id, correlation_id, causation_id, headers or {}, cause), self._pauses()
        while True:
            work = Work(self.store, self._keeper, because, self._clock.now_ms())
            try:
                result = function(work)
                return _handled(result, work, self._end(work, because))
            except Refused:
                if (done := self._find(because)) is None:
                    raise
                return Handled(None, (), done)
            except Conflict:
                if (pause_s := next(pauses, None)) is None:
                    raise
                time.sleep(pause_s)


class AsyncWork:
    """As `Work`, for functions that decide asynchronously; the store is used in threads.

    Decisions that are begun at once are made one after the other: each sees what the one before it has led to.
    """

    def __init__(self, work: Work) -> None:
        self._work = work
        self._turn = asyncio.Lock()

    async def load(self, aggregate: Aggregate[S], ident: str) -> Loaded[S]:
        async with self._turn:
            return await asyncio.to_thread(self._work.load, aggregate, ident)

    async def handle(self, aggregate: Aggregate[S], ident: str, command: Any) -> list[Any]:
        async with self._turn:
            part = await asyncio.to_thread(self._work.part, aggregate, ident)
            return await self._decide(part, aggregate.stream(ident), command)

    async def handle_within(self, aggregate: Aggregate[S], query: Query, command: Any, *, stream: str) -> list[Any]:
        async with self._turn:
            part = await asyncio.to_thread(self._work.part_within, aggregate, query)
            return await self._decide(part, stream, command)

    async def _decide(self, part: _Part[Any], stream: str, command: Any) -> list[Any]:
        decision = part.aggregate.decision(part.state, command)
        return self._work.add(part, stream, await decision if inspect.isawaitable(decision) else decision)


class AsyncRepository(_Base):
    """As `Repository`, for asyncio: decisions may be `async`, and the loop does not wait for the store."""

    async def load(
        self,
        aggregate: Aggregate[S],
        ident: str,
        *,
        to: int | None = None,
        at: datetime | None = None,
        position: int | None = None,
        event_id: str = "",
    ) -> Loaded[S]:
        """The state of one aggregate: now, or as of a version (`to`), a time (`at`) or an event, by position or id.

        As of a time is up to the first event that is later.
        """
        until = as_of(to, at, position, event_id)
        return await asyncio.to_thread(self._load, aggregate, ident, until)

    async def handle(
        self,
        aggregate: Aggregate[Any],
        ident: str,
        command: Any,
        *,
        command_id: str = "",
        cause: StoredEvent | None = None,
        correlation_id: str = "",
        causation_id: str = "",
        headers: Mapping[str, str] | None = None,
    ) -> Handled[list[Any]]:
        """Decide about one command. Raises `Refused`, or `Conflict` after too many attempts.

        `cause` is the stored event that it answers: what is decided names it, and goes on under its correlation id.
        """
        return await self.run(
            lambda work: work.handle(aggregate, ident, command),
            command_id=command_id, cause=cause, correlation_id=correlation_id, causation_id=causation_id,
            headers=headers,
        )  # fmt: skip

    async def run(
        self,
        function: Callable[[AsyncWork], Awaitable[R]],
        *,
        command_id: str = "",
        cause: StoredEvent | None = None,
        correlation_id: str = "",
        causation_id: str = "",
        headers: Mapping[str, str] | None = None,
    ) -> Handled[R]:
        """Call a function that decides about several things, and append all of it or nothing."""
        because, pauses = _Cause(command_id, correlation_id, causation_id, headers or {}, cause), self._pauses()
        while True:
            work = Work(self.store, self._keeper, because, self._clock.now_ms())
            try:
                result = await function(AsyncWork(work))
                return _handled(result, work, await asyncio.to_thread(self._end, work, because))
            except Refused:
                if (done := await asyncio.to_thread(self._find, because)) is None:
                    raise
                return Handled(None, (), done)
            except Conflict:
                if (pause_s := next(pauses, None)) is None:
                    raise
                await asyncio.sleep(pause_s)
