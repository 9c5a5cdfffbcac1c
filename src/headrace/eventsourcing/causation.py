"""What followed from what: an event names what led to it (`causation_id`), and the request it began with.

The first command of a request gives its id to all that follows from it (`correlation_id`); a command that answers a
stored event has that event as its cause and goes on under its correlation id. So one id finds a whole request again,
over all streams, and the causes put it in order: a tree. Pure.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from headrace.eventsourcing.model import StoredEvent


class Followed(NamedTuple):
    """An event in a tree of causes; those that it led to are one deeper, and come right after it."""

    depth: int
    event: StoredEvent


def cause_ids(event: StoredEvent) -> tuple[str, str]:
    """The causation id and the correlation id of what is decided in answer to an event."""
    return event.id, event.correlation_id or event.id


def is_of_request(event: StoredEvent, correlation_id: str) -> bool:
    """Whether an event followed from a request, or is the one that it began with."""
    return correlation_id in (event.correlation_id, event.id)


def in_order_of_causes(events: Sequence[StoredEvent]) -> Iterator[Followed]:
    """Each event with those that it led to after it; what none of them led to begins a tree, in the order given."""
    known = {event.id for event in events}
    answers: dict[str, list[StoredEvent]] = {}
    for event in events:
        answers.setdefault(event.causation_id, []).append(event)
    seen = set[int]()

    def walk(roots: Iterable[StoredEvent]) -> Iterator[Followed]:
        waiting = [Followed(0, event) for event in reversed(list(roots))]
        while waiting:
            at = waiting.pop()
            if at.event.position in seen:
                continue
            seen.add(at.event.position)
            yield at
            waiting += [Followed(at.depth + 1, event) for event in reversed(answers.get(at.event.id, ()))]

    yield from walk(event for event in events if event.causation_id not in known)
    yield from walk(events)  # what is its own cause, by way of others, is shown all the same
