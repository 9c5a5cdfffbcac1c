"""When something is done again."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.delivery.recurrence import Cron, Interval, parse_recurrence


def ms(text: str) -> int:
    return int(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp() * 1000)


@pytest.mark.parametrize(
    ("line", "after", "expected"),
    [
        ("* * * * *", "2026-11-16T20:00:30", "2026-11-16T20:01"),
        ("*/15 * * * *", "2026-11-16T20:45", "2026-11-16T21:00"),
        ("0 9 * * mon-fri", "2026-11-20T09:00", "2026-11-23T09:00"),
        ("30 6 1,15 * *", "2026-11-16T00:00", "2026-12-01T06:30"),
        ("0 0 29 feb *", "2096-03-01T00:00", "2104-02-29T00:00"),
        ("0 0 29 2 */7", "2026-11-16T00:00", "2032-02-29T00:00"),  # which are the Sundays
        ("0 0 29 2 */7", "2088-03-01T00:00", "2128-02-29T00:00"),
        ("0 0 13 * fri", "2026-11-16T00:00", "2026-11-20T00:00"),  # either of the days
        ("0 0 */2 * 1", "2026-11-16T00:00", "2026-11-23T00:00"),  # both: one of them begins with a star
        ("5/20 23 31 12 *", "2026-12-31T23:26", "2026-12-31T23:45"),
        ("0 0 * * 7", "2026-11-16T00:00", "2026-11-22T00:00"),
    ],
)
def test_the_next_time_of_a_cron_line(line: str, after: str, expected: str):
    assert parse_recurrence(line).next_after(ms(after)) == ms(expected)


@pytest.mark.parametrize(
    "line",
    [
        "",
        "1x",
        "5",
        "60 * * * *",
        "* 24 * * *",
        "* * 0 * *",
        "* * * 13 *",
        "5-1 * * * *",
        "*/0 * * * *",
        "* * *",
        "² * * * *",
        "* * 31 feb *",
        "99999999999999s",
        "- * * * *",
        "1,,2 * * * *",
    ],
)
def test_what_is_neither_an_interval_nor_a_cron_line_is_refused(line: str):
    with pytest.raises(ValueError):
        parse_recurrence(line)


FIELDS = st.tuples(
    st.sampled_from(["*", "0", "*/7", "3,40-45", "59"]),
    st.sampled_from(["*", "0", "*/5", "9-17", "23"]),
    st.sampled_from(["*", "1", "31", "*/9", "10-12"]),
    st.sampled_from(["*", "2", "jan,dec", "6-8"]),
    st.sampled_from(["*", "0", "1-5", "sat,sun", "7"]),
)


@given(FIELDS, st.integers(0, 4_000_000_000_000))
def test_nothing_lies_between_a_time_and_the_next(fields: tuple[str, ...], after_ms: int):
    try:
        cron = parse_recurrence(" ".join(fields))
    except ValueError:
        assert fields[2] == "31"  # of February
        return
    assert isinstance(cron, Cron)
    next_ms = cron.next_after(after_ms)
    assert next_ms > after_ms
    assert next_ms % 60_000 == 0
    assert is_meant(cron, next_ms)
    for minute in range(1, 200):  # back from it, and on from the time
        earlier = next_ms - minute * 60_000
        assert earlier <= after_ms or not is_meant(cron, earlier)
        later = (after_ms // 60_000 + minute) * 60_000
        assert later >= next_ms or not is_meant(cron, later)


def is_meant(cron: Cron, time_ms: int) -> bool:
    moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=time_ms)
    date, weekday = moment.day in cron.days, moment.isoweekday() % 7 in cron.weekdays
    day = date or weekday if cron.either_day else date and weekday
    return moment.minute in cron.minutes and moment.hour in cron.hours and moment.month in cron.months and day


@given(st.integers(1, 10**7), st.integers(0, 10**12), st.integers(-(10**6), 10**9))
def test_missed_intervals_are_not_made_up_for_and_the_beat_is_kept(seconds: int, due_ms: int, late_ms: int):
    interval = Interval(seconds * 1000)
    next_ms = interval.next_due(due_ms, due_ms + late_ms)
    assert (next_ms - due_ms) % interval.every_ms == 0
    assert next_ms > max(due_ms, due_ms + late_ms)
    assert next_ms - interval.every_ms <= max(due_ms, due_ms + late_ms)
