"""OpenSearch's bulk interface."""

import json

import pytest

from headrace.connect.search.bulk import bulk_body, check_bulk
from headrace.connect.sink import RowChange, RowRefused, SinkUnavailable

CHANGES = [
    RowChange({"id": 1}, {"id": 1, "t": "a\nb"}, 0, 10, 0),
    RowChange({"id": 2}, None, 0, 11, 0),
    RowChange({"a": 1, "b": "x"}, {"a": 1, "b": "x"}, 1, 4, 0),
]


def test_versions_follow_the_offsets() -> None:
    lines = [json.loads(line) for line in bulk_body(CHANGES, base=100).decode().splitlines()]
    assert lines == [
        {"index": {"_id": "1", "version": 111, "version_type": "external"}},
        {"id": 1, "t": "a\nb"},
        {"delete": {"_id": "2", "version": 112, "version_type": "external"}},
        {"index": {"_id": '[1,"x"]', "version": 105, "version_type": "external"}},
        {"a": 1, "b": "x"},
    ]


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
