"""What was done about a subject, place by place, in words that somebody can hand on. Pure.

What always holds: nothing that was forgotten is in a report, and a place that could not be dealt with is in it.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any


class Outcome(StrEnum):
    ERASED = "erased"  # it is gone
    UNREADABLE = "unreadable"  # it is there, and nobody can open it any more
    REWRITTEN = "rewritten"  # what was opened before has stand-ins now
    NOTHING = "nothing there"
    FOLLOWS = "will follow"  # it is down, or was not in time
    FAILED = "could not be"


_UNFINISHED = (Outcome.FOLLOWS, Outcome.FAILED)


@dataclass(frozen=True, slots=True)
class Finding:
    """What became of one kind of thing in one place."""

    place: str
    what: str  # events, records, rows, snapshots, keys
    outcome: Outcome
    count: int = 0
    why: str = ""

    def as_json(self) -> dict[str, Any]:
        return {"place": self.place, "what": self.what, "outcome": self.outcome, "count": self.count, "why": self.why}


@dataclass(slots=True)
class Report:
    """All findings; `is_dry` if nothing was done."""

    is_dry: bool = False
    findings: list[Finding] = field(default_factory=list)

    def add(self, findings: Iterable[Finding]) -> None:
        self.findings.extend(findings)

    @property
    def is_complete(self) -> bool:
        """Whether nothing is left to do."""
        return all(each.outcome not in _UNFINISHED for each in self.findings)

    def as_json(self) -> dict[str, Any]:
        return {
            "dry_run": self.is_dry,
            "complete": self.is_complete,
            "findings": [each.as_json() for each in self.findings],
        }


@dataclass(frozen=True, slots=True)
class Hit:
    """Somewhere a value was found, by its number in the list: the value itself is not told."""

    place: str
    where: str
    value: int

    def as_json(self) -> dict[str, Any]:
        return {"place": self.place, "where": self.where, "value": self.value}
