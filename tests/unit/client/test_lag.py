"""How far behind, and how long until records are lost: the arithmetic."""

import pytest

from headrace.client.lag import HOUR_MS, PartitionLag, Retention, Trouble, trouble_of
from headrace.model import TopicPartition

WHERE = TopicPartition("orders", 0)
NOW = 1_000 * HOUR_MS


def lag(committed, start=0, end=100, **facts):
    return PartitionLag(WHERE, committed, start, end, **facts)


@pytest.mark.parametrize(
    ("committed", "start", "end", "records", "removed", "beyond", "next_offset"),
    [
        (40, 0, 100, 60, 0, 0, 40),
        (100, 0, 100, 0, 0, 0, None),
        (40, 50, 100, 60, 10, 0, 50),
        (50, 50, 100, 50, 0, 0, 50),
        (40, 100, 100, 60, 60, 0, None),  # all that was there has gone
        (120, 0, 100, 0, 0, 20, None),
        (0, 0, 0, 0, 0, 0, None),
        (None, 5, 100, None, 0, 0, None),
    ],
)
def test_records(committed, start, end, records, removed, beyond, next_offset):
    found = lag(committed, start, end)
    assert (found.records, found.removed, found.beyond, found.next_offset) == (records, removed, beyond, next_offset)


@pytest.mark.parametrize(
    ("committed", "start", "end", "size", "expected"),
    [
        (40, 0, 100, 1000, 600),
        (60, 50, 100, 1000, 800),
        (40, 50, 100, 1000, 1000),  # removed bytes are no longer there to be read
        (100, 0, 100, 1000, 0),
        (120, 0, 100, 1000, 0),
        (0, 0, 0, 0, 0),
        (40, 0, 100, None, None),
        (None, 0, 100, 1000, None),
    ],
)
def test_bytes(committed, start, end, size, expected):
    assert lag(committed, start, end, size_bytes=size).size_left_bytes == expected


def test_time():
    assert lag(40, next_ms=1_000, newest_ms=2_000).age_ms(9_000) == 8_000  # the log may have been quiet since
    assert lag(40, next_ms=9_000).age_ms(1_000) == 0  # producers' clocks may differ
    assert lag(100).age_ms(9_000) == 0
    assert lag(40).age_ms(9_000) is None
    assert lag(None, next_ms=1).age_ms(9_000) is None


@pytest.mark.parametrize(
    ("age_h", "retention_h", "left_h", "is_near"),
    [
        (0, 168, 168, False),
        (150, 168, 18, False),
        (152, 168, 16, True),  # under a tenth
        (4.5, 5, 0.5, True),  # under an hour
        (3.9, 5, 1.1, False),
        (0.1, 1, 0.9, False),  # of a short retention, more than half is left
        (0.6, 1, 0.4, True),
        (200, 168, 0, True),
    ],
)
def test_loss_by_age(age_h, retention_h, left_h, is_near):
    found = lag(40, next_ms=NOW - int(age_h * HOUR_MS), retention=Retention(ms=retention_h * HOUR_MS))
    loss = found.loss(NOW)
    assert loss.setting == "retention.ms"
    assert loss.left_ms == pytest.approx(left_h * HOUR_MS)
    assert loss.is_near is is_near
    assert trouble_of(found, NOW) is (Trouble.NEAR_LOSS if is_near else None)


@pytest.mark.parametrize(
    ("size", "retention_bytes", "left_ms", "is_near"),
    [
        (1000, 1200, 10 * HOUR_MS, False),  # 600 bytes in ten hours, 600 to go
        (1000, 660, HOUR_MS, True),
        (1000, 600, 0, True),
        (1000, 500, 0, True),
    ],
)
def test_loss_by_size(size, retention_bytes, left_ms, is_near):
    found = lag(40, size_bytes=size, next_ms=NOW - 10 * HOUR_MS, retention=Retention(size_bytes=retention_bytes))
    loss = found.loss(NOW)
    assert (loss.setting, loss.left_ms, loss.is_near) == ("retention.bytes", left_ms, is_near)


def test_the_nearer_of_two_losses_counts():
    facts = {"size_bytes": 1000, "next_ms": NOW - 10 * HOUR_MS}
    assert lag(40, **facts, retention=Retention(11 * HOUR_MS, 6000)).loss(NOW).setting == "retention.ms"
    assert lag(40, **facts, retention=Retention(100 * HOUR_MS, 700)).loss(NOW).setting == "retention.bytes"


def test_without_a_time_only_the_space_is_known():
    loss = lag(40, size_bytes=1000, retention=Retention(HOUR_MS, 620)).loss(NOW)
    assert (loss.setting, loss.left_ms, loss.is_near) == ("retention.bytes", None, True)


def test_nothing_threatens():
    assert lag(40, next_ms=0, size_bytes=1000).loss(NOW) is None  # everything is kept
    assert lag(100, next_ms=0, retention=Retention(1, 1), size_bytes=1000).loss(NOW) is None  # everything is read
    assert lag(None, next_ms=0, retention=Retention(1, 1), size_bytes=1000).loss(NOW) is None


def test_the_worst_trouble_is_told():
    old = {"next_ms": 0, "retention": Retention(HOUR_MS)}
    assert trouble_of(lag(40, 50, 100, **old), NOW) is Trouble.REMOVED
    assert trouble_of(lag(120, **old), NOW) is Trouble.BEYOND_END
    assert trouble_of(lag(40, **old), NOW) is Trouble.NEAR_LOSS
    assert trouble_of(lag(100, **old), NOW) is None
