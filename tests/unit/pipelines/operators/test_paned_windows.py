"""Tumbling and hopping windows on small inputs: late, duplicate, out of order, null, early, corrected."""

from typing import Any

from headrace.pipelines.operators import aggregates as agg
from headrace.pipelines.operators.stragglers import Stragglers, correct, drop, side_output
from headrace.pipelines.operators.windows.panes import Hops, PanedWindows
from headrace.pipelines.operators.windows.results import Closing
from tests.unit.pipelines.operators.window_runs import SCHEMA, SECOND, Stream, aside, told

AGGREGATES = {"n": agg.count(), "total": agg.sum("x")}


def windows(size: int, slide: int | None = None, choice: Stragglers | None = None, **closing: int) -> Stream:
    hops = Hops(size * SECOND, (slide or size) * SECOND)
    ends = Closing(**{name: value * SECOND for name, value in closing.items()})
    return Stream(PanedWindows("t", hops, AGGREGATES, choice or drop(), ends, SCHEMA))


def test_out_of_order_and_duplicate_rows_are_in_their_windows_and_results_come_once() -> None:
    stream = windows(10)
    assert stream.batch(("a", 12, 1), ("a", 3, 2), ("b", 3, 5)) == []
    assert stream.batch(("a", 3, 2), ("a", 9, None), watermark=2) == []
    assert told(stream.batch(watermark=10), "window_end", "n", "total") == [("a", 0, 10, 3, 4), ("b", 0, 10, 1, 5)]
    assert told(stream.batch(watermark=25), "n", "total") == [("a", 10, 1, 1)]
    assert stream.batch(watermark=100) == []


def test_a_late_row_is_counted_and_left_out() -> None:
    stream = windows(10)
    stream.batch(("a", 1, 1))
    stream.batch(watermark=10)
    out = stream.batch(("a", 2, 100), ("a", 9, 100), ("a", 10, 7))
    assert aside(out) == {"late": 2}
    assert told(stream.batch(watermark=20), "n", "total") == [("a", 10, 1, 7)]


def test_a_row_without_time_is_counted() -> None:
    stream = windows(10)
    assert aside(stream.batch(("a", None, 1), ("a", 1, 1))) == {"no time": 1}


def test_late_rows_are_handed_on_with_window_and_lateness() -> None:
    stream = windows(10, choice=side_output())
    stream.batch(("a", 1, 1), watermark=13)
    (late,) = stream.batch(("a", 2, 100))
    assert late["_aside"] | {"row": None, "window_start": None, "window_end": None} == {
        "reason": "late", "rows": 1, "lateness_ms": 3000, "row": None, "window_start": None, "window_end": None,
    }  # fmt: skip
    assert late["_aside"]["row"]["x"] == 100
    assert (late["_aside"]["window_end"] - late["_aside"]["window_start"]).total_seconds() == 10
    (timeless,) = stream.batch(("a", None, 5))
    assert timeless["_aside"]["reason"] == "no time"
    assert timeless["_aside"]["lateness_ms"] is None


def test_hopping_windows_overlap() -> None:
    stream = windows(10, 4)
    stream.batch(("a", 9, 1), ("a", 4, 2))
    out = stream.batch(watermark=100)
    assert told(out, "n", "total") == [("a", -4, 1, 2), ("a", 0, 2, 3), ("a", 4, 2, 3), ("a", 8, 1, 1)]


def test_a_row_may_be_late_for_some_of_its_windows() -> None:
    stream = windows(10, 5)
    stream.batch(("a", 6, 1), watermark=10)
    out = stream.batch(("a", 7, 10))
    assert aside(out) == {"late": 1}
    assert told(stream.batch(watermark=50), "total") == [("a", 5, 11)]


def test_a_correction_takes_back_and_tells_again() -> None:
    stream = windows(10, choice=correct("20 seconds"))
    stream.batch(("a", 1, 1))
    (first,) = stream.batch(watermark=10)
    assert (first["revision"], first["retracted"], first["total"]) == (1, False, 1)
    back, again = stream.batch(("a", 2, 5), watermark=15)
    assert (back["revision"], back["retracted"], back["total"]) == (1, True, 1)
    assert (again["revision"], again["retracted"], again["total"], again["n"]) == (2, False, 6, 2)
    (fresh,) = stream.batch(("b", 3, 7), watermark=29)
    assert (fresh["k"], fresh["revision"], fresh["retracted"]) == ("b", 1, False)
    assert aside(stream.batch(("a", 2, 5), watermark=30)) == {"late": 1}
    assert [stream.runner.state(name) for name in ("panes", "told")] == [[], []]


def test_early_results_are_told_at_most_so_often_and_then_a_final_one() -> None:
    stream = windows(10, early_us=5)
    assert stream.batch(("a", 1, 1), wall=100) == []
    assert stream.batch(("a", 2, 1), wall=104) == []
    (early,) = stream.batch(wall=105)
    assert (early["n"], early["revision"], early["final"]) == (2, 1, False)
    assert stream.batch(wall=120) == []
    (final,) = stream.batch(watermark=10, wall=121)
    assert (final["n"], final["revision"], final["final"]) == (2, 2, True)
    assert stream.batch(watermark=50, wall=200) == []


def test_the_wall_clock_ends_a_window_whose_watermark_stands_still() -> None:
    stream = windows(10, grace_us=30)
    assert stream.batch(("a", 1, 1), watermark=0, wall=5) == []
    assert stream.batch(wall=39) == []
    assert told(stream.batch(wall=40), "n") == [("a", 0, 1)]
    assert aside(stream.batch(("a", 2, 1))) == {"late": 1}
    assert stream.batch(watermark=100, wall=1000) == []


def test_times_before_1970() -> None:
    stream = windows(10, 5)
    stream.batch(("a", -1, 1))
    assert told(stream.batch(watermark=0)) == [("a", -10)]
    assert told(stream.batch(watermark=5)) == [("a", -5)]


def test_windows_can_be_shifted() -> None:
    operator = PanedWindows("t", Hops(10 * SECOND, 10 * SECOND, 3 * SECOND), AGGREGATES, drop(), Closing(), SCHEMA)
    stream: Any = Stream(operator)
    stream.batch(("a", 2, 1), ("a", 3, 1))
    assert told(stream.batch(watermark=50)) == [("a", -7), ("a", 3)]
