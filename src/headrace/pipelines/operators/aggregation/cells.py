"""The columns that partial results are made of while they are computed, and the few ways in which they combine.

A cell is a column of partial results. Any two of its values combine into one, in any order, so partial results of rows,
batches and panes become those of windows without looking at rows again. All is done on whole columns:

- `reduce(groups)` combines the rows of each group;
- `over(lows, highs)` combines each stretch of neighbouring rows, however the stretches overlap, in steps whose number
  grows with the logarithm of the longest stretch;
- `take(rows)` picks rows.
"""

from dataclasses import dataclass
from typing import Any, Self, TypeVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from headrace.pipelines.operators.aggregation.ordering import first_ranked
from headrace.pipelines.operators.grouping import Groups, Longs

Array = NDArray[Any]


class Cell:
    """A column of partial results."""

    def take(self, rows: Longs) -> Self:
        """Some rows."""
        taken = {name: held[rows] if isinstance(held, np.ndarray) else held for name, held in vars(self).items()}
        return type(self)(**taken)

    def merge(self, other: Self) -> Self:
        """Row by row, this one's and the other's together."""
        raise NotImplementedError

    def reduce(self, groups: Groups) -> Self:
        """One row a group."""
        raise NotImplementedError

    def over(self, lows: Longs, highs: Longs) -> Self:
        """One row for each stretch from a low (included) to a high (not); none is empty."""
        return _over(self, lows, highs)


C = TypeVar("C", bound=Cell)


def _over(cell: C, lows: Longs, highs: Longs) -> C:
    """By doubling: `power` holds at row i what rows i … i+2^n-1 make together, and each stretch is a sum of powers."""
    lengths = highs - lows
    at = lows.copy()
    found = cell.take(lows)  # the rows of stretches that have not begun yet are replaced below
    begun = np.zeros(len(lows), np.bool_)
    power, step = cell, 1
    count = int(highs.max()) if len(highs) else 0
    while True:
        using = np.flatnonzero(lengths & step)
        if len(using):
            fresh, more = using[~begun[using]], using[begun[using]]
            _write(found, fresh, power.take(at[fresh]))
            _write(found, more, found.take(more).merge(power.take(at[more])))
            begun[using] = True
            at[using] += step
        if not (lengths >= 2 * step).any():
            return found
        rows = np.arange(count - step, dtype=np.int64)
        power = _pad(power.take(rows).merge(power.take(rows + step)), power, count)
        step *= 2


def _write(into: Cell, rows: Longs, values: Cell) -> None:
    """Some rows replaced, in place."""
    for name, held in vars(into).items():
        if isinstance(held, np.ndarray):
            held[rows] = getattr(values, name)


def _pad(short: C, long: C, count: int) -> C:
    """As long as before; what is behind is never asked for."""
    made = {
        name: np.concatenate([held, getattr(long, name)[len(held) : count]]) if isinstance(held, np.ndarray) else held
        for name, held in vars(short).items()
    }
    return type(short)(**made)


@dataclass(frozen=True)
class Sum(Cell):
    """Numbers that add up."""

    values: Array

    def merge(self, other: "Sum") -> "Sum":
        return Sum(self.values + other.values)

    def reduce(self, groups: Groups) -> "Sum":
        return Sum(np.add.reduceat(self.values[groups.order], groups.starts) if len(groups.starts) else self.values[:0])

    def over(self, lows: Longs, highs: Longs) -> "Sum":
        if self.values.dtype.kind == "f":  # differences of running sums would lose what is small
            return _over(self, lows, highs)
        running = np.concatenate([np.zeros(1, self.values.dtype), np.cumsum(self.values)])
        return Sum(running[highs] - running[lows])


