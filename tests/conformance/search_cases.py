"""Queries and documents that Lucene Monitor and OpenSearch's percolator are given too.

Some queries are texts, which each side reads for itself; others are trees drawn at random, which say what is meant and
are given to each in its own form.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

from headrace.percolation.language import Policy
from headrace.percolation.mapping import Mapping, read_mapping
from headrace.percolation.reading import read_query
from headrace.percolation.tree import (
    Boolean,
    ConstantScore,
    Either,
    Fuzzy,
    GeoBox,
    GeoDistance,
    MatchAll,
    MatchNone,
    Phrase,
    PhraseTerm,
    Prefix,
    Query,
    Range,
    Regexp,
    Scale,
    Term,
    Wild,
    Wildcard,
    walk,
)

MAPPING: Final[Mapping] = read_mapping(
    {
        "fields": {"title": "text", "body": "text", "price": "long", "stock": "long", "where": "geo_point"},
        "default_fields": ["title"],
        "dynamic": False,
    }
)
POLICY: Final = Policy(leading_wildcards=True)

_TITLES: Final = (
    "A fast red car", "the red fast car", "Fast Car, red and new", "an old car that is fast", "red", "car car car",
    "fast fast car", "Wi-Fi router for the car", "wifi router", "wi fi", "O'Brien's café", "obriens cafe",
    "cafe au lait", "Straße nach Köln", "strasse koln", "3.14 is not 3,14", "a_b c.d", "version 1.2.3",
    "e-mail me@example.com today", "日本語 の 本", "naïve résumé", "RED CAR", "cart carts carted", "cat cot cut coat",
    "abcd abdc acbd", "running runs ran", "to be or not to be", "not to be", "and or not", "x", "fast\nred\tcar",
    "car; fast: red!", "",
)  # fmt: skip

TEXTS: Final = (
    "car", "CAR", "fast car", "+fast +car", "+fast -red", "fast AND car", "fast OR red", "fast && car",
    "fast || router", "(fast OR red) AND car", "fast AND (red OR old)", "NOT car", "-car", "*:*", "*:* -car",
    "+car -(red OR old)", '"fast car"', '"car fast"', '"red car"', '"red car"~1', '"car red"~2', '"fast car"~3',
    '"car red"~1', '"red fast car"', '"fast red car"~2', '"car car"', '"car car car"', '"to be"', '"be to"~4',
    '"fast fast"', '"be be"~4', "wi-fi", '"wi fi"', "wifi", "café", "cafe", "strasse", "Straße", "koln", "resume",
    "o'brien's", "obriens", "3.14", "3,14", "1.2.3", "a_b", "c.d", "me@example.com", "example.com", "日本語", "本",
    "naive", "ca*", "CA*", "c?t", "c*t", "*ar", "*a*", "car?", "fa*t", "ca* AND fast", "cart*", "ca?t*", "cat~",
    "cat~1", "cat~2", "cot~1", "carts~1", "abcd~1", "abcd~2", "fsat~1", "fsat~2", "/ca[rt]/", "/c.*t/", "/car|red/",
    "title:red", "body:red", "title:(red car)", "title:(+red +car)", 'title:"red car"', "body:(fast OR title:red)",
    "price:[10 TO 20]", "price:{10 TO 20}", "price:[10 TO 20}", "price:[* TO 20]", "price:{20 TO *]", "price:10",
    "price:[10 TO 20] AND fast", "+car +price:[15 TO *] -stock:0", "stock:[-5 TO 0]", "title:[car TO cat]",
    "title:{car TO fast}", "car^2 fast", "(fast car)^3", "fast AND red OR old", "old OR fast AND red",
    "fast AND NOT red", "+fast car -old", "fast car AND red", '"fast car" OR "wi fi"', "+(fast router) +car",
    "((fast))", "(+fast -red) old",
)  # fmt: skip


def documents() -> list[dict[str, Any]]:
    """Titles, and words, numbers and points drawn beside them."""
    draw = random.Random(3)
    found: list[dict[str, Any]] = []
    for title in _TITLES:
        document: dict[str, Any] = {"title": title} if title else {}
        document["body"] = " ".join(draw.choice(_WORDS) for _ in range(draw.randrange(12)))
        if draw.random() < 0.8:
            document["price"] = draw.choice((0, 10, 11, 15, 19, 20, 21, 1000))
        if draw.random() < 0.6:
            document["stock"] = draw.choice((-5, 0, 3, [1, 30], [-10, 10]))
        if draw.random() < 0.7:
            document["where"] = {"lat": draw.uniform(-89, 89), "lon": draw.uniform(-179, 179)}
        found.append(document)
    return found


_WORDS: Final = ("a", "ab", "abc", "abd", "acb", "bac", "b", "ba", "red", "car", "cart", "fast", "cat")


@dataclass(frozen=True)
class Case:
    """One query by name; a text is read by each side for itself."""

    name: str
    text: str | None = None
    tree: Query | None = None

    @property
    def query(self) -> Query:
        """What it means here."""
        if self.tree is not None:
            return self.tree
        assert self.text is not None
        return read_query(self.text, MAPPING, policy=POLICY)


@cache
def cases() -> list[Case]:
    drawn = [Case(f"drawn {number}", tree=drawn_tree(number)) for number in range(400)]
    return [*(Case(text, text=text) for text in TEXTS), *drawn]


def drawn_tree(number: int, *, with_empty_ranges: bool = True) -> Query:
    """One of endlessly many queries; Lucene Monitor refuses a range of words that holds nothing."""
    draw = random.Random(7_000 + number)
    tree = _tree(draw, 2)
    while not with_empty_ranges and any(_is_empty(each) for each in walk(tree)):
        tree = _tree(draw, 2)
    return tree


def _is_empty(query: Query) -> bool:
    return (
        isinstance(query, Range)
        and query.scale is Scale.TEXT
        and query.low == query.high
        and not (query.includes_low and query.includes_high)
    )


def _tree(draw: random.Random, depth: int) -> Query:
    if depth == 0 or draw.random() < 0.3:
        return _leaf(draw)
    kind = draw.random()
    if kind < 0.75:
        must = tuple(_tree(draw, depth - 1) for _ in range(draw.choice((0, 0, 1, 2))))
        should = tuple(_tree(draw, depth - 1) for _ in range(draw.choice((0, 2, 3))))
        must_not = tuple(_tree(draw, depth - 1) for _ in range(draw.choice((0, 0, 1))))
        least = 1 if should and not must else 0
        return Boolean(must, should, must_not, draw.randint(least, max(least, len(should))))
    if kind < 0.9:
        return Either(tuple(_tree(draw, depth - 1) for _ in range(2)))
    return ConstantScore(_tree(draw, depth - 1), 2.0)


def _leaf(draw: random.Random) -> Query:
    field, word = draw.choice(("title", "body", "body")), draw.choice(_WORDS)
    match draw.randrange(14):
        case 0 | 1 | 2:
            return Term(field, word)
        case 3 | 4:
            count = draw.choice((2, 2, 3))
            words = tuple(PhraseTerm(draw.choice(_WORDS), at) for at in range(count))
            return Phrase(field, words, draw.choice((0, 0, 1, 2, 3)))
        case 5:
            return Prefix(field, word[: draw.choice((1, 2, 3))])
        case 6:
            parts = [draw.choice((Wild.ANY, Wild.ONE, word[:1], word[-1:])) for _ in range(3)]
            return Wildcard(field, tuple(parts))
        case 7:
            return Fuzzy(field, word, draw.choice((1, 2)), draw.choice((0, 0, 1)), draw.random() < 0.7)
        case 8:
            return Regexp(field, draw.choice(("ab.*", "[abc]+", "(ab)*c?", "abc?d?", "ca(r|t)+", "red|fast")))
        case 9 | 10:
            low, high = sorted((draw.randint(-12, 25), draw.randint(-12, 25)))
            bounds = draw.choice(((low, high), (low, None), (None, high)))
            return Range(
                draw.choice(("price", "stock")), Scale.NUMBER, *bounds, draw.random() < 0.5, draw.random() < 0.5
            )
        case 11:
            low_word, high_word = sorted((draw.choice(_WORDS), draw.choice(_WORDS)))
            return Range(field, Scale.TEXT, low_word, high_word, draw.random() < 0.5, draw.random() < 0.5)
        case 12:
            bottom, top = sorted((draw.uniform(-90, 90), draw.uniform(-90, 90)))
            if draw.random() < 0.5:
                return GeoBox("where", top, draw.uniform(-180, 180), bottom, draw.uniform(-180, 180))
            return GeoDistance("where", top, draw.uniform(-180, 180), draw.choice((1e5, 1e6, 5e6, 1.5e7)))
        case _:
            return draw.choice((MatchAll(), MatchNone(), Term(field, word)))
