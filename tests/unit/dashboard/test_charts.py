"""Geometry of charts and timelines."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.dashboard.charts import (
    BOTTOM,
    HEIGHT,
    LEFT,
    RIGHT,
    TABLE_ROWS,
    TOP,
    WIDTH,
    chart,
    round_up,
    scale_top,
    sparkline,
    timeline,
)
from headrace.dashboard.history import Point
from headrace.dashboard.reports import BatchReport
from tests.unit.dashboard.dashboard_cases import NOW

values = st.lists(st.floats(0, 1e15, allow_nan=False), min_size=2, max_size=50)


def series(numbers):
    return tuple(Point(NOW + index * 1000, number) for index, number in enumerate(numbers))


@pytest.mark.parametrize(
    ("value", "rounded"), [(0, 1), (1, 1), (1.1, 2), (21, 25), (260, 500), (999, 1000), (2e6, 2e6)]
)
def test_a_scale_ends_at_a_round_number(value, rounded):
    assert round_up(value) == pytest.approx(rounded)


@given(values)
def test_every_point_is_inside_the_drawing(numbers):
    drawn = chart("Throughput", "records/s", [("written", series(numbers))])
    points = [float(number) for number in re.findall(r"[\d.]+", drawn.lines[0].path)]
    assert all(LEFT <= x <= WIDTH - RIGHT for x in points[::2])
    assert all(TOP <= y <= HEIGHT - BOTTOM for y in points[1::2])
    assert all(LEFT <= spike.x <= WIDTH - RIGHT for spike in drawn.spikes)
    assert len(drawn.rows) <= TABLE_ROWS


@given(values)
def test_marks_of_the_scale_rise_from_zero(numbers):
    drawn = chart("Lag", "records", [("billing", series(numbers))])
    assert drawn.y_ticks[0].label == "0"
    heights = [tick.at for tick in drawn.y_ticks]
    assert heights == sorted(heights, reverse=True)


def test_the_table_and_the_summary_tell_what_the_lines_show():
    drawn = chart("Throughput", "records/s", [("written", series([5, 10])), ("read", series([1, 2])), ("none", ())])
    assert [line.name for line in drawn.lines] == ["written", "read"]
    assert [row.values for row in drawn.rows] == [("10", "2"), ("5", "1")]
    assert "written 10, read 2" in drawn.summary


def test_one_spike_does_not_flatten_the_rest():
    drawn = chart("Throughput", "records/s", [("written", series([100_000] + [50, 60, 55, 58] * 10))])
    heights = [float(pair.split()[1]) for pair in drawn.lines[0].path[1:].split(" L")]
    assert heights[0] == TOP
    assert max(heights[1:]) < TOP + (HEIGHT - TOP - BOTTOM) * 0.7, "the others use the room there is"
    assert [spike.label for spike in drawn.spikes] == ["100 k"]
    assert "above the scale: 100 k" in drawn.summary
    assert drawn.rows[-1].values == ("100 k",), "the table has the number itself"


def test_what_is_high_often_sets_the_scale():
    drawn = chart("Throughput", "records/s", [("written", series([10, 900, 10, 800, 10, 850] * 5))])
    assert drawn.spikes == ()
    assert scale_top([0, 0, 0, 0, 0, 0, 0, 0, 0, 50]) == 50, "next to nothing, a little is much"


def test_a_line_never_goes_back_in_time():
    late_first = (Point(NOW + 2000, 1), Point(NOW, 2), Point(NOW + 1000, 3))
    drawn = chart("State", "rows", [("rows kept", late_first)])
    across = [float(pair.split()[0]) for pair in drawn.lines[0].path[1:].split(" L")]
    assert across == sorted(across)


def test_one_point_is_no_line():
    assert chart("Lag", "records", [("billing", series([1]))]).is_empty
    assert sparkline(series([1])) == ""
    assert sparkline(series([1, 2])).startswith("M1.0 ")


def report(batch, took_ms, rows=10):
    return BatchReport("revenue", "out", batch, NOW + batch, None, rows, 0, 0, took_ms, None, 0, 0, 0, None, None)


def test_a_timeline_marks_what_is_slow_and_what_is_idle():
    drawn = timeline([report(1, 100), report(2, 110), report(3, 400), report(4, 90, rows=0)])
    assert [(bar.is_slow, bar.is_idle) for bar in drawn.bars] == [
        (False, False), (False, False), (True, False), (False, True),
    ]  # fmt: skip
    assert drawn.bars[2].label == "batch 3: 10 rows in 400 ms"
    assert timeline([]) is None
