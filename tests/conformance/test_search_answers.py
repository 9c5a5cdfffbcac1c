"""Our evaluator and our index on the cases that Lucene Monitor and OpenSearch were given, against what these answered.

`make test-peers` asks them again. Where they answer otherwise is declared.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from headrace.percolation.documents import read_document
from headrace.percolation.evaluate import matches
from headrace.percolation.index import QueryIndex, percolate_batch
from tests.conformance.search_answers import LUCENE, OPENSEARCH, frozen
from tests.conformance.search_cases import MAPPING, cases, documents
from tests.conformance.search_differences import DIFFERENCES

_PAGE = Path(__file__).parents[2] / "docs" / "reference" / "differences-search.md"
_DECLARED = {place for each in DIFFERENCES for place in each.at}


@pytest.fixture(scope="module")
def ours() -> dict[str, list[int]]:
    """By case, the documents that match by definition."""
    rows = [read_document(each, MAPPING) for each in documents()]
    return {case.name: [row for row, each in enumerate(rows) if matches(case.query, each)] for case in cases()}


@pytest.mark.parametrize("who", [LUCENE, OPENSEARCH])
def test_a_query_matches_what_it_matches_there(who: str, ours: dict[str, list[int]]) -> None:
    answers = frozen()
    differ = {(who, name) for name, found in ours.items() if answers[name][who] != found}
    assert differ == {place for place in _DECLARED if place[0] == who}


@pytest.mark.parametrize("batch_rows", [1, 7, 1000])
def test_the_index_matches_what_the_evaluator_does(batch_rows: int, ours: dict[str, list[int]]) -> None:
    index, queries = QueryIndex(), {number: case.query for number, case in enumerate(cases())}
    for number, query in queries.items():
        index.add(number, query)
    values = [{**each, "stock": _as_list(each.get("stock"))} for each in documents()]
    rows = pa.RecordBatch.from_pylist(values)
    found: dict[str, list[int]] = {case.name: [] for case in cases()}
    for first in range(0, len(rows), batch_rows):
        pairs = percolate_batch(index, rows.slice(first, batch_rows), queries.__getitem__, MAPPING)
        assert not pairs.refused
        for row, number in zip(pairs.rows.tolist(), pairs.numbers.tolist(), strict=True):
            found[cases()[number].name].append(first + row)
    assert found == ours


def _as_list(value: Any) -> list[int] | None:
    return value if value is None or isinstance(value, list) else [value]


def test_cases_are_many_and_most_match_something(ours: dict[str, list[int]]) -> None:
    assert len(ours) == len(cases()) > 450
    assert sum(bool(found) for found in ours.values()) > 350


def test_the_page_names_every_difference_and_no_other() -> None:
    first_cells = re.findall(r"^\| ([^|]+?) +\|", _PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    titles = [each.title for each in DIFFERENCES]
    assert [cell for cell in first_cells if cell != "Query" and not set(cell) <= {"-"}] == titles
