"""The search sink on a real OpenSearch: the contract, what the server refuses, and what it forgets in a crash."""

import itertools
import json
import urllib.request
from typing import Any

import pytest

from headrace.stores.derived import Place
from headrace.stores.errors import RowRefused, SinkUnavailable
from headrace.stores.opensearch.derived import OpenSearchSink, opensearch
from headrace.testing.contracts.sink import TOPIC, MakeSink, SinkContract, apply_or_list, batch, change, opened
from peers.http_server import HttpServer

_numbers = itertools.count()


def sink_to(server: HttpServer, index: str) -> OpenSearchSink:
    return opensearch("name", TOPIC, server.url, index)


def find(server: HttpServer, index: str, query: dict[str, Any]) -> list[dict[str, Any]]:
    """What a reader of the alias finds."""
    urllib.request.urlopen(urllib.request.Request(f"{server.url}/{index}/_refresh", method="POST")).close()
    request = urllib.request.Request(
        f"{server.url}/{index}/_search", json.dumps({"query": query}).encode(), {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request) as answer:
        return [hit["_source"] for hit in json.load(answer)["hits"]["hits"]]


class TestContract(SinkContract):
    @pytest.fixture
    def make(self, opensearch_server: HttpServer) -> MakeSink:
        index = f"rows{next(_numbers)}"
        return lambda: sink_to(opensearch_server, index)


def test_rows_are_found_by_their_words_and_columns(opensearch_server: HttpServer) -> None:
    sink = sink_to(opensearch_server, "books")
    with opened(sink):
        sink.apply(batch(change(1, {"title": "The Coffee Trader", "year": 2003}, 0), up_to=1))
        sink.apply(batch(change(2, {"title": "Tea and Empire", "year": 2019}, 1), up_to=2))
    assert [row["id"] for row in find(opensearch_server, "books", {"match": {"title": "coffee"}})] == [1]
    assert [row["id"] for row in find(opensearch_server, "books", {"range": {"year": {"gt": 2010}}})] == [2]


def test_a_value_that_does_not_fit_its_column_costs_no_row(opensearch_server: HttpServer) -> None:
    rows = [
        {"n": 5, "note": "2024-02-29", "deep": {"x": [1, "two"]}},
        {"n": "five", "note": "no date at all", "deep": {"x": "three"}},
        {"n": 2**70, "note": "x" * 100_000, "deep": None},
    ]
    sink = sink_to(opensearch_server, "odd")
    with opened(sink):
        sink.apply(batch(*(change(key, row, key) for key, row in enumerate(rows)), up_to=3))
    stored = sink.look_up([{"id": key} for key in range(3)])
    assert [row.values for row in stored] == [{"id": key, **row} for key, row in enumerate(rows)]
    assert [row["id"] for row in find(opensearch_server, "odd", {"match": {"note": "date"}})] == [1]


def test_a_row_that_the_index_cannot_hold_is_buried_and_the_rest_is_there(opensearch_server: HttpServer) -> None:
    sink = sink_to(opensearch_server, "poison")
    changes = [
        change(1, {"v": {"a": 1}}, 0),
        change(2, {"v": "no document, where one was before"}, 1),
        change("k" * 600, {"v": None}, 2),
        change("", {"v": None}, 3),
        change(3, {"v": {"a": 2}}, 4),
    ]
    with opened(sink):
        assert apply_or_list(sink, changes) == [2, 3, 1]
    assert [row.key for chunk in sink.scan() for row in chunk] == ["1", "3"]
    assert sink.place() == Place(TOPIC, {0: 5})


def test_more_than_one_request_may_hold(opensearch_server: HttpServer) -> None:
    rows = [change(key, {"large": "x" * 3_000_000}, key) for key in range(6)]
    sink = sink_to(opensearch_server, "large")
    with opened(sink):
        sink.apply(batch(*rows, up_to=6))
    assert {row.key for chunk in sink.scan() for row in chunk} == {str(key) for key in range(6)}


def test_a_topic_that_grows_goes_on_at_lower_offsets(opensearch_server: HttpServer) -> None:
    sink = sink_to(opensearch_server, "grown")
    with opened(sink):
        sink.apply(batch(change(1, {"t": "at 50"}, 50), up_to=51))
        moved = batch(change(1, {"t": "moved"}, 3)._replace(partition=1), up_to=51)
        sink.apply(type(moved)(moved.changes, Place(TOPIC, {0: 51, 1: 4})))
    assert [row.values["t"] for row in sink.look_up([{"id": 1}])] == ["moved"]


def test_a_node_that_dies_is_waited_for_and_has_what_it_acknowledged(opensearch_server: HttpServer) -> None:
    sink = sink_to(opensearch_server, "crashed")
    with opened(sink):
        sink.apply(batch(*(change(key, {"n": key}, key) for key in range(1000)), up_to=1000))
        opensearch_server.kill()
        with pytest.raises(SinkUnavailable):
            sink.apply(batch(change(5, None, 1000), up_to=1001))
        opensearch_server.start()
        with pytest.raises(RowRefused, match="empty"):
            sink.apply(batch(change("", {"n": 1}, 1000), up_to=1001))
        sink.apply(batch(change(5, None, 1000), up_to=1001))
    with opened(sink_to(opensearch_server, "crashed")) as place:
        assert place == Place(TOPIC, {0: 1001})
    assert {row.key for chunk in sink.scan() for row in chunk} == {str(key) for key in range(1000)} - {"5"}
