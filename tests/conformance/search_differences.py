"""Where Lucene Monitor or OpenSearch answers a shared case otherwise than Headrace.

`docs/reference/differences-search.md` tells users the same; a test compares the two.
"""

from __future__ import annotations

from dataclasses import dataclass

from tests.conformance.search_answers import LUCENE, OPENSEARCH


@dataclass(frozen=True)
class Difference:
    """`at` holds who answers otherwise, and to which cases."""

    title: str
    at: tuple[tuple[str, str], ...]


_PRECEDENCE = ("fast AND red OR old", "old OR fast AND red", "fast car AND red")

DIFFERENCES = (
    Difference(
        "AND and OR without brackets", tuple((who, case) for who in (LUCENE, OPENSEARCH) for case in _PRECEDENCE)
    ),
    Difference("Nothing but exclusions", ((LUCENE, "NOT car"), (LUCENE, "-car"))),
    Difference("Capitals in a wildcard", ((LUCENE, "CA*"),)),
    Difference("A fuzzy word without a number", ((LUCENE, "cat~"),)),
    Difference(
        "Marks on letters",
        tuple((OPENSEARCH, case) for case in ("café", "cafe", "strasse", "Straße", "koln", "resume", "naive")),
    ),
    Difference("A range of words that holds nothing", tuple((LUCENE, f"drawn {number}") for number in (169, 284, 304))),
)
