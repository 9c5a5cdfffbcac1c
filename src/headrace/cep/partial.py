"""What the plain matcher keeps of a key and counts: partial matches, the cap on them, and what a step gave.

An attempt is all that begins at one row; its runs are partial matches, each with the rows it took (shared with the runs
that it branched from) and the edges that are still open.
"""

from dataclasses import dataclass, field
from typing import Final

from headrace.cep.match import Event, Taken
from headrace.cep.program import Step

NEVER: Final = 2**63 - 1


@dataclass
class Counts:
    """What a matcher counts."""

    events: int = 0
    late: int = 0
    matches: int = 0
    timed_out: int = 0
    dropped: int = 0
    """Partial matches that were dropped at the cap."""


@dataclass(frozen=True)
class Cap:
    """How many partial matches a key may have, and what happens when there would be one more."""

    most: int = 10_000
    choice: str = "drop_oldest"
    CHOICES = ("drop_oldest", "drop_newest", "fail")


class Run:
    """A partial match."""

    __slots__ = ("deadline_us", "is_fresh", "open", "taken", "was_match")

    def __init__(self, taken: Taken, open_steps: tuple[Step, ...], was_match: bool) -> None:
        self.taken = taken
        self.open = open_steps
        self.is_fresh = True
        """No row has come since the last one that was taken."""
        self.was_match = was_match
        self.deadline_us = NEVER


class Attempt:
    """All partial matches that begin at one row."""

    __slots__ = ("best", "complete", "runs", "start")

    def __init__(self, start: Event) -> None:
        self.start = start
        self.runs: list[Run] = []
        self.best: Taken | None = None
        self.complete: list[tuple[Taken, int]] = []
        """Matches that wait for their turn, each with the time at which it was complete."""


@dataclass
class Emitted:
    """What a step gave: matches, and partial matches whose time was over, each with the time when that was known."""

    matches: list[tuple[Taken, int]] = field(default_factory=list)
    timed_out: list[tuple[Taken, int]] = field(default_factory=list)