@dataclass(frozen=True)
class Extreme(Cell):
    """The least or the greatest of what is there; `valid` says where anything is. NaN is greatest, as in SQL."""

    values: Array
    valid: Array
    greatest: bool

    def merge(self, other: "Extreme") -> "Extreme":
        best = self._ufunc(self.values, other.values)
        values = np.where(self.valid, np.where(other.valid, best, self.values), other.values)
        return Extreme(values, self.valid | other.valid, self.greatest)

    def reduce(self, groups: Groups) -> "Extreme":
        if not len(groups.starts):
            return self.take(groups.starts)
        held = np.where(self.valid, self.values, self._nothing)[groups.order]
        valid = np.logical_or.reduceat(self.valid[groups.order], groups.starts)
        return Extreme(self._ufunc.reduceat(held, groups.starts), valid, self.greatest)

    @property
    def _ufunc(self) -> Any:
        if self.greatest:
            return np.maximum  # lets a NaN through
        return np.fmin if self.values.dtype.kind == "f" else np.minimum

    @property
    def _nothing(self) -> Any:
        kind = self.values.dtype
        if kind.kind == "f":
            return -np.inf if self.greatest else np.nan
        if kind.kind == "b":
            return not self.greatest
        return np.iinfo(kind).min if self.greatest else np.iinfo(kind).max


@dataclass(frozen=True)
class Moments(Cell):
    """Count, mean and sum of squared distances from the mean: a variance that does not lose digits."""

    count: Array
    mean: Array
    squares: Array

    def merge(self, other: "Moments") -> "Moments":
        count = self.count + other.count
        share = other.count / np.maximum(count, 1)
        apart = other.mean - self.mean
        squares = self.squares + other.squares + apart * apart * self.count * share
        return Moments(count, self.mean + apart * share, squares)

    def reduce(self, groups: Groups) -> "Moments":
        if not len(groups.starts):
            return self.take(groups.starts)
        order, starts = groups.order, groups.starts
        count = np.add.reduceat(self.count[order], starts)
        mean = np.add.reduceat((self.count * self.mean)[order], starts) / np.maximum(count, 1)
        apart = self.mean[order] - np.repeat(mean, groups.ends - starts)
        squares = np.add.reduceat(self.squares[order] + self.count[order] * apart * apart, starts)
        return Moments(count, mean, squares)


@dataclass(frozen=True)
class Cut:
    """Only values whose rank is at most `limit`; those are equal in rank whose places have the same `tie`."""

    limit: int
    ranking: str | None
    tie: Longs


@dataclass(frozen=True)
class Bag(Cell):
    """Lists of values, put together; `distinct` keeps each value once, `cut` the first ones.

    Values are numbers: places in a dictionary.
    """

    lists: pa.ListArray
    distinct: bool
    cut: Cut | None = None

    def take(self, rows: Longs) -> "Bag":
        return Bag(self.lists.take(pa.array(rows)), self.distinct, self.cut)

    def reduce(self, groups: Groups) -> "Bag":
        return self._gathered(np.arange(len(groups.order)), groups.numbers, len(groups.starts))

    def over(self, lows: Longs, highs: Longs) -> "Bag":
        lengths = highs - lows
        group = np.repeat(np.arange(len(lows)), lengths)
        rows = np.arange(len(group)) - np.repeat(np.cumsum(lengths) - lengths, lengths) + np.repeat(lows, lengths)
        return self._gathered(rows, group, len(lows))

    def _gathered(self, rows: Longs, group: Longs, count: int) -> "Bag":
        """Sorted within each list, so that a result does not depend on how rows were cut into batches."""
        lists = self.lists.take(pa.array(rows))
        sizes = np.asarray(lists.value_lengths().fill_null(0))
        owner = np.repeat(group, sizes)
        codes = np.asarray(lists.flatten())
        order = np.lexsort((codes, owner))
        owner, codes = owner[order], codes[order]
        if self.distinct and len(codes):
            keep = np.append(True, (owner[1:] != owner[:-1]) | (codes[1:] != codes[:-1]))
            owner, codes = owner[keep], codes[keep]
        if self.cut is not None:
            each = np.ones(len(codes), np.int64)
            first, _ = first_ranked(owner, self.cut.tie[codes], each, self.cut.limit, self.cut.ranking)
            owner, codes = owner[first], codes[first]
        offsets = np.concatenate([[0], np.cumsum(np.bincount(owner, minlength=count))]).astype(np.int32)
        return Bag(pa.ListArray.from_arrays(pa.array(offsets), pa.array(codes)), self.distinct, self.cut)
