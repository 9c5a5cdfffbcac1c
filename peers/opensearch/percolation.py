"""OpenSearch's percolator: queries stored in an index, held against documents in a request."""

from __future__ import annotations

import json
import urllib.request
from typing import TYPE_CHECKING, Any, Final

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
    Term,
    Wildcard,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

# Filters such as folding are a module of a distribution that is not on Maven Central: words are in lower case, no more.
_SETTINGS: Final = {
    "settings": {"number_of_shards": 1, "number_of_replicas": 0},
    "mappings": {
        "properties": {
            "query": {"type": "percolator"},
            "title": {"type": "text"},
            "body": {"type": "text"},
            "price": {"type": "long"},
            "stock": {"type": "long"},
            "where": {"type": "geo_point"},
        }
    },
}


class Percolation:
    """An index of stored queries over the fields of the shared cases."""

    def __init__(self, url: str, index: str) -> None:
        self._url = f"{url}/{index}"
        self._ask("PUT", "", _SETTINGS)

    def add(self, queries: Mapping[str, str | Query]) -> set[str]:
        """Store queries by name, texts as OpenSearch reads them; the names of those that it took."""
        lines = list[str]()
        for name, query in queries.items():
            asked = (
                {"query_string": {"query": query, "default_field": "title"}}
                if isinstance(query, str)
                else as_dsl(query)
            )
            lines += [json.dumps({"index": {"_id": name}}), json.dumps({"query": asked})]
        answer = self._ask("POST", "/_bulk?refresh=true", "\n".join(lines) + "\n")
        return {each["index"]["_id"] for each in answer["items"] if each["index"]["status"] < 300}

    def match(self, documents: Sequence[Mapping[str, Any]]) -> dict[str, list[int]]:
        """By the name of the query the numbers of the documents that it matches."""
        asked = {"size": 10_000, "query": {"percolate": {"field": "query", "documents": documents}}}
        hits = self._ask("POST", "/_search", asked)["hits"]["hits"]
        return {each["_id"]: sorted(each["fields"]["_percolator_document_slot"]) for each in hits}

    def _ask(self, method: str, path: str, body: object) -> Any:
        is_lines = isinstance(body, str)
        data = body.encode() if isinstance(body, str) else json.dumps(body).encode()
        kind = "application/x-ndjson" if is_lines else "application/json"
        asked = urllib.request.Request(self._url + path, data, {"Content-Type": kind}, method=method)  # noqa: S310
        with urllib.request.urlopen(asked) as answer:  # noqa: S310 (loopback, by http)
            return json.load(answer)


def as_dsl(query: Query) -> dict[str, Any]:
    """A query of ours in OpenSearch's form; the words of a phrase follow one another."""
    match query:
        case Term():
            return {"term": {query.field: query.text}}
        case Phrase():
            return {
                "match_phrase": {
                    query.field: {"query": " ".join(each.text for each in query.terms), "slop": query.slop}
                }
            }
        case Prefix():
            return {"prefix": {query.field: query.text}}
        case Wildcard():
            text = "".join(each if isinstance(each, str) else each.value for each in query.parts)
            return {"wildcard": {query.field: {"value": text}}}
        case Fuzzy():
            asked = {
                "value": query.text,
                "fuzziness": query.edits,
                "prefix_length": query.prefix_length,
                "transpositions": query.transpositions,
                "max_expansions": 1024,
            }
            return {"fuzzy": {query.field: asked}}
        case Regexp():
            return {"regexp": {query.field: {"value": query.pattern}}}
        case Range():
            bounds = {
                **({} if query.low is None else {"gte" if query.includes_low else "gt": query.low}),
                **({} if query.high is None else {"lte" if query.includes_high else "lt": query.high}),
            }
            return {"range": {query.field: bounds}}
        case GeoBox():
            corners = {
                "top_left": {"lat": query.top, "lon": query.left},
                "bottom_right": {"lat": query.bottom, "lon": query.right},
            }
            return {"geo_bounding_box": {query.field: corners}}
        case GeoDistance():
            centre = {"lat": query.latitude, "lon": query.longitude}
            return {"geo_distance": {"distance": f"{query.metres}m", query.field: centre}}
        case Exists():
            return {"exists": {"field": query.field}}
        case MatchAll():
            return {"match_all": {}}
        case MatchNone():
            return {"match_none": {}}
        case Boost():
            return {"bool": {"must": [as_dsl(query.query)], "boost": query.factor}}
        case ConstantScore():
            return {"constant_score": {"filter": as_dsl(query.query)}}
        case Either():
            return {"dis_max": {"queries": [as_dsl(each) for each in query.queries]}}
        case Boolean():
            return {
                "bool": {
                    "must": [as_dsl(each) for each in query.must],
                    "should": [as_dsl(each) for each in query.should],
                    "must_not": [as_dsl(each) for each in query.must_not],
                    "minimum_should_match": query.minimum_should_match,
                }
            }
    raise AssertionError(f"{type(query).__name__} is not among the shared cases")
