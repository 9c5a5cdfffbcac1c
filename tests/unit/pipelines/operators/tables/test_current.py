"""The current row of a key: which record is the latest, and what of it is told."""

from typing import Any

import pyarrow as pa
import pytest

from headrace.pipelines.operators.tables.current import CurrentRows
from headrace.pipelines.operators.tables.form import TIME, TIME_TYPE, VERSION, VERSION_TYPE, WEIGHT
from tests.keyed_memory import MemoryRunner

ROW = pa.struct([("name", pa.string()), ("more", pa.struct([("n", pa.int32())]))])
SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("row", ROW),
        ("gone", pa.bool_()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        (VERSION, VERSION_TYPE),
        (TIME, TIME_TYPE),
    ]
)


@pytest.fixture
def runner() -> MemoryRunner:
    return MemoryRunner(CurrentRows(ROW), by=["id"], schema=SCHEMA)


def record(name: str | None, offset: int, partition: int = 0, second: int | None = None) -> dict[str, Any]:
    return {
        "id": 1,
        "row": None if name is None else {"name": name, "more": {"n": 1}},
        "gone": name is None,
        "partition": partition,
        "offset": offset,
        VERSION: {"table": "t", "key": "1", "offset": offset, "lsn": str(offset)},
        TIME: 1_000_000 * (offset if second is None else second),
    }


def told(rows: pa.Table) -> list[tuple[Any, ...]]:
    return [(row["name"], row[WEIGHT], row[VERSION]["offset"], row[TIME].second) for row in rows.to_pylist()]


def test_an_update_takes_back_what_was_told_as_it_was_told(runner: MemoryRunner) -> None:
    assert told(runner.batch([record("a", 0)])) == [("a", 1, 0, 0)]
    assert told(runner.batch([record("c", 2), record("b", 1)])) == [("a", -1, 0, 0), ("c", 1, 2, 2)]
    assert told(runner.batch([record(None, 3), record(None, 4)])) == [("c", -1, 2, 2)]
    assert not runner.state("current")
    assert not runner.batch([record(None, 5)])


def test_a_record_that_changes_nothing_tells_nothing_and_is_remembered(runner: MemoryRunner) -> None:
    runner.batch([record("a", 0)])
    assert not runner.batch([record("b", 1), record("a", 2)])
    assert not runner.batch([record("b", 1)]), "it is older than what was seen"
    assert told(runner.batch([record("b", 3)])) == [("a", -1, 0, 0), ("b", 1, 3, 3)]


def test_a_record_that_comes_again_tells_nothing(runner: MemoryRunner) -> None:
    runner.batch([record("a", 0)])
    runner.batch([record("b", 1)])
    assert not runner.batch([record("b", 1)])
    assert not runner.batch([record("a", 0), record(None, 0)])


def test_a_key_that_came_to_another_partition_goes_on(runner: MemoryRunner) -> None:
    runner.batch([record("a", 100)])
    # Partitions were added: offsets begin anew, and times tell what came later.
    rows = runner.batch([record("c", 0, partition=3, second=7), record("b", 101, second=6)])
    assert told(rows)[1] == ("c", 1, 0, 7)
    assert told(runner.batch([record("d", 1, partition=3)]))[1][:2] == ("d", 1)
