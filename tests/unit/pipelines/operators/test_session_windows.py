"""Sessions on small inputs."""

from headrace.pipelines.operators import aggregates as agg
from headrace.pipelines.operators.stragglers import Stragglers, correct, drop
from headrace.pipelines.operators.windows.results import Closing
from headrace.pipelines.operators.windows.sessions import SessionWindows
from tests.unit.pipelines.operators.window_runs import SCHEMA, SECOND, Stream, aside, told


def sessions(
    gap: int, maximum: int | None = None, choice: Stragglers | None = None, early: int | None = None
) -> Stream:
    closing = Closing(early_us=early and early * SECOND)
    most = None if maximum is None else maximum * SECOND
    aggregates = {"n": agg.count(), "total": agg.sum("x")}
    return Stream(SessionWindows("t", gap * SECOND, most, aggregates, choice or drop(), closing, SCHEMA))


def test_a_row_in_between_joins_two_sessions() -> None:
    stream = sessions(5)
    stream.batch(("a", 0, 1), ("a", 10, 2), ("a", 30, 4), ("b", 7, 9))
    stream.batch(("a", 5, 8))
    out = stream.batch(watermark=20)
    assert told(out, "window_end", "n", "total") == [("a", 0, 15, 3, 11), ("b", 7, 12, 1, 9)]
    assert told(stream.batch(watermark=35), "window_end", "total") == [("a", 30, 35, 4)]


def test_a_maximum_cuts() -> None:
    stream = sessions(5, 12)
    stream.batch(*(("a", second, 1) for second in (0, 4, 8, 12, 16, 30)))
    out = stream.batch(watermark=100)
    assert told(out, "window_end", "n") == [("a", 0, 12, 3), ("a", 12, 21, 2), ("a", 30, 35, 1)]


def test_late_and_timeless_rows_are_counted() -> None:
    stream = sessions(5)
    assert aside(stream.batch(("a", 4, 1), ("a", 6, 1), ("a", None, 1), watermark=10)) == {"late": 1, "no time": 1}
    assert told(stream.batch(watermark=50), "n") == [("a", 6, 1)]


def test_a_late_row_joins_what_was_told() -> None:
    stream = sessions(5, choice=correct("1 minute"))
    stream.batch(("a", 0, 1), ("a", 8, 2))
    assert told(stream.batch(watermark=20), "total", "revision", "retracted") == [
        ("a", 0, 1, 1, False),
        ("a", 8, 2, 1, False),
    ]
    out = stream.batch(("a", 4, 4))
    assert told(out, "window_end", "total", "revision", "retracted") == [
        ("a", 0, 5, 1, 1, True), ("a", 0, 13, 7, 2, False), ("a", 8, 13, 2, 1, True),
    ]  # fmt: skip
    assert stream.batch(watermark=30) == []
    stream.batch(watermark=200)
    assert [stream.runner.state(name) for name in ("sessions", "told")] == [[], []]


def test_early_results_of_a_session_are_taken_back() -> None:
    stream = sessions(5, early=1)
    stream.batch(("a", 0, 1), wall=10)
    assert told(stream.batch(wall=11), "window_end", "revision", "retracted", "final") == [("a", 0, 5, 1, False, False)]
    stream.batch(("a", 3, 1), wall=12)
    out = stream.batch(wall=13)
    assert told(out, "window_end", "revision", "retracted") == [("a", 0, 5, 1, True), ("a", 0, 8, 2, False)]
    out = stream.batch(watermark=8)
    assert told(out, "window_end", "revision", "retracted", "final") == [
        ("a", 0, 8, 2, True, False), ("a", 0, 8, 3, False, True),
    ]  # fmt: skip
