"""What a subscriber is told, in the order in which it happened. Pure values."""

from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from headrace.gateways.multicast.message import Message
from headrace.gateways.multicast.wire import Session


class Why(StrEnum):
    """Why messages were lost."""

    UNREPAIRED = "unrepaired"  # their datagrams did not come, and the publisher holds them no more or did not answer
    UNFINISHED = "unfinished"  # the publisher fell silent within one
    TOO_LARGE = "too-large"  # one is longer than this subscriber takes
    UNREADABLE = "unreadable"  # one is of another form
    OVERLOAD = "overload"  # the program did not take them quickly enough


@dataclass(frozen=True, slots=True)
class Lost:
    """Messages of a session that do not come, told once; `count` of them, none before `first` or behind `last`."""

    session: Session
    first: int
    last: int
    count: int
    why: Why


class Began(NamedTuple):
    """A publisher is heard: for the first time, after a restart (`previous` is its life before), or again."""

    session: Session
    previous: Session | None
    is_again: bool


class Ended(NamedTuple):
    """A publisher is heard no more: it said so (`is_clean`), or fell silent."""

    session: Session
    is_clean: bool


Event = Message | Lost | Began | Ended
