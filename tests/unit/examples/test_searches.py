"""The examples of stored queries: which documents are found among thousands, and no others."""

import runpy
from pathlib import Path

import pytest

from headrace.percolation.mapping import read_mapping
from headrace.percolation.percolator import AllQueries, Percolator
from headrace.percolation.stored import from_parts

FOLDER = Path(__file__).parents[3] / "examples" / "searches"


@pytest.mark.parametrize("file", ["listings.py", "articles.py"])
def test_what_is_planted_is_found(file):
    example = runpy.run_path(str(FOLDER / file))
    percolator = Percolator({"default": read_mapping(example["MAPPING"])}, index=AllQueries)
    for name, parts in example["QUERIES"].items():
        percolator.put(from_parts(name, parts))
    documents = list(example["documents"]())
    assert len(documents) > 1_000
    hits = percolator.percolate_many(documents)
    found = {(hit.id, each["number"]) for each, them in zip(documents, hits, strict=True) for hit in them}
    assert found == example["EXPECTED"]
    assert percolator.unselective == 0
