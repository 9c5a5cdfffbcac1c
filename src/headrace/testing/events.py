"""Decisions tested without a store: given what happened, when this is asked for, then that happens.

    given(account, Opened("ann"), Deposited(5)).when(Withdraw(3)).then(Withdrawn(3))
    given(account, Opened("ann")).when(Withdraw(3)).then(Refused("there are only 0"))

And what a process wants done about what happens to it:

    process = follow(transferring).event(Requested("t1", "ann", "bob", 30)).then(Send("account", "ann", Withdraw(30)))
    process.refused(Withdraw(30), "there are only 5").then(End())

Events go through their stored form and back, so a test fails for those that could not be stored. A decision that is
`async` is run to its end. `check_event_schemas` fails a test if today's classes could not read what was recorded.
"""

import asyncio
import inspect
from dataclasses import replace
from pathlib import Path
from typing import Any, Generic, Self, TypeVar

from headrace.eventsourcing.aggregate import Aggregate
from headrace.eventsourcing.errors import Refused
from headrace.eventsourcing.event_types import EVENT_TYPES, EventTypes
from headrace.eventsourcing.memory import MemoryStore
from headrace.eventsourcing.model import StreamAppend
from headrace.eventsourcing.process import Advanced, Cancel, Cause, Effect, End, Process, Send, Wait, Wish
from headrace.eventsourcing.schemas import compare, read_schemas

S = TypeVar("S")


class Outcome(Generic[S]):
    """What came of a command."""

    def __init__(self, aggregate: Aggregate[S], before: tuple[Any, ...], decided: list[Any] | Refused) -> None:
        self._aggregate, self._before, self.decided = aggregate, before, decided

    def then(self, *expected: Any) -> "Outcome[S]":
        """Fail unless just these events were decided, or the command was refused for just this reason."""
        if len(expected) == 1 and isinstance(expected[0], Refused):
            assert isinstance(self.decided, Refused), f"refused was expected, and decided was {self.decided}"
            assert self.decided.reason == expected[0].reason
        else:
            assert not isinstance(self.decided, Refused), f"refused: {self.decided}"
            assert self.decided == list(expected)
        return self

    def then_state(self, expected: S) -> "Outcome[S]":
        """Fail unless the state is this one thereafter."""
        after = () if isinstance(self.decided, Refused) else tuple(self.decided)
        assert fold_events(self._aggregate, *self._before, *after) == expected
        return self


class Given(Generic[S]):
    """An aggregate to which something has happened."""

    def __init__(self, aggregate: Aggregate[S], events: tuple[Any, ...]) -> None:
        self._aggregate, self._events = aggregate, events

    def when(self, command: Any) -> Outcome[S]:
        """Ask for something."""
        state = fold_events(self._aggregate, *self._events)
        try:
            decision = self._aggregate.decision(state, command)
            if inspect.isawaitable(decision):
                decision = asyncio.run(_wait_for(decision))
            decided = self._aggregate.events_of(decision)
        except Refused as refused:
            return Outcome(self._aggregate, self._events, refused)
        fold_events(self._aggregate, *decided)
        return Outcome(self._aggregate, self._events, decided)


async def _wait_for(decision: Any) -> Any:
    return await decision


def fold_events(aggregate: Aggregate[S], *events: Any) -> S:
    """The state after these events, each stored and read again."""
    store = MemoryStore()
    if events:
        store.append([StreamAppend("given", [aggregate.types.encode(event) for event in events])])
    return aggregate.fold(aggregate.initial(), store.read_stream("given"))[0]


def given(aggregate: Aggregate[S], *events: Any) -> Given[S]:
    """Begin with what has happened; nothing, if no events are given."""
    return Given(aggregate, events)


class Following(Generic[S]):
    """One process, led on by hand. Its clock stands at 0, so that a deadline is the time it is set for."""

    def __init__(self, process: Process[S]) -> None:
        self._process = process
        self._instance, self._wishes = Advanced(), list[Wish]()

    def event(self, event: Any) -> Self:
        """Something happens that leads to something."""
        store = MemoryStore()
        store.append([StreamAppend("given", [self._process.types.encode(event)])])
        [stored] = store.read_stream("given")
        event = self._process.types.decode(stored)
        return self._go_on(self._process.after_event(self._instance, event, "followed", _CAUSE))

    def refused(self, command: Any, reason: str) -> Self:
        """A command that the process has sent is refused."""
        for step in self._instance.todo:
            if self._process.command_of(step) == command:
                return self._go_on(self._process.after_refusal(self._instance, step, reason, "followed", _CAUSE))
        sent = [self._process.command_of(step) for step in self._instance.todo]
        raise AssertionError(f"{command} was not sent: {sent}")

    def deadline(self, name: str) -> Self:
        """A deadline passes."""
        assert name in self._instance.deadlines, f"{name!r} is not waited for: {self._instance.deadlines}"
        return self._go_on(self._process.after_deadline(self._instance, name, "followed", _CAUSE), passed=name)

    def _go_on(self, after: Advanced, passed: str = "") -> Self:
        before, process = self._instance, self._process
        new = [step for step in after.todo if step.number > before.numbered]
        self._wishes = [
            *(Send(step.aggregate, step.ident, process.command_of(step)) for step in new),
            *(Wait(name, due) for name, due in after.deadlines.items() if before.deadlines.get(name) != due),
            *(Cancel(name) for name in before.deadlines if name not in after.deadlines and name != passed),
            *(Effect(each.payload, each.lane) for each in after.effects),
            *([End()] if after.is_over and not before.is_over else []),
        ]
        self._instance = replace(after, effects=[])
        return self

    def then(self, *expected: Wish) -> Self:
        """Fail unless just this is to be done, in whatever order it was asked for."""
        assert sorted(self._wishes, key=repr) == sorted(expected, key=repr)
        return self

    def then_state(self, expected: S) -> Self:
        """Fail unless the state is this one."""
        assert self._process.state_of(self._instance) == expected
        return self


_CAUSE = Cause("cause", "correlation", 0, 0)


def follow(process: Process[S]) -> Following[S]:
    """Begin with a process that nothing has happened to."""
    return Following(process)


def check_event_schemas(path: str | Path, types: EventTypes = EVENT_TYPES) -> None:
    """Fail if events that were recorded in a file (`headrace events schema write`) could not be read by today's code.

    The classes must be imported; what is new and does no harm passes.
    """
    if broken := compare(read_schemas(Path(path)), types).broken:
        raise AssertionError("\n".join(broken))
