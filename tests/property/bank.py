"""The bank of `examples/bank`, and a store that crashes whoever appends to it."""

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from headrace.eventsourcing import Appended, EventStore

sys.path.insert(0, str(Path(__file__).parents[2] / "examples" / "bank"))

import accounts
import statements
import transfers

__all__ = ["Crash", "CrashingStore", "accounts", "in_flight", "statements", "transfers"]


class Crash(BaseException):
    """The process dies here: nobody can catch it and go on."""


class CrashingStore:
    """A store whose appends crash when the plan says so: before anything is stored, or after all is."""

    def __init__(self, store: EventStore, plan: Iterator[str]) -> None:
        self._store, self._plan = store, plan

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def append(self, appends: Sequence[Any], **more: Any) -> Appended:
        step = next(self._plan, "go on")
        if step == "before":
            raise Crash
        appended = self._store.append(appends, **more)
        if step == "after":
            raise Crash
        return appended


def in_flight(store: EventStore) -> int:
    """The money of transfers that has left one account and not reached another."""
    left = 0
    for stored in store.read():
        event = accounts.types.decode(stored)
        if isinstance(event, accounts.Deposited | accounts.Withdrawn) and event.transfer:
            left -= accounts.signed(event)
    return left
