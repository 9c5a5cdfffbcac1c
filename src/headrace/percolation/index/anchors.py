"""Under what a query is filed: the rarest things of which any document that it matches has at least one.

All of `must` are necessary, so the rarest of them is enough; of n branches of which k have to match, the rarest n-k+1
are (fewer than k are left without them). A disjunction stands under each of its branches. What only excludes, and what
every document matches, has nothing that is necessary.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from headrace.percolation.tree import (
    Boolean,
    Boost,
    ConstantScore,
    Either,
    MatchAll,
    MatchNone,
    Nested,
    Phrase,
    Query,
    Term,
)

EVERYTHING: Final = 1.0


@dataclass(frozen=True)
class Anchors:
    """Leaves of which one is true at least; `share` is the share of documents, at most, for which one is."""

    leaves: tuple[Query, ...]
    share: float

    @property
    def is_missing(self) -> bool:
        """Whether the query is a candidate for every document."""
        return self.share >= EVERYTHING and not self.leaves


_MISSING: Final = Anchors((), 2.0)
_NEVER: Final = Anchors((), 0.0)


def choose_anchors(query: Query, share: Callable[[Query], float]) -> Anchors:
    """The rarest leaves under which the query can be filed; a phrase counts as its rarest word."""
    match query:
        case MatchAll():
            return _MISSING
        case MatchNone():
            return _NEVER
        case Phrase():
            words = [Term(query.field, each.text) for each in query.terms]
            return min((Anchors((each,), share(each)) for each in words), key=_rarity)
        case Boost() | ConstantScore() | Nested():
            return choose_anchors(query.query, share)
        case Either():
            return _union([choose_anchors(each, share) for each in query.queries])
        case Boolean():
            found = [choose_anchors(each, share) for each in query.must]
            needed = query.minimum_should_match
            if needed > len(query.should):
                return _NEVER
            if needed > 0:
                branches = sorted((choose_anchors(each, share) for each in query.should), key=_rarity)
                found.append(_union(branches[: len(branches) - needed + 1]))
            return min(found, key=_rarity, default=_MISSING)
        case _:
            return Anchors((query,), share(query))


def necessary_terms(query: Query) -> list[Term]:
    """Words that every match has, all of them."""
    match query:
        case Term():
            return [query]
        case Phrase():
            return [Term(query.field, each.text) for each in query.terms]
        case Boost() | ConstantScore() | Nested():
            return necessary_terms(query.query)
        case Boolean():
            found = [term for each in query.must for term in necessary_terms(each)]
            if query.should and query.minimum_should_match == len(query.should):
                found += [term for each in query.should for term in necessary_terms(each)]
            return found
        case Either(queries=(only,)):
            return necessary_terms(only)
        case _:
            return []


def _rarity(anchors: Anchors) -> tuple[float, int]:
    return anchors.share, len(anchors.leaves)


def _union(anchors: list[Anchors]) -> Anchors:
    if any(each.is_missing for each in anchors):
        return _MISSING
    leaves = tuple(dict.fromkeys(leaf for each in anchors for leaf in each.leaves))
    # As if they came together never: an upper bound, which still orders a disjunction behind each of its branches.
    return Anchors(leaves, min(1.5, sum(each.share for each in anchors)))
