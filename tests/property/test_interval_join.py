"""Joins of two streams over keyed state equal DuckDB's join of the rows that were not late, however they came."""

from collections import Counter
from collections.abc import Iterator
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.pipelines.operators.joins.interval import KINDS
from headrace.pipelines.operators.stragglers import Stragglers, correct, side_output
from tests.property.storage_model import examples
from tests.unit.pipelines.operators.interval_join_runs import Given, Joined

ON = "l.k = r.k AND r.t BETWEEN l.t + {low} AND l.t + {high}"
QUERIES = {
    "inner": "SELECT l.k, l.x, r.x FROM l JOIN r ON " + ON,
    "left": "SELECT l.k, l.x, r.x FROM l LEFT JOIN r ON " + ON,
    "right": "SELECT r.k, l.x, r.x FROM l RIGHT JOIN r ON " + ON,
    "full": "SELECT coalesce(l.k, r.k), l.x, r.x FROM l FULL JOIN r ON " + ON,
    "semi": "SELECT l.k, l.x FROM l WHERE EXISTS (SELECT 1 FROM r WHERE " + ON + ")",
    "anti": "SELECT l.k, l.x FROM l WHERE NOT EXISTS (SELECT 1 FROM r WHERE " + ON + ")",
}

row = st.tuples(st.sampled_from(["left", "right"]), st.sampled_from(["a", "b", None]), st.none() | st.integers(0, 40))
batches = st.lists(st.tuples(st.lists(row, max_size=8), st.integers(0, 12), st.booleans()), min_size=1, max_size=6)
interval = st.tuples(st.integers(-15, 15), st.integers(-15, 15)).map(sorted)
choices = st.sampled_from([side_output(), correct("6 seconds", then=side_output())])


SHAPE = pa.schema([("side", pa.string()), ("k", pa.string()), ("t", pa.int64()), ("x", pa.int64())])
SIDES = "WITH l AS (SELECT * FROM came WHERE side = 'left'), r AS (SELECT * FROM came WHERE side = 'right') "


@pytest.fixture(scope="module")
def database() -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect() as connection:
        yield connection


def reference(
    database: duckdb.DuckDBPyConnection, how: str, rows: list[Given], low: int, high: int
) -> Counter[tuple[Any, ...]]:
    came = [dict(zip(SHAPE.names, row, strict=True)) for row in rows]
    database.register("came", pa.Table.from_pylist(came, schema=SHAPE))
    found = database.execute(SIDES + QUERIES[how].format(low=low, high=high)).fetchall()
    database.unregister("came")
    return Counter(found)


@examples(60)
@given(st.sampled_from(KINDS), batches, interval, choices, st.integers(1, 3), st.none() | st.integers(1, 3))
def test_the_same_as_a_database(
    database: duckdb.DuckDBPyConnection,
    how: str,
    given_batches: list[tuple[list[tuple[str, str | None, int | None]], int, bool]],
    within: list[int],
    choice: Stragglers,
    buckets: int,
    call_rows: int | None,
) -> None:
    low, high = within
    stream = Joined(how, low, high, choice, buckets=buckets, call_rows=call_rows)
    told: Counter[tuple[Any, ...]] = Counter()
    came: list[Given] = []
    watermark = -100

    def count(answers: list[tuple[Any, ...]]) -> None:
        for answer in answers:
            if choice.corrects:
                told[answer[:-1]] += -1 if answer[-1] else 1
            else:
                told[answer] += 1
        assert min(told.values(), default=0) >= 0

    for rows, ahead, restarted in given_batches:
        new = [(*each, len(came) + number) for number, each in enumerate(rows)]
        came += new
        watermark += ahead if watermark > -100 else 100
        count(stream.batch(*new, watermark=watermark))
        if restarted:
            stream.runner.restart()
    count(stream.batch(watermark=1000))
    set_aside = {(each["row"]["left"] or each["row"]["right"])["x"] for each in stream.aside}
    on_time = [each for each in came if each[3] not in set_aside]
    assert all(each[2] is not None for each in on_time)
    assert +told == reference(database, how, on_time, low, high)
    count(stream.batch(("left", "a", 5000, -1), ("left", "b", 5000, -1), ("left", None, 5000, -1), watermark=2000))
    assert len(stream.runner.state("left")) == 3
