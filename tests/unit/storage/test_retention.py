"""Which segments go, from facts alone."""

import pytest

from headrace.storage.config import LogConfig
from headrace.storage.retention import SegmentFacts, find_first_retained

SEGMENTS = [
    SegmentFacts(0, 100, 1000),
    SegmentFacts(10, 100, 2000),
    SegmentFacts(20, 100, 3000),
    SegmentFacts(30, 50, 4000),
]
END = 35


def _first(segments=SEGMENTS, now_ms=4000, **config):
    return find_first_retained(segments, LogConfig(**{"retention_ms": -1, **config}), END, now_ms)


def test_without_limits_everything_stays():
    assert _first() == 0


@pytest.mark.parametrize(("now_ms", "first"), [(2000, 0), (2001, 10), (3001, 20), (4001, 30), (5000, 30), (5001, END)])
def test_by_age_a_segment_goes_when_its_youngest_record_is_too_old(now_ms, first):
    assert _first(now_ms=now_ms, retention_ms=1000) == first


def test_by_age_it_ends_at_the_first_that_is_young_enough():
    out_of_order = [SegmentFacts(0, 1, 9000), SegmentFacts(10, 1, 1), SegmentFacts(20, 1, 9000)]
    assert _first(out_of_order, now_ms=9500, retention_ms=1000) == 0


def test_an_empty_active_segment_stays():
    segments = [SegmentFacts(0, 100, 0), SegmentFacts(35, 0, 0)]
    assert _first(segments, now_ms=10**9, retention_ms=1) == 35


@pytest.mark.parametrize(
    ("limit", "first"), [(350, 0), (251, 0), (250, 10), (150, 20), (149, 20), (51, 20), (50, 30), (1, 30), (0, 30)]
)
def test_by_size_what_stays_is_at_least_the_limit(limit, first):
    assert _first(retention_bytes=limit) == first


def test_the_stricter_limit_counts():
    assert _first(retention_bytes=250, retention_ms=1000, now_ms=3001) == 20
    assert _first(retention_bytes=50, retention_ms=1000, now_ms=2001) == 30


def test_a_log_that_is_only_compacted_keeps_all():
    assert _first(retention_bytes=0, retention_ms=0, now_ms=10**9, cleanup_policy=frozenset({"compact"})) == 0
    assert _first(retention_ms=0, now_ms=10**9, cleanup_policy=frozenset({"compact", "delete"})) == END
