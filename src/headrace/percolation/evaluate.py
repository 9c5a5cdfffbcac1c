"""What a query matches: one query against one document, exactly. Everything faster is measured against this.

The score is what people can add up in their heads: every leaf that matches is worth 1, a boost multiplies, a Boolean
has the sum of its clauses that match (`must_not` adds nothing), `Either` and `Nested` have their best. It knows nothing
of other documents (no frequencies): the same document scores the same whatever flowed past before.

What always holds: a query matches exactly if it has a score; highlights are of clauses that match, and of words only.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from heapq import merge
from itertools import groupby
from typing import Any, Final, NamedTuple, assert_never

from headrace.percolation.documents import Document, FieldTokens
from headrace.percolation.points import distance_m
from headrace.percolation.reading import compiled, wildcard_expression
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
    Wildcard,
)

MOST_HIGHLIGHTS: Final = 1_000

WordLeaf = Term | Prefix | Wildcard | Fuzzy | Regexp | Range
"""Leaves that one token decides (a range of texts among them)."""


class Highlight(NamedTuple):
    """Characters `start` to `end` of a field's value (by its number among the field's values), and what it says."""

    field: str
    value: int
    start: int
    end: int
    text: str = ""


def matches(query: Query, document: Document) -> bool:
    return score(query, document) is not None


def score(query: Query, document: Document) -> float | None:
    """What the match is worth, None if there is none."""
    match query:
        case Boolean():
            return _boolean(query, document)
        case Either():
            return max((found for each in query.queries if (found := score(each, document)) is not None), default=None)
        case Nested():
            inner = (score(query.query, each) for each in document.objects(query.path))
            return max((found for found in inner if found is not None), default=None)
        case Boost():
            found = score(query.query, document)
            return None if found is None else found * query.factor
        case ConstantScore():
            return None if score(query.query, document) is None else query.score
        case _:
            return 1.0 if leaf_matches(query, document) else None


def _boolean(query: Boolean, document: Document) -> float | None:
    total, met = 0.0, 0
    for each in query.must:
        found = score(each, document)
        if found is None:
            return None
        total += found
    for each in query.must_not:
        if score(each, document) is not None:
            return None
    for each in query.should:
        found = score(each, document)
        if found is not None:
            total += found
            met += 1
    if met < query.minimum_should_match:
        return None
    # What only excludes is worth as much as asking for every document.
    return total if query.must or query.should else 1.0


def leaf_matches(leaf: Query, document: Document) -> bool:
    """Whether one question has the answer yes."""
    match leaf:
        case Term():
            return leaf.text in document.terms(leaf.field)
        case Phrase():
            return any(
                next(phrase_positions(leaf, tokens.positions), None) is not None
                for _, tokens in _tokens_of(leaf, document)
            )
        case Range() if leaf.scale is not Scale.TEXT:
            values = document.numbers(leaf.field) if leaf.scale is Scale.NUMBER else document.dates(leaf.field)
            return any(in_range(leaf, value) for value in values)
        case Prefix() | Wildcard() | Fuzzy() | Regexp() | Range():
            fits = token_test(leaf)
            return any(fits(term) for term in document.terms(leaf.field))
        case GeoDistance():
            here = (leaf.latitude, leaf.longitude)
            return any(distance_m(here, point) <= leaf.metres for point in document.points(leaf.field))
        case GeoBox():
            return any(in_box(leaf, *point) for point in document.points(leaf.field))
        case Exists():
            return document.exists(leaf.field)
        case MatchAll():
            return True
        case MatchNone():
            return False
    raise AssertionError(leaf)


def _tokens_of(leaf: WordLeaf | Phrase, document: Document) -> Iterator[tuple[str, FieldTokens]]:
    in_any = leaf.field == ANY_FIELD
    for path in document.searched(leaf.field):
        yield path, document.tokens(path, with_numbers=in_any)


# --- leaves


def in_range(leaf: Range, value: Any) -> bool:
    low: Any = leaf.low
    high: Any = leaf.high
    if low is not None and not (value > low or (leaf.includes_low and value == low)):
        return False
    return high is None or value < high or (leaf.includes_high and value == high)


def in_box(leaf: GeoBox, latitude: float, longitude: float) -> bool:
    if not leaf.bottom <= latitude <= leaf.top:
        return False
    if leaf.left <= leaf.right:
        return leaf.left <= longitude <= leaf.right
    return longitude >= leaf.left or longitude <= leaf.right


@lru_cache(maxsize=16_384)
def token_test(leaf: WordLeaf) -> Callable[[str], bool]:
    """Whether a token is one that the leaf asks for."""
    match leaf:
        case Term():
            return leaf.text.__eq__
        case Prefix():
            beginning = leaf.text
            return lambda token: token.startswith(beginning)
        case Wildcard():
            fits = compiled(wildcard_expression(leaf.parts), ignores_case=False).fullmatch
            return lambda token: fits(token) is not None
        case Fuzzy():
            return lambda token: is_near(leaf, token)
        case Regexp():
            expression = compiled(leaf.pattern, leaf.ignores_case).fullmatch
            return lambda token: expression(token) is not None
        case Range():
            return lambda token: in_range(leaf, token)
    assert_never(leaf)


def is_near(leaf: Fuzzy, token: str) -> bool:
    """Whether so few edits make one of the other; what is beyond the number of edits is not worked out."""
    text, most = leaf.text, leaf.edits
    if text == token:
        return True
    if abs(len(text) - len(token)) > most or text[: leaf.prefix_length] != token[: leaf.prefix_length]:
        return False
    return edit_distance(text[leaf.prefix_length :], token[leaf.prefix_length :], most, leaf.transpositions) <= most


def edit_distance(a: str, b: str, most: int, transpositions: bool = True) -> int:
    """Optimal string alignment (or Levenshtein) distance; anything above `most` is `most + 1`."""
    before_last: list[int] = []
    last = list(range(len(b) + 1))
    for row, letter in enumerate(a, 1):
        line = [row]
        for column, other in enumerate(b, 1):
            cost = min(last[column] + 1, line[-1] + 1, last[column - 1] + (letter != other))
            if transpositions and row > 1 and column > 1 and letter == b[column - 2] and a[row - 2] == other:
                cost = min(cost, before_last[column - 2] + 1)
            line.append(cost)
        if min(line) > most and min(last) > most:
            return most + 1
        before_last, last = last, line
    return min(last[-1], most + 1)


def phrase_positions(phrase: Phrase, positions: Mapping[str, Sequence[int]]) -> Iterator[tuple[int, ...]]:
    """The positions of every match, one tuple for each lowest difference that a match has (see `Phrase`)."""
    wanted: dict[str, list[int]] = {}
    for term in phrase.terms:
        wanted.setdefault(term.text, []).append(term.position)
    if any(text not in positions for text in wanted):
        return
    for start in _lowest_differences(phrase.slop, wanted, positions):
        taken = list[int]()
        for text, offsets in wanted.items():
            # The same word several times takes as many positions: the earliest that is left serves each, since the
            # stretches that will do are equally long and begin one after the other.
            there, next_free = positions[text], 0
            for offset in offsets:
                index = max(bisect_left(there, start + offset), next_free)
                if index == len(there) or there[index] > start + offset + phrase.slop:
                    break
                taken.append(there[index])
                next_free = index + 1
            else:
                continue
            break
        else:
            yield tuple(sorted(taken))


def _lowest_differences(
    slop: int, wanted: Mapping[str, Sequence[int]], positions: Mapping[str, Sequence[int]]
) -> Iterator[int]:
    """Those that a match may have, ascending and each once: of any word of the phrase, near one of its rarest."""
    rarest = min(wanted, key=lambda text: len(positions[text]))
    near = [at - wanted[rarest][0] for at in positions[rarest]]
    if slop == 0:
        return iter(near)
    terms = [(positions[text], offset) for text, offsets in wanted.items() for offset in offsets]
    if len(near) * (slop + 1) > max(map(len, positions.values())):
        # All there are, one after the other: often the first is enough.
        return (found for found, _ in groupby(merge(*(map(offset.__rsub__, there) for there, offset in terms))))
    return iter(
        sorted(
            {
                there[index] - offset
                for last in near
                for there, offset in terms
                for index in range(bisect_left(there, last - slop + offset), bisect_right(there, last + offset))
            }
        )
    )


# --- highlights


def highlights(query: Query, document: Document) -> tuple[Highlight, ...]:
    """The words for which a query matches, in their order; nothing if it does not match.

    Of a long text some of the first are enough: each part of a query adds no more once there are `MOST_HIGHLIGHTS`.
    """
    found = set[Highlight]()
    if matches(query, document):
        _collect(query, document, {}, found)
    return tuple(sorted(found))


def _collect(query: Query, document: Document, moved: Mapping[str, int], into: set[Highlight]) -> None:
    """The words of a query that matches; `moved` counts the values of fields before those of this object."""
    if len(into) >= MOST_HIGHLIGHTS:
        return
    match query:
        case Boolean() | Either():
            clauses = (*query.must, *query.should) if isinstance(query, Boolean) else query.queries
            for each in clauses:
                if matches(each, document):
                    _collect(each, document, moved, into)
        case Nested():
            before = dict(moved)
            for inner in document.objects(query.path):
                if matches(query.query, inner):
                    _collect(query.query, inner, before, into)
                for field in inner.fields():
                    before[field] = before.get(field, 0) + inner.count(field)
        case Boost() | ConstantScore():
            _collect(query.query, document, moved, into)
        case Phrase():
            for path, tokens in _tokens_of(query, document):
                for taken in phrase_positions(query, tokens.positions):
                    for position in taken:
                        into.add(_highlight(path, tokens, position, moved))
                    if len(into) >= MOST_HIGHLIGHTS:
                        return
        case Term() | Prefix() | Wildcard() | Fuzzy() | Regexp() | Range():
            if isinstance(query, Range) and query.scale is not Scale.TEXT:
                return
            fits = token_test(query)
            for path, tokens in _tokens_of(query, document):
                for text in (query.text,) if isinstance(query, Term) else tuple(filter(fits, tokens.positions)):
                    for position in tokens.positions.get(text, ()):
                        if len(into) >= MOST_HIGHLIGHTS:
                            return
                        into.add(_highlight(path, tokens, position, moved))


def _highlight(path: str, tokens: FieldTokens, position: int, moved: Mapping[str, int]) -> Highlight:
    more = moved.get(path, 0)
    found: Highlight | None = tokens.highlights.get((position, more))
    if found is None:  # for the first of the queries that match for this word
        value, start, end = tokens.place(position)
        found = Highlight(path, value + more, start, end, (tokens.values[value] or "")[start:end])
        tokens.highlights[position, more] = found
    return found
