"""OpenSearch's bulk interface."""

import json

import pytest

from headrace.stores.derived import RowChange
from headrace.stores.errors import RowRefused, SinkUnavailable
from headrace.stores.opensearch.derived import bulk_bodies, check_bulk

CHANGES = [
    RowChange({"id": 1}, {"id": 1, "t": "a\nb"}, 0, 10, 0),
    RowChange({"id": 2}, None, 0, 11, 0),
    RowChange({"a": 1, "b": "x"}, {"a": 1, "b": "x"}, 1, 4, 0),
]


def test_versions_count_on() -> None:
    ((held, body),) = bulk_bodies(CHANGES, first=111)
    assert held == CHANGES
    lines = [json.loads(line) for line in body.decode().splitlines()]
    assert lines == [
        {"index": {"_id": "1", "version": 111, "version_type": "external"}},
        {"id": 1, "t": "a\nb"},
        {"delete": {"_id": "2", "version": 112, "version_type": "external"}},
        {"index": {"_id": '[1,"x"]', "version": 113, "version_type": "external"}},
        {"a": 1, "b": "x"},
    ]


def test_requests_are_no_larger_than_allowed_unless_one_row_is() -> None:
    changes = [RowChange({"id": n}, {"t": "x" * size}, 0, n, 0) for n, size in enumerate([10, 10, 5000, 10, 10])]
    bodies = list(bulk_bodies(changes, 0, largest_bytes=300))
    assert [[change.offset for change in held] for held, _ in bodies] == [[0, 1], [2], [3, 4]]
    assert [len(body) > 300 for _, body in bodies] == [False, True, False]


@pytest.mark.parametrize("key", ["", "ä" * 257])
def test_a_key_that_the_index_cannot_hold(key: str) -> None:
    with pytest.raises(RowRefused, match="its key is") as caught:
        list(bulk_bodies([*CHANGES, RowChange({"id": key}, {"id": key}, 2, 7, 0)], 0))
    assert (caught.value.partition, caught.value.offset) == (2, 7)
    assert list(bulk_bodies([RowChange({"id": key}, None, 2, 7, 0)], 0)) == []


def test_what_is_there_already_and_what_is_gone_already_is_no_error() -> None:
    items = [{"index": {"status": 409}}, {"delete": {"status": 404}}, {"index": {"status": 201}}]
    check_bulk({"errors": True, "items": items}, CHANGES)


def test_a_row_that_is_refused_is_named() -> None:
    refused = {"index": {"status": 400, "error": {"reason": "failed to parse field [t]"}}}
    items = [{"index": {"status": 201}}, {"delete": {"status": 200}}, refused]
    with pytest.raises(RowRefused, match="failed to parse field") as caught:
        check_bulk({"errors": True, "items": items}, CHANGES)
    assert (caught.value.partition, caught.value.offset) == (1, 4)


@pytest.mark.parametrize("status", [429, 503])
def test_an_index_that_is_overloaded_is_waited_for(status: int) -> None:
    items = [{"index": {"status": 400}}, {"delete": {"status": status}}, {"index": {"status": 201}}]
    with pytest.raises(SinkUnavailable):
        check_bulk({"errors": True, "items": items}, CHANGES)
