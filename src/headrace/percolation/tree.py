"""The query tree: what a query means once its words have met the mapping, and what is matched against documents.

A leaf asks one field for one thing, in the form in which documents have it: words of text are tokens that the field's
analyzer made, numbers are numbers, dates are microseconds since 1970 in UTC. `reading.py` makes the tree of a text,
`evaluate.py` says exactly what it matches, and the index picks candidates by it.

What always holds: a tree is a value (frozen, hashable, equal if it is written alike); no node knows the mapping, the
clock or the text that it was read from; fields are full paths (`a.b.c`), within `Nested` as well.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Final

ANY_FIELD: Final = "*"
"""The field of a word that may stand in any text that the mapping does not name."""


class Wild(Enum):
    """What stands in a wildcard for letters that are not known."""

    ANY = "*"
    """Any number of letters, none included."""
    ONE = "?"
    """Exactly one."""


class Scale(Enum):
    """In which of a field's values a range looks."""

    NUMBER = "number"
    DATE = "date"
    """Integers: microseconds since 1970 in UTC."""
    TEXT = "text"
    """Tokens, compared by their code points."""


# --- leaves


@dataclass(frozen=True, slots=True)
class Term:
    """The field has this token. A boolean is the token `true` or `false`, a keyword its whole value."""

    field: str
    text: str


@dataclass(frozen=True, slots=True)
class PhraseTerm:
    """A token of a phrase, and its distance from the phrase's first token (stop words leave gaps)."""

    text: str
    position: int


@dataclass(frozen=True, slots=True)
class Phrase:
    """The field has all these tokens close together.

    Each term takes a position of its own in the document; take from it the term's position in the phrase: the
    highest of these differences is at most `slop` above the lowest. So 0 is the exact phrase, 1 lets one other word
    in between, 2 lets two neighbours change places. There are at least two terms.
    """

    field: str
    terms: tuple[PhraseTerm, ...]
    slop: int = 0


@dataclass(frozen=True, slots=True)
class Prefix:
    """The field has a token that begins so."""

    field: str
    text: str


@dataclass(frozen=True, slots=True)
class Wildcard:
    """The field has a token that consists of these parts, from its first letter to its last."""

    field: str
    parts: tuple[str | Wild, ...]


@dataclass(frozen=True, slots=True)
class Fuzzy:
    """The field has a token at most so many edits away: letters put in, left out or replaced.

    With `transpositions`, two neighbours that changed places are one edit too (no letter is edited twice). The first
    `prefix_length` letters are those of `text`.
    """

    field: str
    text: str
    edits: int
    prefix_length: int = 0
    transpositions: bool = True


@dataclass(frozen=True, slots=True)
class Regexp:
    """The field has a token that the expression (RE2's syntax) matches from its first letter to its last."""

    field: str
    pattern: str
    ignores_case: bool = False


@dataclass(frozen=True, slots=True)
class Range:
    """The field has a value between the bounds, None where there is none; a bound itself counts if it is included.

    One value lies between both bounds: of an array, not one above the lower and another below the upper.
    """

    field: str
    scale: Scale
    low: int | float | str | None = None
    high: int | float | str | None = None
    includes_low: bool = True
    includes_high: bool = True


@dataclass(frozen=True, slots=True)
class GeoDistance:
    """The field has a point at most so far from this one, along a great circle of a sphere of 6,371,008.7714 m."""

    field: str
    latitude: float
    longitude: float
    metres: float


@dataclass(frozen=True, slots=True)
class GeoBox:
    """The field has a point in the box, its edges included. If `left` is above `right`, it crosses the date line."""

    field: str
    top: float
    left: float
    bottom: float
    right: float


@dataclass(frozen=True, slots=True)
class Exists:
    """The field, or a field below it, has a value that is not null (and not an empty array)."""

    field: str


@dataclass(frozen=True, slots=True)
class MatchAll:
    """Every document."""


@dataclass(frozen=True, slots=True)
class MatchNone:
    """No document: words of which the analyzer left nothing."""


# --- what holds leaves


@dataclass(frozen=True, slots=True)
class Boolean:
    """All of `must`, none of `must_not`, and at least `minimum_should_match` of `should`.

    The number is the one that counts: `should` without any `must` has at least 1 here, written or not. Nothing but
    `must_not` matches every document that none of it matches.
    """

    must: tuple["Query", ...] = ()
    should: tuple["Query", ...] = ()
    must_not: tuple["Query", ...] = ()
    minimum_should_match: int = 0


@dataclass(frozen=True, slots=True)
class Either:
    """At least one of these: one question put to several fields, or in several forms. The best score counts."""

    queries: tuple["Query", ...]


@dataclass(frozen=True, slots=True)
class Nested:
    """One object at this path (one of an array, or the only one) for which the whole query holds.

    Fields in it are full paths. Whatever holds for one object holds for the document's values at the same paths.
    """

    path: str
    query: "Query"


@dataclass(frozen=True, slots=True)
class Boost:
    """The query, its score times `factor`."""

    query: "Query"
    factor: float


@dataclass(frozen=True, slots=True)
class ConstantScore:
    """The query, its score replaced."""

    query: "Query"
    score: float


Leaf = Term | Phrase | Prefix | Wildcard | Fuzzy | Regexp | Range | GeoDistance | GeoBox | Exists | MatchAll | MatchNone
Query = Leaf | Boolean | Either | Nested | Boost | ConstantScore


def children(query: Query) -> tuple[Query, ...]:
    """The queries directly within this one, those of `must_not` included."""
    match query:
        case Boolean():
            return (*query.must, *query.should, *query.must_not)
        case Either():
            return query.queries
        case Nested() | Boost() | ConstantScore():
            return (query.query,)
        case _:
            return ()


def walk(query: Query) -> Iterator[Query]:
    """The query and all within it, each before what it holds."""
    waiting = [query]
    while waiting:
        each = waiting.pop()
        yield each
        waiting.extend(reversed(children(each)))


def fields(query: Query) -> frozenset[str]:
    """The fields that leaves ask; `*` is every text that the mapping does not name."""
    return frozenset(field for each in walk(query) if isinstance(field := getattr(each, "field", None), str))
