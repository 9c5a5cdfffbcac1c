"""Decisions tested without a store: given what happened, when this is asked for, then that happens.

    given(account, Opened("ann"), Deposited(5)).when(Withdraw(3)).then(Withdrawn(3))
    given(account, Opened("ann")).when(Withdraw(3)).then(Refused("there are only 0"))

Events go through their stored form and back, so a test fails for those that could not be stored. A decision that is
`async` is run to its end.
"""

import asyncio
import inspect
from typing import Any, Generic, TypeVar

from headrace.eventsourcing.aggregate import Aggregate
from headrace.eventsourcing.errors import Refused
from headrace.eventsourcing.memory import MemoryStore
from headrace.eventsourcing.model import StreamAppend

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
