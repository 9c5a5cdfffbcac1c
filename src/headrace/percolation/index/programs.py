"""Programs: a query as integers, which `matching.py` runs over the facts of a row.

A program is written from the outside in: each operation is followed by its operands, a Boolean by its branches. It
comes out as yes, no, or unsure where only the exact evaluator knows: within nested objects, at numbers that no float
holds, at the rim of a circle. Unsure is a value of its own in every operation: "no and unsure" is no.

What always holds: the facts that a program names are needed once each by its query (`facts_in`), and what is necessary
comes first, the rarest before all.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from headrace.percolation.index.places import HIGHEST, LOWEST, as_float, rank
from headrace.percolation.tree import (
    Boolean,
    Boost,
    ConstantScore,
    Either,
    GeoBox,
    GeoDistance,
    MatchAll,
    MatchNone,
    Nested,
    Phrase,
    Query,
    Range,
    Scale,
    Term,
)

# Operations, with their operands.
FACT: Final = 0
"""fact"""
PHRASE: Final = 1
"""slop, whether words come twice, how many, then fact and position of each"""
RANGE: Final = 2
"""field, flags, lowest rank (two integers), highest rank"""
BOX: Final = 3
"""field, whether it crosses the date line, ranks of top, left, bottom, right"""
CIRCLE: Final = 4
"""field, ranks of latitude, longitude, metres"""
CONSTANT: Final = 5
"""the value"""
DOUBT: Final = 6
"""how far it goes; what follows, of which yes becomes unsure"""
BOOLEAN: Final = 7
"""how many must, how many should, how many must not, how many of should are needed, how far it goes"""
NO, YES, UNSURE = 0, 1, 2
LOW_IS_INEXACT, HIGH_IS_INEXACT = 1, 2
DEEPEST: Final = 60
"""So many Booleans within each other the loop can hold."""


def longs(*values: int) -> list[int]:
    """Each as two integers of 32 bits."""
    return [half for each in values for half in (each >> 32, ((each & 0xFFFFFFFF) ^ 0x80000000) - 0x80000000)]


@dataclass(frozen=True)
class Naming:
    """How a program gets its numbers."""

    fact: Callable[[Query], int]
    """Of a term, a pattern or an existing field."""
    numbers: Callable[[str, Scale], int]
    """Of a field whose numbers or dates are compared."""
    points: Callable[[str], int]
    share: Callable[[Query], float]
    """How rare a leaf is."""


def write_program(query: Query, naming: Naming) -> list[int]:
    """The program of a query."""
    return _write(query, naming, DEEPEST)


def interval(query: Range) -> tuple[int, int, int]:
    """The lowest and highest rank of a range of numbers, and flags: at which end equality of ranks says nothing."""
    low, high, flags = LOWEST, HIGHEST, 0
    if query.low is not None:
        nearest, is_exact = as_float(_number(query.low))
        low = rank(nearest) + (is_exact and not query.includes_low)
        flags |= 0 if is_exact else LOW_IS_INEXACT
    if query.high is not None:
        nearest, is_exact = as_float(_number(query.high))
        high = rank(nearest) - (is_exact and not query.includes_high)
        flags |= 0 if is_exact else HIGH_IS_INEXACT
    return low, high, flags


def _number(bound: float | str) -> int | float:
    assert not isinstance(bound, str), "a range of numbers has numbers for its bounds"
    return bound


def _write(query: Query, naming: Naming, depth: int) -> list[int]:
    match query:
        case Boost() | ConstantScore():
            return _write(query.query, naming, depth)
        case MatchAll():
            return [CONSTANT, YES]
        case MatchNone():
            return [CONSTANT, NO]
        case Phrase():
            return _phrase(query, naming)
        case Range(scale=Scale.NUMBER | Scale.DATE):
            low, high, flags = interval(query)
            return [RANGE, naming.numbers(query.field, query.scale), flags, *longs(low, high)]
        case GeoBox():
            crosses = int(query.left > query.right)
            sides = (rank(each) for each in (query.top, query.left, query.bottom, query.right))
            return [BOX, naming.points(query.field), crosses, *longs(*sides)]
        case GeoDistance():
            of_circle = (rank(each) for each in (query.latitude, query.longitude, query.metres))
            return [CIRCLE, naming.points(query.field), *longs(*of_circle)]
        case Nested():
            if depth <= 1:
                return [CONSTANT, UNSURE]
            inner = _write(_without_exclusions(query.query), naming, depth - 1)
            return [DOUBT, len(inner) + 2, *inner]
        case Either():
            return _boolean((), query.queries, (), 1, naming, depth)
        case Boolean():
            return _boolean(query.must, query.should, query.must_not, query.minimum_should_match, naming, depth)
        case _:
            return [FACT, naming.fact(query)]


def _phrase(query: Phrase, naming: Naming) -> list[int]:
    words = sorted(query.terms, key=lambda each: naming.share(Term(query.field, each.text)))
    repeats = int(len({each.text for each in words}) < len(words))
    places = (place for each in words for place in (naming.fact(Term(query.field, each.text)), each.position))
    return [PHRASE, query.slop, repeats, len(words), *places]


def _boolean(
    must: Sequence[Query],
    should: Sequence[Query],
    must_not: Sequence[Query],
    needed: int,
    naming: Naming,
    depth: int,
) -> list[int]:
    if depth <= 1:
        return [CONSTANT, UNSURE]
    if needed > len(should):
        return [CONSTANT, NO]
    if needed == 0:
        should = ()  # without a score they say nothing
    if needed == len(should):
        must, should, needed = (*must, *should), (), 0
    if not must and not should and not must_not:
        return [CONSTANT, YES]
    if len(must) == 1 and not should and not must_not:
        return _write(must[0], naming, depth)
    must = sorted(must, key=lambda each: _cost(each, naming))
    branches = [code for each in (*must, *should, *must_not) for code in _write(each, naming, depth - 1)]
    return [BOOLEAN, len(must), len(should), len(must_not), needed, len(branches) + 6, *branches]


def _cost(query: Query, naming: Naming) -> float:
    """Single facts first, the rarest of them before all; then what has to be worked out."""
    return naming.share(query) if isinstance(query, Term) else 1 + (not isinstance(query, Phrase | Range))


def _without_exclusions(query: Query) -> Query:
    """What holds for all values at the paths if the query holds for one of the objects."""
    match query:
        case Boolean():
            return Boolean(
                tuple(_without_exclusions(each) for each in query.must),
                tuple(_without_exclusions(each) for each in query.should),
                (),
                query.minimum_should_match,
            )
        case Either():
            return Either(tuple(_without_exclusions(each) for each in query.queries))
        case Boost() | ConstantScore():
            return _without_exclusions(query.query)
        case Nested():
            return Nested(query.path, _without_exclusions(query.query))
        case _:
            return query


def facts_in(program: Sequence[int]) -> Iterator[int]:
    """The facts that a program names, each as often as it does."""
    at = 0
    while at < len(program):
        match program[at]:
            case 0:
                yield program[at + 1]
                at += 2
            case 1:
                yield from program[at + 4 : at + 4 + 2 * program[at + 3] : 2]
                at += 4 + 2 * program[at + 3]
            case operation:
                at += {2: 7, 3: 11, 4: 8, 5: 2, 6: 2, 7: 6}[operation]
