"""A large value that was not sent again: the row keeps the one it has, and a placeholder is never kept for a value."""

from typing import Any

import pyarrow as pa
import pytest

from headrace.connect.avro.types import MARK_BITS, MARK_CODES
from headrace.pipelines.columns.json import JsonDecoder
from headrace.pipelines.columns.unavailable import is_placeholder, placeholders
from headrace.pipelines.operators.errors import UnknownValue
from headrace.pipelines.operators.tables.current import CurrentRows
from headrace.pipelines.operators.tables.form import TIME, TIME_TYPE, VERSION, VERSION_TYPE, WEIGHT
from tests.keyed_memory import MemoryRunner
from tests.value_columns import rows_of, value_columns

TEXT = "__debezium_unavailable_value"
ROW = pa.struct([("body", pa.string()), ("raw", pa.binary()), ("n", pa.list_(pa.int64())), ("tag", pa.string())])
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
SENT = {"body": "long", "raw": b"bytes", "n": [1, 2]}
LEFT_OUT = {"body": TEXT, "raw": TEXT.encode(), "n": MARK_CODES}


def record(offset: int, values: dict[str, Any] | None, key: int = 1, **more: Any) -> dict[str, Any]:
    return {
        "id": key,
        "row": None if values is None else {**values, **more},
        "gone": values is None,
        "partition": 0,
        "offset": offset,
        VERSION: {"table": "shop.items", "key": "1", "offset": offset, "lsn": str(offset)},
        TIME: 1_000_000 * offset,
    }


@pytest.fixture
def runner() -> MemoryRunner:
    return MemoryRunner(CurrentRows(ROW), by=["id"], schema=SCHEMA)


def told(rows: pa.Table) -> list[tuple[Any, ...]]:
    return [(row["id"], *(row[name] for name in ROW.names), row[WEIGHT]) for row in rows.to_pylist()]


def test_the_value_is_taken_from_what_is_kept(runner: MemoryRunner) -> None:
    runner.batch([record(0, SENT, tag="a")])
    runner.restart()
    values = tuple(SENT.values())
    assert told(runner.batch([record(1, LEFT_OUT, tag="b")])) == [(1, *values, "a", -1), (1, *values, "b", 1)]
    assert not runner.batch([record(2, LEFT_OUT, tag="b")]), "nothing has changed"
    (kept,) = runner.state("current")
    assert TEXT.encode() not in kept[1]["row"]


def test_the_value_is_taken_from_an_earlier_change_of_the_same_call(runner: MemoryRunner) -> None:
    rows = [
        record(3, {**LEFT_OUT, "body": "newer"}, tag="c"),
        record(4, LEFT_OUT, tag="d"),
        record(2, SENT, tag="b"),
        record(9, SENT, key=2, tag="z"),
    ]
    assert sorted(told(runner.batch(rows))) == [
        (1, "newer", b"bytes", [1, 2], "d", 1),
        (2, *SENT.values(), "z", 1),
    ]


def test_a_change_that_comes_again_does_not_bring_its_value_back(runner: MemoryRunner) -> None:
    runner.batch([record(0, SENT, tag="a"), record(1, {**SENT, "body": "newer"}, tag="b")])
    rows = runner.batch([record(0, SENT, tag="a"), record(2, LEFT_OUT, tag="c")])
    assert told(rows)[1][1:] == ("newer", b"bytes", [1, 2], "c", 1)


def test_what_nobody_knows_is_refused(runner: MemoryRunner) -> None:
    words = "offset 5 of partition 0 of shop.items leaves out 'body'.*unavailable = \"reselect\""
    with pytest.raises(UnknownValue, match=words):
        runner.batch([record(5, LEFT_OUT, tag="b")])
    runner = MemoryRunner(CurrentRows(ROW), by=["id"], schema=SCHEMA)
    with pytest.raises(UnknownValue):
        runner.batch([record(4, SENT, tag="a"), record(5, None), record(6, LEFT_OUT, tag="b")])


def test_what_is_not_taken_is_not_refused(runner: MemoryRunner) -> None:
    runner.batch([record(7, SENT, tag="a")])
    assert not runner.batch([record(6, LEFT_OUT, tag="old")])
    assert told(runner.batch([record(8, LEFT_OUT, key=2, tag="x"), record(9, None, key=2)])) == []
    assert told(runner.batch([record(10, LEFT_OUT, key=3, tag="x"), record(11, SENT, key=3, tag="y")]))


@pytest.mark.parametrize(
    ("kind", "mark"),
    [
        (pa.int32(), MARK_CODES),
        (pa.float64(), MARK_CODES),
        (pa.bool_(), MARK_BITS),
        (pa.decimal128(10, 2), MARK_CODES),
        (pa.string(), [TEXT]),
        (pa.binary(), [TEXT.encode()]),
    ],
)
def test_json_has_the_text_in_every_list(kind: pa.DataType, mark: list[Any]) -> None:
    listed = pa.list_(kind)
    decoded = JsonDecoder(pa.schema([("a", listed)])).decode(value_columns([f'{{"a":["{TEXT}"]}}'.encode(), None]))
    assert rows_of(decoded) == [[mark], [None]]
    assert placeholders(listed) == [mark]
    other = pa.array([mark, None, [], mark[:-1], mark], listed).slice(1)
    assert is_placeholder(other).tolist() == [False, False, False, True]
