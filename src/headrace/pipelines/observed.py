"""Names of the counts that operators leave in a query's progress, for whoever reads it; and what does not change."""

from collections.abc import Mapping
from typing import Any, Final

LATE_ROWS: Final = "headrace.late"
"""How the names begin of counts `late` and `no_time`: rows that a window did not take."""
DUPLICATES: Final = "headrace.duplicates"
"""How the names begin of counts `left_out` and `perhaps_wrongly`: rows that Bloom filters took for known ones."""
EVENT_TIMES: Final = "headrace.time"
"""How the names begin of counts of times that were too far ahead."""
PATTERNS: Final = "headrace.patterns"
"""How the names begin of what patterns say of themselves: `buckets`, a list of JSON texts."""

PERCOLATED: Final = "headrace.percolated"
"""How the names begin of counts `documents`, `refused` and `hits`, and of `queries`, a list of JSON texts that say how
many queries stand, how many are held against every document, and which were refused, and why."""


_descriptions: dict[str, Mapping[str, Any]] = {}


def describe(name: str, diagrams: Mapping[str, Any]) -> None:
    """Put down, where the query is made, what each pattern of an operator looks like; `name` is that of its counts."""
    _descriptions[name] = diagrams


def described(name: str, pattern: str) -> Mapping[str, Any] | None:
    """What a pattern looks like, if this process made the query."""
    found: Mapping[str, Any] | None = _descriptions.get(name, {}).get(pattern)
    return found
