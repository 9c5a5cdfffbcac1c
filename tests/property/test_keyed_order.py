"""Rows that wait for the watermark come once and in their order, however they came, were cut, and were restarted."""

from collections import defaultdict
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.pipelines.keyed.operator import (
    BadOperator,
    Batch,
    Changes,
    Clock,
    Due,
    Keyed,
    Ordered,
    Plan,
    State,
    Timers,
    Times,
    Values,
)
from headrace.pipelines.operators.times import TIMESTAMP
from tests.keyed_memory import MemoryRunner
from tests.property.storage_model import examples

INPUT = pa.schema(
    [("k", pa.string()), ("t", TIMESTAMP), ("offset", pa.int64()), ("all", pa.bool_()), ("id", pa.int64())]
)
OUT = pa.schema([("what", pa.string()), ("id", pa.int64()), ("n", pa.int64())])
SUM = pa.schema([("n", pa.int64())])


@dataclass(frozen=True)
class InOrder:
    """Emits what it is given, with the numbers of rows; counts rows of all keys in a common table."""

    clock: Clock = Clock.EVENT

    def plan(self, keys: pa.Schema, rows: pa.Schema) -> Plan:
        return Plan(OUT, (Values("last", SUM),), self.clock, "all", ordered=Ordered("t", ("offset",)),
                    common=(Values("sum", SUM),))  # fmt: skip

    def on_arrival(self, batch: Batch, state: State, times: Times) -> Changes:
        return Changes(emit=emitted(batch.key, "at once", batch.rows["id"], np.full(len(batch), batch.keys.num_rows)))

    def on_rows(self, batch: Batch, state: State, times: Times) -> Changes:
        assert (np.diff(batch.key) >= 0).all()
        numbers = batch.number + np.arange(len(batch))
        before = state.read("sum").rows["n"].to_pylist()
        count = pa.RecordBatch.from_pydict({"n": [sum(before) + len(batch)]}, schema=SUM)
        last = np.flatnonzero(np.diff(batch.key, append=-1))
        ids = pa.RecordBatch.from_arrays([batch.rows["id"].take(pa.array(last))], schema=SUM)
        at = np.full(batch.keys.num_rows, times.watermark_us)
        return Changes(
            emit=emitted(batch.key, "row", batch.rows["id"], numbers),
            put={"sum": Keyed(np.zeros(1, np.int64), count), "last": Keyed(batch.key[last], ids)},
            event_timers=Timers(np.arange(batch.keys.num_rows), at),
        )

    def on_timers(self, due: Due, state: State, times: Times) -> Changes:
        held = state.read("last")
        return Changes(emit=emitted(held.key, "timer", held.rows["n"], np.zeros(len(held))))


def emitted(key: Any, what: str, ids: pa.Array, numbers: Any) -> Keyed:
    columns = [pa.repeat(pa.scalar(what), len(key)), ids, pa.array(np.asarray(numbers, np.int64))]
    return Keyed(key, pa.RecordBatch.from_arrays(columns, schema=OUT))


row = st.fixed_dictionaries(
    {
        "k": st.sampled_from(["a", "b", "c", None]),
        "t": st.none() | st.integers(0, 30),
        "offset": st.none() | st.integers(0, 3),
        "all": st.sampled_from([None, False, False, False, False, True]),
    }
)
step = st.tuples(st.lists(row, max_size=12), st.integers(0, 12), st.booleans())


def order(one: dict[str, Any]) -> tuple[int, int, int]:
    return one["t"], -1 if one["offset"] is None else one["offset"], one["id"]


@examples(150)
@given(st.lists(step, min_size=1, max_size=8), st.integers(1, 3), st.sampled_from([None, 1, 4]), st.booleans())
def test_rows_come_once_and_in_order(steps: list[Any], buckets: int, call_rows: int | None, model: bool) -> None:
    runner = MemoryRunner(InOrder(), by=["k"], schema=INPUT, buckets=buckets, call_rows=call_rows, model=model)
    watermark, count = 0, 0
    waiting: list[dict[str, Any]] = []
    numbers: dict[Any, list[int]] = defaultdict(list)
    for given_rows, ahead, restarted in steps:
        rows = [{**one, "id": count + place} for place, one in enumerate(given_rows)]
        count += len(rows)
        if restarted:
            runner.restart()
        watermark += ahead
        at_once = [one for one in rows if one["all"] or one["t"] is None or one["t"] <= watermark]
        waiting += [one for one in rows if one not in at_once]
        found = runner.batch(rows, watermark_us=watermark).to_pylist()
        # What is for all keys comes to every bucket.
        expected = sorted(one["id"] for one in at_once for _ in range(buckets if one["all"] else 1))
        assert sorted(one["id"] for one in found if one["what"] == "at once") == expected
        due = [one for one in waiting if one["t"] <= watermark]
        waiting = [one for one in waiting if one["t"] > watermark]
        for key in {one["k"] for one in [*due, *found]}:
            mine = [one["id"] for one in sorted((one for one in due if one["k"] == key), key=order)]
            given_now = [one for one in found if one["k"] == key and one["what"] == "row"]
            assert [one["id"] for one in given_now] == mine
            numbers[key] += [one["n"] for one in given_now]
            timers = [one["id"] for one in found if one["k"] == key and one["what"] == "timer"]
            assert timers == mine[-1:]  # set in the same micro-batch, and due in it
    assert all(each == sorted(set(each)) for each in numbers.values())
    released = sum(map(len, numbers.values()))
    assert sum(one["n"] for _, one in runner.state("sum")) == released


def test_rows_in_order_need_the_event_clock() -> None:
    runner = MemoryRunner(InOrder(Clock.NONE), by=["k"], schema=INPUT)
    with pytest.raises(BadOperator, match="has to be EVENT"):
        runner.batch([{"k": "a", "t": 1, "offset": 0, "all": False}])
