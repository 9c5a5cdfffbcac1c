"""Times and places in a log, as people write them."""

import contextlib
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.cli.moment import InvalidMoment, parse_start, parse_time, parse_timestamp
from headrace.client.offsets import Start, StartKind

NOW = 1_800_000_000_000


@pytest.mark.parametrize(
    ("text", "ms_ago"),
    [
        ("0s", 0),
        ("250ms", 250),
        ("30s", 30_000),
        ("10m", 600_000),
        ("2h", 7_200_000),
        ("1d", 86_400_000),
        ("1w", 604_800_000),
        ("1.5h", 5_400_000),
        (" 10 m ago ", 600_000),
    ],
)
def test_how_long_ago(text, ms_ago):
    assert parse_time(text, NOW) == NOW - ms_ago


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("1970-01-01", 0),
        ("2026-05-01", 1_777_593_600_000),
        ("2026-05-01T12:30:00Z", 1_777_638_600_000),
        ("2026-05-01T12:30:00", 1_777_638_600_000),
        ("2026-05-01 12:30:00.250", 1_777_638_600_250),
        ("2026-05-01T14:30+02:00", 1_777_638_600_000),
        ("1950-01-01", 0),
    ],
)
def test_iso_8601(text, ms):
    assert parse_time(text, NOW) == ms


def test_longer_ago_than_time_itself_is_its_beginning():
    assert parse_time("99999999999999w", NOW) == 0


@pytest.mark.parametrize("text", ["", "yesterday", "10", "10x", "-5m", "2026-13-01", "12:30", "1e3s", "ten m"])
def test_no_time(text):
    with pytest.raises(InvalidMoment, match="is not a time: write"):
        parse_time(text, NOW)


@pytest.mark.parametrize(
    ("text", "start"),
    [
        ("earliest", Start(StartKind.EARLIEST)),
        ("latest", Start(StartKind.LATEST)),
        ("0", Start(StartKind.OFFSET, 0)),
        ("1200", Start(StartKind.OFFSET, 1200)),
        ("-10", Start(StartKind.LAST, 10)),
        ("-0", Start(StartKind.LAST, 0)),
        ("10m", Start(StartKind.TIME, NOW - 600_000)),
        ("2026-05-01", Start(StartKind.TIME, 1_777_593_600_000)),
    ],
)
def test_places_to_begin(text, start):
    assert parse_start(text, NOW) == start


@pytest.mark.parametrize("text", ["", "first", "1.5", "--3", "9" * 30])
def test_no_place_to_begin(text):
    with pytest.raises(InvalidMoment, match="is not a place to start: write"):
        parse_start(text, NOW)


def test_a_timestamp_may_be_a_number():
    assert parse_timestamp("1777593600000", NOW) == 1_777_593_600_000
    assert parse_timestamp("1s", NOW) == NOW - 1000


@given(st.text(max_size=20))
def test_any_text_is_read_or_refused(text):
    for parse in (parse_time, parse_timestamp, parse_start):
        with contextlib.suppress(InvalidMoment):
            parse(text, NOW)


@given(st.datetimes(timezones=st.just(UTC)).filter(lambda moment: moment >= datetime(1970, 1, 1, tzinfo=UTC)))
def test_what_python_writes_is_read(moment):
    assert parse_time(moment.isoformat(), NOW) == int(moment.timestamp() * 1000)
    assert parse_time(moment.replace(tzinfo=None).isoformat(), NOW) == int(moment.timestamp() * 1000)
