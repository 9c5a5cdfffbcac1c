"""What headers ask for, and what they may not."""

import pytest

from headrace.delivery.headers import (
    CANCEL,
    DEDUP_ID,
    DELAY_MS,
    DELIVER_AT,
    EXPIRES_AT,
    ORIGIN,
    PLAIN,
    REPEAT,
    SCHEDULE_ID,
    TTL_MS,
    InvalidHeader,
    Origin,
    headers_of_copy,
    parse_origin,
    read_delivery,
)
from headrace.records import Header, Record

NOW = 1_700_000_000_000


def record(value: bytes | None = b"v", timestamp: int = NOW, **headers: str) -> Record:
    named = {name.replace("_", "-"): text for name, text in headers.items()}
    return Record(7, timestamp, b"k", value, tuple(Header(name, text.encode()) for name, text in named.items()))


def with_header(name: str, text: str | None, **more: object) -> Record:
    made = record(**more)  # type: ignore[arg-type]
    return made._replace(headers=(*made.headers, Header(name, None if text is None else text.encode())))


def test_a_record_that_asks_for_nothing_is_plain():
    assert read_delivery(record()) is PLAIN
    assert read_delivery(record(other="1")) is PLAIN
    assert read_delivery(record(), 1000).expires_ms == NOW + 1000
    assert read_delivery(record(timestamp=-1), 1000).expires_ms is None


def test_what_is_due_later_than_the_record_is_delayed():
    assert read_delivery(with_header(DELAY_MS, "500")).due_ms == NOW + 500
    assert read_delivery(with_header(DELIVER_AT, str(NOW + 1))).due_ms == NOW + 1
    for not_later in (with_header(DELAY_MS, "0"), with_header(DELIVER_AT, str(NOW)), with_header(DELIVER_AT, "0")):
        assert not read_delivery(not_later).is_delayed


def test_what_repeats_begins_when_it_is_told_to_or_after_an_interval():
    assert read_delivery(with_header(REPEAT, "5m")).due_ms == NOW + 300_000
    both = with_header(REPEAT, "5m", headrace_delay_ms="1000")
    assert read_delivery(both).due_ms == NOW + 1000
    past = with_header(REPEAT, "5m", headrace_deliver_at="0")
    assert read_delivery(past).due_ms == NOW + 300_000


def test_a_records_own_limits_come_before_its_topics():
    assert read_delivery(with_header(TTL_MS, "10"), 99_000).expires_ms == NOW + 10
    assert read_delivery(with_header(EXPIRES_AT, "123"), 99_000).expires_ms == 123
    assert read_delivery(with_header(DEDUP_ID, "x"), 99_000) == PLAIN._replace(expires_ms=NOW + 99_000, dedup_id=b"x")


@pytest.mark.parametrize(
    ("made", "reason"),
    [
        (with_header(DELAY_MS, "-5"), "headrace-delay-ms='-5' is not a number of milliseconds"),
        (with_header(DELAY_MS, "1_0"), "not a number"),
        (with_header(DELAY_MS, "9" * 15 + "9"), "not a number"),
        (with_header(DELAY_MS, None), "not a number"),
        (with_header(DELAY_MS, "²"), "not a number"),
        (with_header(DELIVER_AT, "soon"), "not a number"),
        (with_header(DELAY_MS, "253402300799999"), "after the year 9999"),
        (with_header(DELAY_MS, "5", headrace_deliver_at="7"), "both given"),
        (with_header(EXPIRES_AT, "5", headrace_ttl_ms="7"), "both given"),
        (with_header(DELAY_MS, "5", timestamp=-1), "counts from the record's timestamp"),
        (with_header(REPEAT, "often"), "headrace-repeat='often' is invalid: give an interval"),
        (with_header(REPEAT, "0s"), "at least 1s"),
        (with_header(REPEAT, "* * 30 2 *"), "no such day"),
        (with_header(REPEAT, None), "headrace-repeat='' is invalid"),
        (with_header(REPEAT, "0 0 * * *", timestamp=2**60), "after the year 9999"),
        (with_header(DEDUP_ID, ""), "has 0 bytes"),
        (with_header(SCHEDULE_ID, "x" * 1025), "has 1025 bytes"),
        (with_header(CANCEL, "x"), "on a record with a value"),
    ],
)
def test_what_is_malformed_is_refused_in_a_sentence(made: Record, reason: str):
    with pytest.raises(InvalidHeader, match=reason):
        read_delivery(made)


def test_a_cancellation_has_no_value():
    assert read_delivery(with_header(CANCEL, "job", value=None)).cancels == b"job"
    assert read_delivery(with_header(CANCEL, "job", value=b"")).cancels == b"job"


def test_a_copy_says_where_it_came_from_and_asks_for_the_rest():
    asked = with_header(DELAY_MS, "5", headrace_ttl_ms="9", headrace_schedule_id="job", other="1")
    origin = Origin("jobs", 2, 7, 0)
    copy = asked._replace(headers=headers_of_copy(asked, origin), timestamp=NOW + 5)
    assert [header.key for header in copy.headers] == [TTL_MS, SCHEDULE_ID, "other", ORIGIN]
    assert read_delivery(copy) == PLAIN._replace(expires_ms=NOW + 14, schedule_id=b"job", origin=b"jobs/2/7/0")
    assert parse_origin(b"jobs/2/7/0") == origin
    assert parse_origin(b"jobs/2/7") == Origin("jobs", 2, 7)
    for other in (b"", b"jobs", b"jobs/2", b"jobs/2/-7", b"jobs/2/7/0/1", b"\xff/x/1", b"jobs/2/" + b"9" * 5000):
        assert parse_origin(other) is None
