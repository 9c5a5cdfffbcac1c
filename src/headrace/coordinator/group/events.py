"""What can happen to the group coordinator: requests, timers, and news from the rest of the broker."""

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import NamedTuple

from headrace.coordinator.decision import RequestToken
from headrace.coordinator.group.settings import SettingsChanged
from headrace.coordinator.group.topics import TopicsChanged
from headrace.protocol.schema import Message


def see_all(_: str) -> bool:
    """Of every topic a client may know, where nothing is authorised."""
    return True


class Request(NamedTuple):  # there is one for every commit, and a frozen dataclass is made four times as slowly
    """A client asks; the answer goes to `token`, in this decision or in a later one.

    Only groups of this coordinator's partition are in the message: what names several groups is split before, and the
    answers are merged. Where topics came by id, `name` has been filled in; the answer has both.
    """

    token: RequestToken
    message: Message
    version: int
    client_id: str
    client_host: str  # as Kafka shows it: "/127.0.0.1"
    fresh_id: str  # never used before; what a new member's id is made of; empty if the request cannot make one
    sees: Callable[[str], bool] | None = see_all  # which topics the client may know of; None if that is not known


@dataclass(frozen=True, slots=True)
class TimerFired:
    """A timer of an earlier decision is due. One that was moved or taken back since must not fire any more."""

    key: Hashable


@dataclass(frozen=True, slots=True)
class TransactionEnded:
    """A transaction's marker has been written to this partition of `__consumer_offsets`."""

    producer_id: int
    epoch: int
    committed: bool


@dataclass(frozen=True, slots=True)
class TopicsDeleted:
    """Topics of these names are gone, and so are the offsets that were committed for them, a portion per event.

    There may be new topics of the same names by now. To be sent until nothing follows from it any more; after a start
    with `every`, for all topics that are not there: a crash may have kept their offsets from being removed.
    """

    topics: frozenset[str] = frozenset()
    every: bool = False


@dataclass(frozen=True, slots=True)
class Loaded:
    """The partition's records have all been applied: from here on time passes, and requests will come."""


# What every kind of group hears of; the rest is about offsets alone.
GroupEvent = Request | TimerFired | TopicsChanged | SettingsChanged | Loaded
Event = GroupEvent | TransactionEnded | TopicsDeleted
