"""Sliding windows on small inputs: on time, late, corrected."""

from typing import Any

from headrace.pipelines.operators import aggregates as agg
from headrace.pipelines.operators.stragglers import Stragglers, correct, drop, side_output
from headrace.pipelines.operators.windows.results import Closing
from headrace.pipelines.operators.windows.sliding import SlidingRows
from tests.unit.pipelines.operators.window_runs import SCHEMA, SECOND, Stream, aside


def sliding(size: int, choice: Stragglers | None = None, **closing: int) -> Stream:
    ends = Closing(**{name: value * SECOND for name, value in closing.items()})
    aggregates = {"n": agg.count(), "total": agg.sum("x")}
    return Stream(SlidingRows("t", size * SECOND, ("x",), aggregates, choice or drop(), ends, SCHEMA))


def answers(out: list[dict[str, Any]], key: str = "a") -> list[tuple[Any, ...]]:
    """A key's results as end, own number, sum, revision; of what is taken back, the revision with a minus."""
    return [
        (row["window_end"], row["x"], row["total"], -row["revision"] if row["retracted"] else row["revision"])
        for row in out
        if row["_aside"] is None and row["k"] == key
    ]


def test_each_row_is_answered_once_when_the_watermark_has_reached_it() -> None:
    stream = sliding(10)
    assert stream.batch(("a", 12, 4), ("a", 2, 1), ("a", 2, 2)) == []
    assert stream.batch(("a", 5, 8), watermark=1) == []
    out = stream.batch(watermark=5)
    assert [(row["window_end"], row["x"], row["n"], row["total"]) for row in out] == [
        (2, 1, 2, 3), (2, 2, 2, 3), (5, 8, 3, 11),
    ]  # fmt: skip
    assert [row["total"] for row in stream.batch(watermark=50)] == [15]
    assert stream.runner.state("buffer") == []


def test_a_late_row_is_answered_and_the_rows_after_it_are_told_again() -> None:
    stream = sliding(10, correct("20 seconds"))
    stream.batch(("a", 1, 1), ("a", 9, 2), ("a", 20, 4), ("b", 9, 100))
    first = stream.batch(watermark=21)
    assert answers(first) == [(1, 1, 1, 1), (9, 2, 3, 1), (20, 4, 4, 1)]
    assert answers(first, "b") == [(9, 100, 100, 1)]
    assert answers(stream.batch(("a", 5, 8))) == [(9, 2, 3, -1), (5, 8, 9, 1), (9, 2, 11, 2)]
    assert answers(stream.batch(("a", 10, 16), watermark=25)) == [(20, 4, 4, -1), (10, 16, 27, 1), (20, 4, 20, 2)]
    assert answers(stream.batch(("a", 9, 32))) == [
        (9, 2, 11, -2), (10, 16, 27, -1), (9, 2, 43, 3), (9, 32, 43, 1), (10, 16, 59, 2),
    ]  # fmt: skip


def test_what_is_later_than_allowed_is_counted_and_nothing_is_kept_for_it() -> None:
    stream = sliding(10, correct("20 seconds"))
    stream.batch(("a", 1, 1), ("a", 9, 2), watermark=15)
    assert aside(stream.batch(("a", 2, 1), watermark=22)) == {"late": 1}
    assert answers(stream.batch(("a", 3, 1))) == [(9, 2, 3, -1), (3, 1, 2, 1), (9, 2, 4, 2)]
    assert stream.batch(watermark=40) == []
    assert [stream.runner.state(name) for name in ("buffer", "told")] == [[], []]


def test_what_is_later_than_allowed_can_be_handed_on() -> None:
    stream = sliding(10, correct("5 seconds", then=side_output()))
    stream.batch(("a", 1, 1), watermark=15)
    (late,) = stream.batch(("a", 9, 7))
    assert (late["_aside"]["row"]["x"], late["_aside"]["lateness_ms"]) == (7, 6000)


def test_the_wall_clock_answers_too() -> None:
    stream = sliding(10, correct("20 seconds"), grace_us=30)
    assert stream.batch(("a", 1, 1), watermark=0, wall=5) == []
    assert answers(stream.batch(wall=31)) == [(1, 1, 1, 1)]
    assert answers(stream.batch(("a", 1, 2), wall=32)) == [(1, 1, 1, -1), (1, 1, 3, 2), (1, 2, 3, 1)]
