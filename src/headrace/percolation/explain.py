"""Why a query matches a document, or why not: the query as a tree of sentences, each with what the document has.

What always holds: a part is said to match exactly if `evaluate.py` says so, and is worth what it says there; nothing is
left out because something else has decided already.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Final

from headrace.errors import harmless
from headrace.percolation.dates import date_text
from headrace.percolation.documents import POSITION_GAP, Document
from headrace.percolation.evaluate import leaf_matches, score, token_test
from headrace.percolation.points import distance_m
from headrace.percolation.tree import (
    ANY_FIELD,
    Boolean,
    Boost,
    ConstantScore,
    Either,
    Exists,
    Fuzzy,
    GeoBox,
    GeoDistance,
    MatchAll,
    MatchNone,
    Nested,
    Phrase,
    Prefix,
    Query,
    Range,
    Regexp,
    Scale,
    Term,
    Wild,
    Wildcard,
)

_SHOWN: Final = 5


@dataclass(frozen=True, slots=True)
class Explanation:
    """One part of the query: what it asks, whether it is so, what the document has, and its own parts."""

    matches: bool
    asks: str
    has: str = ""
    score: float | None = None
    parts: tuple["Explanation", ...] = ()

    def lines(self, indent: str = "") -> Iterator[str]:
        """The tree for people, a part a line."""
        worth = "" if self.score is None else f" ({self.score:g})"
        has = f": {self.has}" if self.has else ""
        yield f"{indent}{'yes' if self.matches else 'no '} {harmless(self.asks)}{harmless(has)}{worth}"
        for part in self.parts:
            yield from part.lines(indent + "    ")

    def as_json(self) -> dict[str, object]:
        """The tree for programs."""
        return {
            "matches": self.matches,
            "asks": self.asks,
            **({"has": self.has} if self.has else {}),
            **({} if self.score is None else {"score": self.score}),
            **({"parts": [part.as_json() for part in self.parts]} if self.parts else {}),
        }


def explain(query: Query, document: Document) -> Explanation:
    """Every part of the query, held against the document."""
    worth = score(query, document)
    match query:
        case Boolean():
            parts = _parts(query, document)
            return Explanation(worth is not None, _clauses(query), _verdict(query, document), worth, parts)
        case Either():
            parts = tuple(explain(each, document) for each in query.queries)
            return Explanation(worth is not None, "at least one of these, the best counts", "", worth, parts)
        case Nested():
            objects = document.objects(query.path)
            matching_first = sorted(objects, key=lambda each: score(query.query, each) is None)
            some = matching_first[: 1 if document.is_part else _SHOWN]
            parts = tuple(explain(query.query, each) for each in some)
            has = f"there are {len(objects):,}" if objects else "there is none"
            has += f", of which {len(some)} are shown" if len(some) < len(objects) else ""
            return Explanation(worth is not None, f"one object of {query.path}, whole", has, worth, parts)
        case Boost():
            return _around(query.query, document, f"score times {query.factor:g}", worth)
        case ConstantScore():
            return _around(query.query, document, f"score {query.score:g}, however it matches", worth)
        case _:
            return Explanation(worth is not None, asks(query), _has(query, document), worth)


def _around(query: Query, document: Document, asked: str, worth: float | None) -> Explanation:
    return Explanation(worth is not None, asked, "", worth, (explain(query, document),))


def _clauses(query: Boolean) -> str:
    asked = list[str]()
    if query.must:
        asked.append("all that must be")
    if query.should and query.minimum_should_match:
        asked.append(f"at least {query.minimum_should_match} of {len(query.should)} that may be")
    elif query.should:
        asked.append("what may be adds to the score")
    if query.must_not:
        asked.append("nothing that must not be")
    return ", ".join(asked)


def _parts(query: Boolean, document: Document) -> tuple[Explanation, ...]:
    groups = (("must: ", query.must), ("may: ", query.should), ("must not: ", query.must_not))
    return tuple(_named(name, explain(each, document)) for name, clauses in groups for each in clauses)


def _named(name: str, part: Explanation) -> Explanation:
    return Explanation(part.matches, name + part.asks, part.has, part.score, part.parts)


def _verdict(query: Boolean, document: Document) -> str:
    """What decides against it."""
    missing = sum(score(each, document) is None for each in query.must)
    met = sum(score(each, document) is not None for each in query.should)
    against = sum(score(each, document) is not None for each in query.must_not)
    said = list[str]()
    if missing:
        said.append(f"{missing} of {len(query.must)} that must be {'is' if missing == 1 else 'are'} missing")
    if met < query.minimum_should_match:
        said.append(f"{met} of those that may be")
    if against:
        said.append(f"{against} that must not be {'is' if against == 1 else 'are'} there")
    return ", ".join(said)


# --- leaves


def asks(leaf: Query) -> str:
    """What a leaf asks, in words."""
    match leaf:
        case Term():
            return f"{_field(leaf)} has {leaf.text!r}"
        case Phrase():
            near = f", up to {leaf.slop} out of place" if leaf.slop else ""
            return f"{_field(leaf)} has {' '.join(term.text for term in leaf.terms)!r}{near}"
        case Prefix():
            return f"{_field(leaf)} has a word that begins with {leaf.text!r}"
        case Wildcard():
            shown = "".join(part.value if isinstance(part, Wild) else part for part in leaf.parts)
            return f"{_field(leaf)} has a word like {shown!r}"
        case Fuzzy():
            fixed = f", its first {leaf.prefix_length} letters as they are" if leaf.prefix_length else ""
            return f"{_field(leaf)} has a word at most {leaf.edits} edits from {leaf.text!r}{fixed}"
        case Regexp():
            return f"{_field(leaf)} has a word that /{leaf.pattern}/ matches"
        case Range():
            return f"{_field(leaf)} has a {leaf.scale.value} {_bounds(leaf)}"
        case GeoDistance():
            return f"{_field(leaf)} is within {_metres(leaf.metres)} of {leaf.latitude:g},{leaf.longitude:g}"
        case GeoBox():
            return f"{_field(leaf)} is between {leaf.top:g},{leaf.left:g} and {leaf.bottom:g},{leaf.right:g}"
        case Exists():
            return f"{_field(leaf)} has a value"
        case MatchAll():
            return "every document"
        case MatchNone():
            return "no document"
    raise AssertionError(leaf)


def _field(leaf: Query) -> str:
    field = getattr(leaf, "field", "")
    return "any text" if field == ANY_FIELD else str(field)


def _bounds(leaf: Range) -> str:
    def shown(bound: float | str) -> str:
        return date_text(int(bound)) if leaf.scale is Scale.DATE else repr(bound)

    said = list[str]()
    if leaf.low is not None:
        said.append(f"{'from' if leaf.includes_low else 'above'} {shown(leaf.low)}")
    if leaf.high is not None:
        said.append(f"{'to' if leaf.includes_high else 'below'} {shown(leaf.high)}")
    return " ".join(said)


def _metres(length: float) -> str:
    return f"{length / 1000:.6g} km" if length >= 1000 else f"{length:.6g} m"


def _has(leaf: Query, document: Document) -> str:
    """What the document has where the leaf looks."""
    match leaf:
        case Phrase():
            return _has_phrase(leaf, document)
        case Range() if leaf.scale is not Scale.TEXT:
            if leaf.scale is Scale.NUMBER:
                return _list((repr(each) for each in document.numbers(leaf.field)), "number")
            return _list((date_text(each) for each in document.dates(leaf.field)), "date")
        case Term() | Prefix() | Wildcard() | Fuzzy() | Regexp() | Range():
            terms = document.terms(leaf.field)
            if leaf_matches(leaf, document):
                return "" if isinstance(leaf, Term) else _list(sorted(filter(token_test(leaf), terms)), "word")
            near = get_close_matches(leaf.text, terms, n=2) if isinstance(leaf, Term | Fuzzy) else []
            if near:
                return f"not among its {len(terms)} words; near it {' and '.join(map(repr, near))}"
            return _list(sorted(terms), "word")
        case GeoDistance():
            here = (leaf.latitude, leaf.longitude)
            return _list((f"{_metres(distance_m(here, each))} away" for each in document.points(leaf.field)), "point")
        case GeoBox():
            return _list((f"{each[0]:g},{each[1]:g}" for each in document.points(leaf.field)), "point")
        case _:
            return ""


def _has_phrase(leaf: Phrase, document: Document) -> str:
    if leaf_matches(leaf, document):
        return ""
    terms = document.terms(leaf.field)
    missing = [text for text in dict.fromkeys(term.text for term in leaf.terms) if text not in terms]
    if missing:
        return f"{' and '.join(map(repr, missing))} {'is' if len(missing) == 1 else 'are'} not there"
    for slop in range(leaf.slop + 1, POSITION_GAP // 2):
        nearer = Phrase(leaf.field, leaf.terms, slop)
        if leaf_matches(nearer, document):
            return f"its words are there, {slop} out of place"
    return "its words are there, far from each other"


def _list(values: Iterable[str], what: str) -> str:
    shown = list(values)
    if not shown:
        return f"there is no {what}"
    more = f" and {len(shown) - _SHOWN} more" if len(shown) > _SHOWN else ""
    return ", ".join(shown[:_SHOWN]) + more
