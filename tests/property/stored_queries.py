"""Queries and documents that meet: few fields, few words, numbers that are near each other or near where floats end."""

from typing import Any

from hypothesis import strategies as st

from headrace.percolation.mapping import Mapping, read_mapping
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
    PhraseTerm,
    Prefix,
    Query,
    Range,
    Regexp,
    Scale,
    Term,
    Wild,
    Wildcard,
)

MAPPING: Mapping = read_mapping(
    {
        "fields": {
            "title": "text",
            "body": {"type": "text", "analyzer": "english"},
            "tag": "keyword",
            "price": "double",
            "stock": "long",
            "at": "date",
            "where": "geo_point",
            "is_new": "boolean",
            "parts.name": "text",
            "parts.size": "long",
        }
    }
)
LARGE = 2**53
WORDS = (
    "a",
    "ab",
    "abc",
    "abd",
    "abcd",
    "abce",
    "bacd",
    "b",
    "ba",
    "run",
    "o'run",
    "3.14",
    "42",
    "x",
    "é",
    "straße",
    "日",
)
TEXT_FIELDS = ("title", "body", "tag", "other", "parts.name")

words = st.sampled_from(WORDS)
text_fields = st.sampled_from((*TEXT_FIELDS, ANY_FIELD))
numbers = st.one_of(
    st.integers(-3, 12),
    st.sampled_from((LARGE, LARGE + 1, LARGE + 2, -LARGE - 1, 10**30, 10**30 + 1, 10**400, 0.1, 0.5, -0.0, 2.5, 1e300)),
)
dates = st.integers(0, 20).map(lambda day: (10_957 + day) * 86_400_000_000)
latitudes = st.sampled_from((-90.0, -45.0, 0.0, 0.001, 45.0, 52.52, 52.53, 89.9, 90.0))
longitudes = st.sampled_from((-180.0, -179.99, -90.0, 0.0, 0.001, 13.4, 13.41, 90.0, 179.99, 180.0))


def _phrase(field: str, texts: list[str], slop: int, gaps: list[int]) -> Query:
    position, terms = 0, []
    for text, gap in zip(texts, [0, *gaps], strict=False):
        position += gap
        terms.append(PhraseTerm(text, position))
    return Phrase(field, tuple(terms), slop)


@st.composite
def _ranges(draw: st.DrawFn) -> Query:
    scale = draw(st.sampled_from(Scale))
    bounds = {Scale.NUMBER: numbers, Scale.DATE: dates, Scale.TEXT: words}[scale]
    field = {
        Scale.NUMBER: st.sampled_from(("price", "stock", "count", "parts.size")),
        Scale.DATE: st.sampled_from(("at", "other")),
        Scale.TEXT: text_fields,
    }[scale]
    low, high = draw(st.none() | bounds), draw(st.none() | bounds)
    return Range(draw(field), scale, low, high, draw(st.booleans()), draw(st.booleans()))


leaves: st.SearchStrategy[Query] = st.one_of(
    st.builds(Term, text_fields, words),
    st.builds(Term, st.just("is_new"), st.sampled_from(("true", "false"))),
    st.builds(
        _phrase,
        text_fields,
        st.lists(words, min_size=2, max_size=4),
        st.sampled_from((0, 0, 1, 2, 4)),
        st.lists(st.sampled_from((1, 1, 1, 2, 0)), min_size=3, max_size=3),
    ),
    st.builds(Prefix, text_fields, st.sampled_from(("", "a", "ab", "abc", "ru", "stra"))),
    st.builds(
        Wildcard,
        text_fields,
        st.lists(st.sampled_from((Wild.ANY, Wild.ONE, "a", "ab", "c", "d", "run")), min_size=1, max_size=4).map(tuple),
    ),
    st.builds(Fuzzy, text_fields, words, st.integers(0, 2), st.integers(0, 2), st.booleans()),
    st.builds(
        Regexp,
        text_fields,
        st.sampled_from(("ab.*", "abc?d", "a|run", "[ab]+", "(ab)*x?", "ab{0,1}", "")),
        st.booleans(),
    ),
    _ranges(),
    _ranges(),
    st.builds(
        GeoDistance, st.just("where"), latitudes, longitudes, st.sampled_from((0.0, 120.0, 2_000.0, 2e6, 1.5e7, 2.1e7))
    ),
    st.builds(GeoBox, st.just("where"), latitudes, longitudes, latitudes, longitudes),
    st.builds(Exists, st.sampled_from(("title", "price", "other", "parts", "where", "parts.name"))),
    st.just(MatchAll()),
    st.just(MatchNone()),
)


@st.composite
def _booleans(draw: st.DrawFn, inner: st.SearchStrategy[Query]) -> Query:
    must = tuple(draw(st.lists(inner, max_size=3)))
    should = tuple(draw(st.lists(inner, max_size=4)))
    must_not = tuple(draw(st.lists(inner, max_size=2)))
    least = 1 if should and not must else 0
    return Boolean(must, should, must_not, draw(st.integers(least, max(least, len(should) + 1))))


def _around(inner: st.SearchStrategy[Query]) -> st.SearchStrategy[Query]:
    return st.one_of(
        _booleans(inner),
        _booleans(inner),
        st.builds(Either, st.lists(inner, max_size=3).map(tuple)),
        st.builds(Nested, st.just("parts"), inner),
        st.builds(Boost, inner, st.sampled_from((0.5, 2.0))),
        st.builds(ConstantScore, inner, st.sampled_from((0.0, 3.0))),
    )


queries: st.SearchStrategy[Query] = st.recursive(leaves, _around, max_leaves=8)

_texts = st.lists(words, max_size=6).map(" ".join)
_stocks = st.one_of(st.integers(-3, 12), st.sampled_from((LARGE, LARGE + 1, LARGE + 2, -LARGE - 1, 2**62)))
_prices = st.one_of(st.integers(-3, 12).map(float), st.sampled_from((0.1, 0.5, -0.0, 2.5, 1e300)))
_parts = st.fixed_dictionaries({}, optional={"name": _texts, "size": _stocks})

documents: st.SearchStrategy[dict[str, Any]] = st.fixed_dictionaries(
    {},
    optional={
        "title": st.one_of(_texts, st.none(), st.lists(_texts, max_size=3)),
        "body": _texts,
        "tag": words,
        "price": _prices,
        "stock": st.one_of(_stocks, st.lists(_stocks, max_size=3)),
        "at": dates.map(lambda us: us // 1000),
        "where": st.builds(lambda latitude, longitude: {"lat": latitude, "lon": longitude}, latitudes, longitudes),
        "is_new": st.booleans(),
        "parts": st.one_of(_parts, st.lists(_parts, max_size=3)),
        "other": st.one_of(_texts, st.booleans(), st.integers(0, 50), st.just("2000-01-03")),
        "count": st.one_of(numbers, st.lists(numbers, max_size=2)),
    },
)
