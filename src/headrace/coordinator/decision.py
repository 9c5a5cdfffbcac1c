"""What a coordinator answers when it is asked: the one shape for all of them."""

from collections.abc import Hashable
from dataclasses import dataclass
from typing import NamedTuple, NewType

from headrace.protocol.schema import Message

# How the shell finds the request that an answer belongs to, however long it has been waiting.
RequestToken = NewType("RequestToken", int)


class Answer(NamedTuple):
    """A response for a request: the one that was just asked, or one that has been waiting."""

    to: RequestToken
    response: Message


class CoordinatorRecord(NamedTuple):
    """A record of the coordinator's internal topic, typed; a value of None is a tombstone.

    `is_kept` is False for what need not survive a restart (a member that has joined and waits for the others): such a
    record is applied like any other, in its order, but not written.
    """

    key: Message | Hashable
    value: Message | Hashable | None
    is_kept: bool = True


class Timer(NamedTuple):
    """Ask again at `at_ms` with this key (and no earlier one for it); None takes the timer back."""

    key: Hashable
    at_ms: int | None


@dataclass(frozen=True, slots=True)
class Decision:
    """Everything that follows from one event.

    The shell writes `records` (all in one batch, or none of it happens), applies them, sets the timers, carries out the
    effects, and sends the answers once the records are durable. If the write fails, whoever asked is told so, and
    nothing has changed.
    """

    answers: tuple[Answer, ...] = ()
    records: tuple[CoordinatorRecord, ...] = ()
    timers: tuple[Timer, ...] = ()
    effects: tuple[Hashable, ...] = ()  # what only the shell can do, such as writing transaction markers


def together(*decisions: Decision) -> Decision:
    return Decision(
        tuple(answer for decision in decisions for answer in decision.answers),
        tuple(record for decision in decisions for record in decision.records),
        tuple(timer for decision in decisions for timer in decision.timers),
        tuple(effect for decision in decisions for effect in decision.effects),
    )
