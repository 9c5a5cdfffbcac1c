"""Whether and how far a log is cleaned, from facts alone."""

import pytest

from headrace.storage.compaction.cleaner import Cleanable, CompactionFacts, decide
from headrace.storage.config import LogConfig

# base offset, bytes, first timestamp, largest timestamp; the last one is active
SEGMENTS = [
    CompactionFacts(0, 100, 1000, 1900),
    CompactionFacts(10, 100, 2000, 2900),
    CompactionFacts(20, 200, 3000, 3900),
    CompactionFacts(30, 50, 4000, 4900),
]


def _decide(checkpoint=0, stable_offset=35, now_ms=5000, segments=SEGMENTS, **config) -> Cleanable:
    config = LogConfig(**{"cleanup_policy": frozenset({"compact"}), **config})
    return decide(segments, config, checkpoint=checkpoint, stable_offset=stable_offset, now_ms=now_ms)


def test_all_but_the_active_segment_is_dirty_at_first():
    found = _decide()
    assert found == Cleanable(0, 30, 400, 0, is_due=True)
    assert found.dirty_ratio == 1.0


def test_what_is_clean_counts_against():
    found = _decide(checkpoint=20)
    assert (found.dirty_offset, found.uncleanable_offset, found.dirty_bytes, found.clean_bytes) == (20, 30, 200, 200)
    assert found.dirty_ratio == 0.5
    assert found.is_due
    assert not _decide(checkpoint=20, min_cleanable_dirty_ratio=0.51).is_due


def test_a_clean_log_has_nothing_to_do():
    found = _decide(checkpoint=30, min_cleanable_dirty_ratio=0)
    assert (found.dirty_bytes, found.is_due, found.dirty_ratio) == (0, False, 0.0)


def test_only_a_log_with_the_policy_is_due():
    assert not _decide(cleanup_policy=frozenset({"delete"})).is_due


@pytest.mark.parametrize(("stable", "uncleanable"), [(35, 30), (30, 30), (29, 20), (20, 20), (15, 10), (3, 0)])
def test_a_segment_with_an_open_transaction_waits_whole(stable, uncleanable):
    found = _decide(stable_offset=stable)
    assert found.uncleanable_offset == uncleanable
    assert found.is_due is (uncleanable > 0)


@pytest.mark.parametrize(("lag", "uncleanable"), [(0, 30), (1100, 30), (1101, 20), (2100, 20), (2101, 10), (9999, 0)])
def test_what_is_younger_than_the_lag_waits(lag, uncleanable):
    assert _decide(min_compaction_lag_ms=lag).uncleanable_offset == uncleanable


def test_dirt_that_is_too_old_is_due_however_little_it_is():
    little = {"checkpoint": 20, "min_cleanable_dirty_ratio": 0.9}
    assert not _decide(**little).is_due
    assert not _decide(**little, max_compaction_lag_ms=2000).is_due
    assert _decide(**little, max_compaction_lag_ms=1999).is_due


@pytest.mark.parametrize("checkpoint", [-1, 5, 99])
def test_a_checkpoint_that_is_outside_of_the_log_begins_anew(checkpoint):
    segments = [facts._replace(base_offset=facts.base_offset + 10) for facts in SEGMENTS]
    found = _decide(checkpoint=checkpoint, segments=segments, stable_offset=45)
    assert (found.dirty_offset, found.dirty_bytes) == (10, 400)


def test_a_log_of_one_segment_has_nothing_to_clean():
    assert _decide(segments=SEGMENTS[:1]) == Cleanable(0, 0, 0, 0, is_due=False)
