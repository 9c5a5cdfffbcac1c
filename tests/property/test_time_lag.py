"""What operators emit is no further behind the watermark than they declare, however rows come and watermarks move.

An operator behind them counts on it: what it takes for late must have been late before.
"""

from collections.abc import Iterable
from typing import Any

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from headrace.pipelines.operators import aggregates as agg
from headrace.pipelines.operators.joins.interval import IS_LEFT, KINDS, LEFT, RIGHT, IntervalJoin
from headrace.pipelines.operators.joins.interval import TIME as AT
from headrace.pipelines.operators.joins.sides import Bounds
from headrace.pipelines.operators.stragglers import Stragglers
from headrace.pipelines.operators.tables.enrichment.operators import AsOf, Sides
from headrace.pipelines.operators.times import TIMESTAMP
from headrace.pipelines.operators.windows.panes import Hops, PanedWindows
from headrace.pipelines.operators.windows.results import Closing
from headrace.pipelines.operators.windows.sessions import SessionWindows
from headrace.pipelines.operators.windows.sliding import SlidingRows
from tests.keyed_memory import MemoryRunner
from tests.property import test_as_of_join as as_of
from tests.property.storage_model import examples
from tests.unit.pipelines.operators import interval_join_runs as joins

ROWS = pa.schema([("k", pa.string()), ("t", TIMESTAMP), ("x", pa.int64())])
COUNT = {"n": agg.count()}
keys = st.sampled_from("ab")
times = st.integers(0, 40)
batches = st.lists(
    st.tuples(st.lists(st.tuples(keys, times, st.booleans()), max_size=6), st.integers(0, 9)), max_size=9
)
allowances = st.sampled_from([0, 3, 10])


def choice(allowed: int) -> Stragglers:
    return Stragglers(allowed, corrects=allowed > 0)


def emissions(runner: MemoryRunner, given: Iterable[tuple[list[dict[str, Any]], int]]) -> Iterable[tuple[int, Any]]:
    """What comes out of each micro-batch, with the watermark before it, by which rows are judged, as by Spark."""
    before, now = 0, 0
    for rows, moved in [*given, ([], 1000)]:
        before, now = now, now + moved
        for found in (runner.batch(rows, watermark_us=before), runner.batch(watermark_us=now)):
            yield from ((before, row) for row in found.to_pylist() if row["_aside"] is None)


def micros(value: Any) -> int:
    return round(value.timestamp() * 1_000_000)


@examples(150)
@given(batches, allowances, st.sampled_from(["tumbling", "hopping", "sessions", "cut sessions"]))
def test_windows(found: list[Any], allowed: int, kind: str) -> None:
    about = (COUNT, choice(allowed), Closing(), ROWS)
    operator = {
        "tumbling": PanedWindows("t", Hops(7, 7), *about),
        "hopping": PanedWindows("t", Hops(9, 4), *about),
        "sessions": SessionWindows("t", 4, None, *about),
        "cut sessions": SessionWindows("t", 4, 9, *about),
    }[kind]
    given = [([{"k": key, "t": at, "x": at} for key, at, _ in rows], moved) for rows, moved in found]
    for before, row in emissions(MemoryRunner(operator, by=["k"], schema=ROWS), given):
        assert micros(row["window_end"]) - 1 > before - (1 + allowed)


@examples(100)
@given(batches, allowances)
def test_sliding(found: list[Any], allowed: int) -> None:
    operator = SlidingRows("t", 5, (), COUNT, choice(allowed), Closing(), ROWS)
    given = [([{"k": key, "t": at, "x": at} for key, at, _ in rows], moved) for rows, moved in found]
    for before, row in emissions(MemoryRunner(operator, by=["k"], schema=ROWS), given):
        assert micros(row["window_end"]) > before - allowed


@examples(200)
@given(batches, allowances, st.sampled_from(KINDS), st.tuples(st.integers(-9, 9), st.integers(0, 9)))
def test_joins(found: list[Any], allowed: int, how: str, interval: tuple[int, int]) -> None:
    bounds = Bounds(interval[0], interval[0] + interval[1])
    operator = IntervalJoin(how, bounds, choice(allowed), joins.ROW, joins.ROW)
    given = [
        (
            [
                {"k": key, AT: at, IS_LEFT: left, LEFT: {"x": at} if left else None, RIGHT: None if left else {"x": at}}
                for key, at, left in rows
            ],
            moved,
        )
        for rows, moved in found
    ]
    lags = {LEFT: max(bounds.high_us, 0) + allowed, RIGHT: max(-bounds.low_us, 0) + allowed}
    for before, row in emissions(MemoryRunner(operator, by=["k"], schema=joins.SCHEMA), given):
        for side, lag in lags.items():
            assert row.get(side) is None or row[side]["x"] > before - lag


@examples(100)
@given(batches, allowances)
def test_events_as_of(found: list[Any], allowed: int) -> None:
    sides = Sides(as_of.EVENT, as_of.ROW, as_of.VERSION_TYPE, keeps_unmatched=True, stragglers=choice(allowed))
    given = [([as_of.event(at, key, at) for key, at, _ in rows], moved) for rows, moved in found]
    for before, row in emissions(MemoryRunner(AsOf(sides, allowed), by=["k"], schema=as_of.SCHEMA), given):
        assert row["n"] > before - (1 + allowed)
