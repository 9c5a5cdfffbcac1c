"""Lucene Monitor and OpenSearch still answer the shared queries as they did when their answers were kept."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.percolation.documents import read_document
from headrace.percolation.evaluate import matches
from peers.lucene.monitor import LuceneMonitor
from peers.lucene.queries import as_json
from tests.conformance.search_answers import ask, frozen
from tests.conformance.search_cases import MAPPING, documents, drawn_tree

if TYPE_CHECKING:
    from peers.http_server import HttpServer

_SEEDS = range(100, 103)
_EACH = 500


def test_they_answer_as_they_did(opensearch_server: HttpServer) -> None:
    kept, asked = frozen(), ask(opensearch_server)
    assert {name: (asked[name], kept[name]) for name in kept if asked[name] != kept[name]} == {}


def test_queries_drawn_anew_match_what_they_match_in_lucene() -> None:
    rows = [read_document(each, MAPPING) for each in documents()]
    for seed in _SEEDS:
        drawn = [drawn_tree(seed * _EACH + number, with_empty_ranges=False) for number in range(_EACH)]
        with LuceneMonitor("term-plain") as monitor:
            monitor.ask(add=[[str(number), as_json(query)] for number, query in enumerate(drawn)])
            found = monitor.ask(match=documents(), batch=1)["matches"]
        for row, document in enumerate(rows):
            ours = {number for number, query in enumerate(drawn) if matches(query, document)}
            theirs = set(map(int, found[row]))
            assert ours == theirs, f"seed {seed}, row {row}: {[drawn[each] for each in ours ^ theirs][:3]}"
