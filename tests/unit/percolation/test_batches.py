"""Arrow batches whose columns meet in odd ways, and numbers where floats end: each row as the document that it is."""

from typing import Any

import pyarrow as pa
import pytest

from headrace.percolation.mapping import read_mapping
from headrace.percolation.percolator import AllQueries, Percolator

MAPPING = read_mapping({"fields": {"price": "double", "stock": "long"}})
EDGES = (2**53 - 1, 2**53, 2**53 + 1, 2**53 + 2, -(2**53) - 1, 2**63 - 1, -(2**63))


@pytest.mark.parametrize(
    ("columns", "queries"),
    [
        ({"a.b": ["x y"], "a": [{"b": "y x"}]}, ("a.b:x", 'a.b:"x y"', 'a.b:"y x"', 'a.b:"y y"', "a.b:*")),
        ({"a": ["z"], "a.b": [{"c": "y x"}]}, ("a.b.c:x", "a:z", "a.b:*")),
        ({"a": ["z"], "a.b": [["y", "x"]]}, ("a.b:x", "a:z")),
        (
            {"price": pa.array(EDGES, pa.int64()), "stock": pa.array(EDGES, pa.int64())},
            [f"{field}:{sign}{edge}" for edge in EDGES for field in ("price", "stock") for sign in ("", ">")],
        ),
        ({"stock": pa.array([2**64 - 1, 2**53 + 1], pa.uint64())}, (f"stock:{2**64 - 1}", f"stock:{2**53}")),
        ({"price": [float("inf"), float("-inf"), -0.0, 5e-324]}, ("price:>1e300", "price:<-5", "price:0", "price:>0")),
    ],
)
def test_rows_match_as_documents_do(columns: dict[str, Any], queries: tuple[str, ...]) -> None:
    batch = pa.RecordBatch.from_pydict(columns)
    compiled, every = Percolator({"default": MAPPING}), Percolator({"default": MAPPING}, index=AllQueries)
    for query in queries:
        compiled.add(query, query)
        every.add(query, query)
    found = compiled.percolate_batch(batch)
    pairs = {
        (row, compiled.numbered(number).id)
        for row, number in zip(found.rows.tolist(), found.numbers.tolist(), strict=True)
    }
    assert pairs == {(row, hit.id) for row, value in enumerate(batch.to_pylist()) for hit in every.percolate(value)}
    assert pairs
