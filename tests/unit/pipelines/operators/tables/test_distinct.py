"""Different rows and different values, each counted once however often it is there."""

from typing import Any

import pyarrow as pa

from headrace.pipelines.operators.tables.form import TIME, TIME_TYPE, WEIGHT, WEIGHT_TYPE
from headrace.pipelines.operators.tables.groups.operators import GROUPS, REVISION, ROWS, DistinctMarks, GroupedRows
from tests.keyed_memory import MemoryRunner

SCHEMA = pa.schema(
    [("g", pa.string()), ("v", pa.float64()), ("other", pa.int64()), (WEIGHT, WEIGHT_TYPE), (TIME, TIME_TYPE)]
)


def change(v: float | None, weight: int) -> dict[str, Any]:
    return {"g": "a", "v": v, "other": 7, WEIGHT: weight, TIME: None}


def test_a_row_appears_with_the_first_and_goes_with_the_last() -> None:
    run = MemoryRunner(GroupedRows({}), by=["g", "v"], schema=SCHEMA)
    told = [
        [(row["v"], row[WEIGHT], row[REVISION]) for row in run.batch(rows).to_pylist()]
        for rows in (
            [change(1.0, 1), change(1.0, 1), change(None, 1)],
            [change(1.0, -1)],
            [change(1.0, -1), change(None, -1)],
            [change(1.0, 1)],
        )
    ]
    assert [sorted(rows, key=repr) for rows in told] == [
        [(1.0, 1, 1), (None, 1, 1)],
        [],
        [(1.0, -1, 1), (None, -1, 1)],
        [(1.0, 1, 1)],
    ]
    run.batch([change(1.0, -1)])
    assert run.state(GROUPS) == []


def test_rows_are_passed_on_and_values_that_come_or_go_are_marked() -> None:
    run = MemoryRunner(DistinctMarks("v", "mark", SCHEMA), by=["g", "v"], schema=SCHEMA)
    nan = float("nan")

    def batch(*rows: dict[str, Any]) -> list[tuple[Any, ...]]:
        found = [(row["v"], row["other"], row[WEIGHT], row["mark"]) for row in run.batch(list(rows)).to_pylist()]
        return sorted(found, key=repr)

    assert batch(change(0.0, 1), change(-0.0, 1)) == [(0.0, 7, 1, None), (0.0, 7, 1, None), (0.0, None, 0, 1)]
    assert batch(change(None, 1)) == [(None, 7, 1, None)]
    assert len(batch(change(nan, 1), change(nan, -1))) == 2
    assert batch(change(0.0, -2)) == [(0.0, 7, -2, None), (0.0, None, 0, -1)]
    assert [row for _, row in run.state(ROWS)] == [{"rows": 1}]  # the null's
