"""The rows that a join of two tables gains and loses, by what each side gains and loses. Pure.

A pair of rows is there as often as one is there times the other, so what a pair changes by is after × after - before ×
before: only pairs of which one changed are looked at. A row that an outer join keeps stands alone as long as there is
nothing on the other side.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from headrace.pipelines.keyed.operator import Longs
from headrace.pipelines.operators.tables.join_net import Net

Flags = NDArray[np.bool_]
NONE = -1


@dataclass(frozen=True)
class Joined:
    """Rows of the result: a place on the left and one on the right (`NONE`: nothing), and by how much each changes."""

    key: Longs
    left: Longs
    right: Longs
    weight: Longs


def pairs(left: Net, right: Net) -> Joined:
    """What the pairs change by."""
    changed_left, changed_right = np.flatnonzero(left.change), np.flatnonzero(right.change)
    kept_left = np.flatnonzero(left.change == 0)
    first, second = _meet(left.key, changed_left, right.key, np.arange(len(right)))
    more_first, more_second = _meet(left.key, kept_left, right.key, changed_right)
    one, other = np.concatenate([first, more_first]), np.concatenate([second, more_second])
    weight = left.after[one] * right.after[other] - left.before[one] * right.before[other]
    some = np.flatnonzero(weight)
    one, other = one[some], other[some]
    return Joined(left.key[one], left.pick[one], right.pick[other], weight[some])


def alone(rows: Net, empty_before: Flags, empty_after: Flags) -> tuple[Longs, Longs, Longs]:
    """Keys, places and weights of rows that begin or cease to stand alone; the flags are of the other side's keys."""
    weight = rows.after * empty_after[rows.key] - rows.before * empty_before[rows.key]
    some = np.flatnonzero(weight)
    return rows.key[some], rows.pick[some], weight[some]


def _meet(left: Longs, some_left: Longs, right: Longs, some_right: Longs) -> tuple[Longs, Longs]:
    """All pairs of the rows named that have the same key; both sides are in the order of keys."""
    keys, others = left[some_left], right[some_right]
    low = np.searchsorted(others, keys, side="left")
    count = np.searchsorted(others, keys, side="right") - low
    steps = np.arange(int(count.sum())) - np.repeat(np.cumsum(count) - count, count)
    return np.repeat(some_left, count), some_right[np.repeat(low, count) + steps]
