"""Pairs of rows of one key whose times lie within bounds of each other, found for all keys at once. Pure."""

from typing import NamedTuple

import numpy as np

from headrace.pipelines.operators.grouping import Longs, find, sorted_by
from headrace.pipelines.operators.interval_join_bounds import Bounds


class Side(NamedTuple):
    """Rows of one side: the number of each row's key, and its time."""

    key: Longs
    time: Longs


class Pairs(NamedTuple):
    """Row numbers on the left and on the right; one pair a place."""

    left: Longs
    right: Longs


def pairs(left: Side, right: Side, bounds: Bounds) -> Pairs:
    """All pairs, in the order of the left rows, and for each of them in the order of the right's times."""
    order = sorted_by(right.key, right.time)
    key, time = right.key[order], right.time[order]
    first = find(key, time, left.key, left.time + bounds.low_us, side="left")
    behind = find(key, time, left.key, left.time + bounds.high_us, side="right")
    many = behind - first
    ours = np.repeat(np.arange(len(left.key)), many)
    # Places first, first + 1, … of each left row, all in one stretch.
    begins = np.cumsum(many) - many
    places = np.arange(len(ours)) - np.repeat(begins - first, many)
    return Pairs(ours, order[places])


def fresh_pairs(left: Side, right: Side, old_left: int, old_right: int, bounds: Bounds) -> Pairs:
    """The pairs that have at least one new row; the first `old_…` rows of each side are those known before."""
    news = Side(left.key[old_left:], left.time[old_left:])
    with_new_left = pairs(news, right, bounds)
    known = Side(left.key[:old_left], left.time[:old_left])
    with_new_right = pairs(known, Side(right.key[old_right:], right.time[old_right:]), bounds)
    return Pairs(
        np.concatenate([with_new_left.left + old_left, with_new_right.left]),
        np.concatenate([with_new_left.right, with_new_right.right + old_right]),
    )
