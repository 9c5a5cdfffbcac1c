"""Aggregates as they were: as of a version, an event or a time, step by step; and as changed code would have them.

As of a time is up to the first event that is later: clocks differ, and a state is always one that there has been.
"""

import json
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from itertools import chain
from typing import Any, Generic, NamedTuple, TypeVar

from headrace.errors import HeadraceError
from headrace.eventsourcing.aggregate import Aggregate
from headrace.eventsourcing.errors import EventSourcingError, InvalidCommand
from headrace.eventsourcing.event_types import dump
from headrace.eventsourcing.loading import load_stream
from headrace.eventsourcing.model import StoredEvent, StreamInfo
from headrace.eventsourcing.store import EventStore

S = TypeVar("S")


@dataclass(frozen=True, slots=True)
class AsOf:
    """Up to where a stream is read: one of these, or all of it."""

    version: int | None = None
    position: int | None = None
    event_id: str = ""
    time_ms: int | None = None

    def __post_init__(self) -> None:
        given = [self.version is not None, self.position is not None, bool(self.event_id), self.time_ms is not None]
        if sum(given) > 1:
            raise InvalidCommand("a state is as of one thing: give a version, a position, an event's id or a time")
        for what, number in (("version", self.version), ("position", self.position)):
            if number is not None and number < 0:
                raise InvalidCommand(f"there is no state as of {what} {number}: give 0 or more")

    def find_version(self, store: EventStore, stream: str) -> int | None:
        """The version that this is in a stream; None for all of it, however many events that may be."""
        if self.position is None and not self.event_id and self.time_ms is None:
            return self.version
        reached = None
        for event in store.read_stream(stream):
            if self.event_id == event.id:
                return event.version
            if self.position is not None and event.position > self.position:
                return event.version - 1
            if self.time_ms is not None and event.time_ms > self.time_ms:
                return event.version - 1
            reached = event.version
        if self.event_id:
            raise EventSourcingError(f"stream {stream!r} has no event with the id {self.event_id!r}")
        return reached


def as_of(version: int | None, at: datetime | None, position: int | None, event_id: str) -> AsOf:
    """What a caller asks for."""
    if at is not None and at.tzinfo is None:
        raise InvalidCommand(f"at={at!r} has no time zone: give one, as in datetime(2026, 5, 1, tzinfo=UTC)")
    return AsOf(version, position, event_id, None if at is None else int(at.timestamp() * 1000))


class Step(NamedTuple, Generic[S]):
    """A state, and the event that led to it; None before the first. A fold that changes its state has one object."""

    event: StoredEvent | None
    state: S


def steps_of(store: EventStore, aggregate: Aggregate[S], stream: str, until: AsOf) -> Iterator[Step[S]]:
    """The states of an aggregate, one for each event, and the one before them all."""
    events = iter(store.read_stream(stream, to=until.find_version(store, stream)))
    first = next(events, None)
    # Of a stream whose first events were archived, from the state that they led to.
    start = load_stream(store, aggregate, stream, None, 0 if first is None else first.version - 1)
    state = start.state
    yield Step(None, state)
    for event in chain(() if first is None else (first,), events):
        state, _ = aggregate.fold(state, (event,))
        yield Step(event, state)


# --- differences


class Change(NamedTuple):
    """Something in a state that is not as it was; `MISSING` is what is not there."""

    path: str
    before: Any
    after: Any


class _Missing:
    def __repr__(self) -> str:
        return "nothing"


MISSING = _Missing()


def state_as_json(state: Any) -> Any:
    """A state as JSON has it; what has no form there is shown as Python does."""
    try:
        return json.loads(dump(state))
    except HeadraceError:
        with suppress(RecursionError):
            return repr(state)
    except RecursionError:
        pass
    return f"a {type(state).__name__} that is nested too deeply to be shown"


def changes_between(before: Any, after: Any, path: str = "") -> Iterator[Change]:
    """Where two values of JSON differ."""
    if isinstance(before, dict) and isinstance(after, dict):
        for name in [*before, *(each for each in after if each not in before)]:
            inner = f"{path}.{name}" if path else str(name)
            yield from changes_between(before.get(name, MISSING), after.get(name, MISSING), inner)
    elif isinstance(before, list) and isinstance(after, list):
        for number in range(max(len(before), len(after))):
            was, is_now = (each[number] if number < len(each) else MISSING for each in (before, after))
            yield from changes_between(was, is_now, f"{path}[{number}]")
    elif before is not after and (type(before), before) != (type(after), after):
        yield Change(path or "state", before, after)


class Comparison(NamedTuple):
    """A stream under two folds: how their states differ, or how one of them failed."""

    stream: str
    version: int
    changes: list[Change]

    @property
    def differs(self) -> bool:
        return bool(self.changes)


def compare_folds(
    store: EventStore, streams: Iterable[StreamInfo], before: Aggregate[Any], after: Aggregate[Any]
) -> Iterator[Comparison]:
    """The same events, folded by two aggregates: what changed code would make of what has happened."""
    for stream in streams:
        outcomes = [_outcome(store, each, stream) for each in (before, after)]
        yield Comparison(stream.name, stream.version, list(changes_between(outcomes[0], outcomes[1])))


def _outcome(store: EventStore, aggregate: Aggregate[Any], stream: StreamInfo) -> Any:
    try:
        return state_as_json(load_stream(store, aggregate, stream.name, None, stream.version).state)
    except HeadraceError as error:
        return f"fails: {error}"
    except Exception as error:  # noqa: BLE001 - of the code that is tried
        return f"fails: {type(error).__name__}: {error}"
