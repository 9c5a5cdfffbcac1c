"""Putting rows that belong together beside each other, and looking up ranges in what is sorted so."""

from collections.abc import Sequence
from math import prod
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Longs = NDArray[np.int64]


class Groups(NamedTuple):
    """Rows in the order `order`; a group begins at each of `starts` in that order and ends at `ends`."""

    order: Longs
    starts: Longs
    ends: Longs

    @property
    def firsts(self) -> Longs:
        """A row of each group, by its number before sorting."""
        return self.order[self.starts]

    @property
    def numbers(self) -> Longs:
        """Of each row, before sorting, the number of its group."""
        found = np.empty(len(self.order), np.int64)
        found[self.order] = np.repeat(np.arange(len(self.starts)), self.ends - self.starts)
        return found


def group_rows(*columns: NDArray[Any], then: tuple[NDArray[Any], ...] = ()) -> Groups:
    """Rows grouped by columns of numbers, sorted by them, and within a group by `then`; equal rows keep their order."""
    count = len(columns[0])
    if not count:
        nothing = np.zeros(0, np.int64)
        return Groups(nothing, nothing, nothing)
    whole = _as_one(columns)
    compared = columns if whole is None else (whole,)
    if whole is not None and not then:
        order = np.argsort(whole, kind="stable")
    else:
        order = np.lexsort((*reversed(then), *reversed(compared)))
    change = np.zeros(count, np.bool_)
    change[0] = True
    for column in compared:
        in_order = column[order]
        change[1:] |= in_order[1:] != in_order[:-1]
    starts = np.flatnonzero(change).astype(np.int64)
    return Groups(order, starts, np.append(starts[1:], count))


def sort_rows(*columns: Longs) -> Longs:
    """The order of rows by columns of whole numbers; equal rows keep theirs."""
    if not len(columns[0]):
        return np.zeros(0, np.int64)
    whole = _as_one(columns)
    return np.lexsort(columns[::-1]) if whole is None else np.argsort(whole, kind="stable")


def _as_one(columns: Sequence[NDArray[Any]]) -> Longs | None:
    """Columns of whole numbers as one with the same order, which sorts faster; None where that does not fit."""
    if any(column.dtype.kind not in "iu" for column in columns):
        return None
    spans = [(int(column.min()), int(column.max())) for column in columns]
    if prod(high - low + 1 for low, high in spans) >= 2**62:
        return None
    found = np.zeros(len(columns[0]), np.int64)
    for column, (low, high) in zip(columns, spans, strict=True):
        found *= high - low + 1
        found += column - low
    return found


def find(key: Longs, value: Longs, wanted_key: Longs, wanted_value: Longs, *, side: str) -> Longs:
    """Where each wanted pair would stand among pairs sorted by key and value, before (`left`) or behind equal ones."""
    if not len(key) or not len(wanted_key):
        return np.zeros(len(wanted_key), np.int64)
    whole = _as_one((np.concatenate([key, wanted_key]), np.concatenate([value, wanted_value])))
    if whole is not None:
        return np.searchsorted(whole[: len(key)], whole[len(key) :], side="left" if side == "left" else "right")
    # Sorting all pairs together answers all look-ups at once, whatever the range of the values.
    mark = np.concatenate(
        [np.full(len(key), 1, np.int8), np.full(len(wanted_key), 0 if side == "left" else 2, np.int8)]
    )
    order = np.lexsort((mark, np.concatenate([value, wanted_value]), np.concatenate([key, wanted_key])))
    is_ours = order < len(key)
    before = np.cumsum(is_ours)
    found = np.empty(len(wanted_key), np.int64)
    found[order[~is_ours] - len(key)] = before[~is_ours]
    return found


def lowest(count: int, key: Longs, value: Longs, default: int) -> Longs:
    """The least value of each of `count` keys."""
    found = np.full(count, default, np.int64)
    np.minimum.at(found, key, value)
    return found


def highest(count: int, key: Longs, value: Longs, default: int) -> Longs:
    """The greatest value of each of `count` keys."""
    found = np.full(count, default, np.int64)
    np.maximum.at(found, key, value)
    return found
