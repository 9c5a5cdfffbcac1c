"""Events, the rows of a match, and matches: what goes into a matcher and what comes out."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

Values = Mapping[str, Any]


class Event:
    """A row with its time, and where it came from if it says so."""

    __slots__ = ("before", "known", "mask", "number", "offset", "partition", "time_us", "topic", "values")

    def __init__(
        self,
        values: Values,
        time_us: int = 0,
        number: int = 0,
        topic: str | None = None,
        partition: int | None = None,
        offset: int | None = None,
    ) -> None:
        self.values = values
        self.time_us = time_us
        self.number = number
        """Its place in the order of matching."""
        self.topic = topic
        self.partition = partition
        self.offset = offset
        self.before: tuple[Values, ...] = ()
        self.known = 0
        """Row predicates that were evaluated, as bits, and those that are true."""
        self.mask = 0

    def __repr__(self) -> str:
        return f"Event({self.values!r})"


class Taken:
    """A row as part of a match. Partial matches that began alike share these: each knows only what came before it."""

    __slots__ = ("choice", "event", "parent", "state", "values", "variable")

    def __init__(self, variable: str, event: Event, parent: "Taken | None", state: int = 0, choice: int = 0) -> None:
        self.variable = variable
        self.event = event
        self.values = event.values
        self.parent = parent
        self.state = state
        self.choice = choice
        """Which edge was taken: what decides between matches that are complete at the same time."""


def path(last: Taken) -> list[Taken]:
    """The rows of a match in their order."""
    found = []
    row: Taken | None = last
    while row is not None:
        found.append(row)
        row = row.parent
    found.reverse()
    return found


@dataclass(frozen=True)
class Match:
    """The rows that made up a match, or the partial match whose time was over."""

    key: tuple[Any, ...]
    rows: tuple[tuple[str, Event], ...]
    """Each taken row with its variable, in the order of time."""
    time_us: int
    """When it was known: the time of the last row, or when the time of an absence was over."""
    number: int = 0
    """Which match of its key it is, from 1; counted where the pattern asks for MATCH_NUMBER()."""
    measures: Mapping[str, Any] = field(default_factory=dict)
    output: tuple[Mapping[str, Any], ...] = ()
    """The rows that MATCH_RECOGNIZE makes of it; empty for a pattern in Python."""

    @property
    def variables(self) -> dict[str, tuple[Event, ...]]:
        """The events of each variable, in the order of time."""
        found: dict[str, list[Event]] = {}
        for variable, event in self.rows:
            found.setdefault(variable, []).append(event)
        return {variable: tuple(events) for variable, events in found.items()}

    def __getitem__(self, variable: str) -> tuple[Event, ...]:
        """The events of a variable; none if it was optional and left out."""
        return tuple(event for name, event in self.rows if name == variable)

    def __iter__(self) -> Iterator[tuple[str, Event]]:
        return iter(self.rows)

    @property
    def offsets(self) -> tuple[tuple[str | None, int | None, int | None], ...]:
        """Topic, partition and offset of each row."""
        return tuple((event.topic, event.partition, event.offset) for _, event in self.rows)
