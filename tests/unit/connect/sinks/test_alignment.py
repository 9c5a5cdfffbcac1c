"""Truncates, and partitions that wait for each other."""

from headrace.connect.sync.feed import Alignment


def test_the_target_is_emptied_when_all_partitions_are_at_the_truncate() -> None:
    alignment = Alignment()
    assert alignment.meet(0, (5,), 10)
    assert alignment.wants_ends()
    alignment.set_ends({0: 20, 1: 8})
    assert alignment.complete({0: 10, 1: 3}) is None
    assert alignment.meet(1, (5,), 7)
    assert not alignment.wants_ends()
    assert alignment.complete({0: 10, 1: 7}) == {0: 11, 1: 8}
    assert not alignment.is_waiting


def test_a_partition_without_a_truncate_is_waited_for_up_to_its_end() -> None:
    alignment = Alignment()
    alignment.meet(0, (5,), 10)
    alignment.set_ends({0: 20, 1: 8})
    assert alignment.complete({0: 10, 1: 7}) is None
    assert alignment.complete({0: 10, 1: 8}) == {0: 11}


def test_an_older_truncate_gives_way_to_a_newer_one() -> None:
    """Compaction removed the older one from partition 0 and not yet from partition 1."""
    alignment = Alignment()
    alignment.meet(1, (5,), 3)
    alignment.set_ends({0: 20, 1: 20})
    alignment.meet(0, (9,), 15)
    assert alignment.wants_ends()
    alignment.set_ends({0: 20, 1: 20})
    assert alignment.outdated() == {1: 4}
    assert alignment.complete({0: 15, 1: 4}) is None
    alignment.meet(1, (9,), 12)
    assert alignment.complete({0: 15, 1: 12}) == {0: 16, 1: 13}


def test_a_truncate_that_was_done_already_is_passed() -> None:
    alignment = Alignment()
    alignment.meet(0, (5,), 10)
    alignment.set_ends({0: 11, 1: 0})
    assert alignment.complete({0: 10, 1: 0}) == {0: 11}
    assert not alignment.meet(1, (5,), 0)
    assert alignment.meet(1, (6,), 1)
