"""`top_n`: order, ties, nulls, duplicates, and what it refuses."""

from typing import Any

import pyarrow as pa
import pytest

from headrace.pipelines.operators.aggregation.top_n import TopN, top_n
from headrace.pipelines.operators.errors import BadAggregate, BadField
from headrace.pipelines.operators.tables.form import TIME, TIME_TYPE, WEIGHT, WEIGHT_TYPE
from headrace.pipelines.operators.tables.groups.changes import plan_groups
from headrace.pipelines.operators.tables.groups.operators import GroupedRows
from tests.keyed_memory import MemoryRunner

SCHEMA = pa.schema(
    [
        ("g", pa.int32()),
        ("score", pa.float64()),
        ("name", pa.string()),
        ("tags", pa.map_(pa.string(), pa.string())),
        (WEIGHT, WEIGHT_TYPE),
        (TIME, TIME_TYPE),
    ]
)
NAN = float("nan")


def shown(aggregate: TopN, *rows: tuple[float | None, str | None, int]) -> list[Any]:
    runner = MemoryRunner(GroupedRows(plan_groups({"top": aggregate}, SCHEMA).parts), by=["g"], schema=SCHEMA)
    made = [{"g": 1, "score": score, "name": name, WEIGHT: weight} for score, name, weight in rows]
    return [tuple(row.values()) for row in runner.batch(made).to_pylist()[-1]["top"]]


def test_the_greatest_first_and_equal_ones_by_the_columns_shown() -> None:
    rows = [(1.0, "z", 1), (2.0, "b", 1), (2.0, "a", 1), (None, "n", 1), (3.0, "gone", 1), (3.0, "gone", -1)]
    assert shown(top_n(3, "-score", "name"), *rows) == [("a",), ("b",), ("z",)]
    assert shown(top_n(2, ["-score", "-name"], "score", "name"), *rows) == [(2.0, "b"), (2.0, "a")]
    assert shown(top_n(9, "score"), *rows) == [(1.0,), (2.0,), (2.0,), (None,)]


def test_a_row_that_is_there_twice_is_shown_twice() -> None:
    assert shown(top_n(3, "name"), (1.0, "b", 1), (1.0, "a", 2)) == [("a",), ("a",), ("b",)]
    assert shown(top_n(1, "name"), (1.0, "a", 2)) == [("a",)]


def test_nan_is_greater_than_numbers_and_nothing_comes_last() -> None:
    rows = [(NAN, "nan", 1), (5.0, "five", 1), (None, None, 1)]
    assert shown(top_n(3, "-score", "name"), *rows) == [("nan",), ("five",), (None,)]
    assert shown(top_n(3, "score", "name"), *rows) == [("five",), ("nan",), (None,)]


def test_what_cannot_be_is_refused() -> None:
    with pytest.raises(BadAggregate, match="n=0 rows: write a whole number from 1"):
        top_n(0, "score")
    with pytest.raises(BadAggregate, match="has no order: write for example"):
        top_n(1, [])
    with pytest.raises(BadField, match="top: there is no column 'scor': did you mean 'score'"):
        plan_groups({"top": top_n(1, "-scor")}, SCHEMA)
    with pytest.raises(BadAggregate, match=r"column 'tags' is map<.*which has none: take a field"):
        plan_groups({"top": top_n(1, "score", "tags")}, SCHEMA)
    with pytest.raises(BadAggregate, match="ties='dense' in top_n: write one of row_number, rank, dense_rank"):
        top_n(1, "score", ties="dense")
    with pytest.raises(BadField, match="adds a column 'rank', and there is one already: rename it"):
        top_n(1, "score", "rank", ties="rank")


@pytest.mark.parametrize(
    ("ties", "expected"),
    [
        ("row_number", [("a", 1), ("b", 2), ("c", 3)]),
        ("rank", [("a", 1), ("b", 1), ("c", 3), ("d", 3)]),
        ("dense_rank", [("a", 1), ("b", 1), ("c", 2), ("d", 2), ("e", 3)]),
    ],
)
def test_ranks_are_sqls(ties: str, expected: list[tuple[str, int]]) -> None:
    rows = [(9.0, "a", 1), (9.0, "b", 1), (5.0, "c", 1), (5.0, "d", 1), (1.0, "e", 1), (0.0, "f", 1)]
    assert shown(top_n(3, "-score", "name", ties=ties), *rows) == expected
