"""What a join of tables keeps and reads, beside what it says."""

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from headrace.pipelines.keyed.operator import Batch, Changes, State, Times
from headrace.pipelines.operators.tables.form import (
    TIME,
    TIME_TYPE,
    VERSION,
    VERSION_TYPE,
    VERSIONS,
    WEIGHT,
    WEIGHT_TYPE,
)
from headrace.pipelines.operators.tables.joins.operator import TableJoin
from tests.keyed_memory import MemoryRunner

FORM = [(WEIGHT, WEIGHT_TYPE), (VERSION, VERSION_TYPE), (TIME, TIME_TYPE)]
ORDER = pa.struct([("id", pa.int64()), ("tags", pa.list_(pa.string())), *FORM])
CUSTOMER = pa.struct([("name", pa.string()), *FORM])
SCHEMA = pa.schema([("customer", pa.int64()), ("left", ORDER), ("right", CUSTOMER)])


class Watched(TableJoin):
    """Notes which tables are read."""

    reads: tuple[list[str], ...] = ([],)

    def on_rows(self, batch: Batch, state: State, times: Times) -> Changes:
        class Noting:
            def read(self, table: str, *more: Any) -> Any:
                Watched.reads[0].append(table)
                return state.read(table, *more)

            timers = state.timers

        return super().on_rows(batch, Noting(), times)


def made(how: str = "inner", kind: type[TableJoin] = TableJoin) -> MemoryRunner:
    return MemoryRunner(kind(ORDER, CUSTOMER, how == "left", False), by=["customer"], schema=SCHEMA)


def version(table: str, key: int, offset: int | None) -> dict[str, Any]:
    return {"table": table, "key": str(key), "offset": offset, "lsn": None}


def order(key: int, customer: int | None, tag: str, weight: int, offset: int | None = 0) -> dict[str, Any]:
    row = {"id": key, "tags": [tag], WEIGHT: weight, VERSION: version("orders", key, offset), TIME: 1_000_000 * key}
    return {"customer": customer, "left": row, "right": None}


def customer(key: int, name: str, weight: int, offset: int = 0) -> dict[str, Any]:
    row = {"name": name, WEIGHT: weight, VERSION: version("customers", key, offset), TIME: 3_000_000}
    return {"customer": key, "left": None, "right": row}


def told(rows: pa.Table) -> list[tuple[Any, ...]]:
    return sorted((row["id"], row["tags"][0], row["name"], row[WEIGHT]) for row in rows.to_pylist())


def test_a_row_carries_the_versions_of_both_and_the_later_time() -> None:
    runner = made()
    found = runner.batch([order(1, 7, "a", 1, offset=4), customer(7, "Ann", 1, offset=9)]).to_pylist()
    assert found[0][VERSIONS] == [version("orders", 1, 4), version("customers", 7, 9)]
    assert found[0][TIME].timestamp() == 3
    gone = runner.batch([order(1, 7, "a", -1, offset=None)]).to_pylist()
    assert gone == [found[0] | {WEIGHT: -1}]


def test_a_null_key_matches_nothing_and_an_outer_join_keeps_its_row() -> None:
    nobody = customer(0, "nobody", 1) | {"customer": None}
    assert not made().batch([order(1, None, "a", 1), nobody])
    runner = made("left")
    assert told(runner.batch([order(1, None, "a", 1), nobody])) == [(1, "a", None, 1)]
    assert not runner.state("left")
    assert told(runner.batch([order(1, None, "a", -1)])) == [(1, "a", None, -1)]


def test_a_pair_that_changes_on_both_sides_is_told_once() -> None:
    runner = made()
    runner.batch([order(1, 7, "a", 1), customer(7, "Ann", 1)])
    both = [order(1, 7, "a", -1), order(1, 7, "b", 1, 1), customer(7, "Ann", -1), customer(7, "Anna", 1, 1)]
    assert told(runner.batch(both)) == [(1, "a", "Ann", -1), (1, "b", "Anna", 1)]


def test_what_is_kept_stays_within_twice_the_rows_that_are_there() -> None:
    runner = made()
    runner.batch([order(key, 7, "0", 1) for key in range(10)])
    for turn in range(60):
        key = turn % 10
        offset = turn // 10
        runner.batch([order(key, 7, str(offset), -1, offset), order(key, 7, str(offset + 1), 1, offset + 1)])
        assert len(runner.state("left")) <= 20
    runner.batch([order(key, 7, "6", -1, 6) for key in range(10)])
    assert not runner.state("left")
    assert not runner.state("totals")


@pytest.mark.parametrize("how", ["inner", "left"])
def test_a_change_does_not_read_the_rows_beside_it(how: str) -> None:
    runner = made(how, Watched)
    runner.batch([customer(7, "Ann", 1), *(order(key, 7, "a", 1) for key in range(100))])
    Watched.reads[0].clear()
    assert told(runner.batch([order(5, 7, "a", -1), order(5, 7, "b", 1, 1)])) == [
        (5, "a", "Ann", -1),
        (5, "b", "Ann", 1),
    ]
    assert Watched.reads[0] == ["totals", "right"]


def test_rows_that_are_equal_but_for_where_they_come_from_are_kept_apart() -> None:
    runner = made()
    one, other = order(1, 7, "a", 1), order(2, 7, "a", 1)
    for row in (one, other):
        row["left"]["id"] = 0
    runner.batch([one, other])
    found = runner.batch([customer(7, "Ann", 1)]).to_pylist()
    assert [row[VERSIONS][0]["key"] for row in found] == ["1", "2"]


def test_a_row_taken_back_before_it_came_is_not_there() -> None:
    runner = made()
    runner.call_rows = 1
    assert not told(runner.batch([customer(7, "Ann", 1)]))
    rows = runner.batch([order(1, 7, "a", -1, None), order(1, 7, "a", 1, 5)])
    assert np.sum(rows.column(WEIGHT)) == 0
    assert not runner.state("left")
