"""Our query trees as Monitor.java reads them."""

from __future__ import annotations

from typing import Any

from headrace.percolation.tree import (
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
    Phrase,
    Prefix,
    Query,
    Range,
    Regexp,
    Scale,
    Term,
    Wildcard,
)


class NotInLucene(Exception):
    """A query that Lucene Monitor has no counterpart of."""


def as_json(query: Query) -> dict[str, Any]:
    """A query with the meaning that ours has; numbers are whole ones, and their bounds included."""
    match query:
        case Term():
            return {"term": [query.field, query.text]}
        case Phrase():
            return {"phrase": [query.field, [[each.text, each.position] for each in query.terms], query.slop]}
        case Prefix():
            return {"prefix": [query.field, query.text]}
        case Wildcard():
            return {
                "wildcard": [
                    query.field,
                    "".join(each if isinstance(each, str) else each.value for each in query.parts),
                ]
            }
        case Fuzzy():
            return {"fuzzy": [query.field, query.text, query.edits, query.prefix_length, query.transpositions]}
        case Regexp():
            return {"regexp": [query.field, query.pattern]}
        case Range():
            return _range(query)
        case GeoBox():
            return {"box": [query.field, query.top, query.left, query.bottom, query.right]}
        case GeoDistance():
            return {"distance": [query.field, query.latitude, query.longitude, query.metres]}
        case Exists():
            return {"exists": query.field}
        case MatchAll():
            return {"all": True}
        case MatchNone():
            return {"none": True}
        case Boost():
            return {"boost": [as_json(query.query), query.factor]}
        case ConstantScore():
            return {"constant": as_json(query.query)}
        case Either():
            return {"either": [as_json(each) for each in query.queries]}
        case Boolean():
            return {
                "boolean": {
                    "must": [as_json(each) for each in query.must],
                    "should": [as_json(each) for each in query.should],
                    "must_not": [as_json(each) for each in query.must_not],
                    "minimum": query.minimum_should_match,
                }
            }
    raise NotInLucene(f"{type(query).__name__} has no counterpart in Lucene Monitor")


def _range(query: Range) -> dict[str, Any]:
    if query.scale is Scale.TEXT:
        return {"text": [query.field, query.low, query.high, query.includes_low, query.includes_high]}
    low, high = query.low, query.high
    if any(isinstance(each, float) for each in (low, high)):
        if not (query.includes_low and query.includes_high):
            raise NotInLucene("a bound that is not included is written as the next number")
        return {"double": [query.field, low, high]}
    assert not isinstance(low, str | float)
    assert not isinstance(high, str | float)
    return {
        "long": [
            query.field,
            None if low is None else low + (not query.includes_low),
            None if high is None else high - (not query.includes_high),
        ]
    }
