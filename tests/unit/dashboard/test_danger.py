"""Time until data loss: retention against the speed of reading."""

import pytest

from headrace.client.lag import Retention
from headrace.dashboard.alerts import danger_of, pace_of, worst
from headrace.dashboard.history import Point
from tests.unit.dashboard.dashboard_cases import NOW, lag

HOUR = 3_600_000
DAY = 24 * HOUR


def behind(hours, retention_hours=24):
    return lag(next_ms=NOW - hours * HOUR, newest_ms=NOW, retention=Retention(ms=retention_hours * HOUR))


def places(pace, seconds=60):
    return tuple(Point(NOW + at * 1000, NOW - DAY + at * 1000 * pace) for at in range(0, seconds, 5))


@pytest.mark.parametrize(
    ("pace", "hours_left"),
    [(0.0, 14), (0.5, 28), (0.75, 56)],  # ten of twenty-four hours are gone; half the pace of ageing is twice the time
)
def test_the_time_left_stretches_with_the_pace(pace, hours_left):
    danger = danger_of(behind(10), places(pace), NOW)
    assert danger.left_ms == pytest.approx(hours_left * HOUR, rel=0.01)
    assert danger.setting == "retention.ms"


def test_who_reads_as_fast_as_is_written_loses_nothing():
    danger = danger_of(behind(23.9), places(1.0), NOW)
    assert (danger.left_ms, danger.is_near, danger.is_catching_up) == (None, False, True)


def test_it_is_near_when_a_tenth_is_left_but_not_if_the_pace_stretches_it():
    assert danger_of(behind(23), (), NOW).is_near
    assert not danger_of(behind(22), places(0.9), NOW).is_near


def test_nothing_threatens_who_has_read_all_or_what_is_kept_for_ever():
    assert danger_of(lag(committed=100), (), NOW) is None
    assert danger_of(lag(next_ms=NOW - DAY), (), NOW) is None


def test_a_pace_takes_a_while_to_tell():
    assert pace_of(places(1.0)[:1]) is None
    assert pace_of((Point(NOW, 0), Point(NOW + 10, 10_000))) is None


def test_the_first_loss_is_the_worst():
    far, near = danger_of(behind(1), (), NOW), danger_of(behind(20), (), NOW)
    assert worst([far, near]) is near
    assert worst([]) is None
