"""Weighted rows in an order: putting them together, and the first few of each key. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from headrace.pipelines.operators.grouping import Longs, grouped
from headrace.pipelines.operators.ordering import ranks

Flags = NDArray[np.bool_]


@dataclass(frozen=True)
class Pile:
    """Rows of some columns: row i belongs to key `key[i]` and is there `weight[i]` times."""

    key: Longs
    columns: tuple[pa.Array, ...]
    weight: Longs

    def __len__(self) -> int:
        return len(self.key)

    def take(self, rows: Longs) -> "Pile":
        """Some rows."""
        return Pile(self.key[rows], tuple(each.take(pa.array(rows)) for each in self.columns), self.weight[rows])


def piled(piles: Sequence[Pile]) -> Pile:
    """All rows, one pile behind the other."""
    columns = zip(*(pile.columns for pile in piles), strict=True)
    return Pile(
        np.concatenate([pile.key for pile in piles]),
        tuple(pa.concat_arrays(parts) for parts in columns),
        np.concatenate([pile.weight for pile in piles]),
    )


def places(columns: Sequence[pa.Array], descending: Sequence[bool]) -> Longs:
    """The place of each row in the order of all columns, equal rows the same; null is last, NaN above all numbers."""
    codes = []
    for column, down in zip(columns, descending, strict=True):
        place, _ = ranks([_plain(column)])
        place = len(place) - place if down else place
        codes.append(np.where(np.asarray(column.is_valid()), place, len(place) + 1) if column.null_count else place)
    if len(codes) == 1:
        return codes[0]
    groups = grouped(*codes)
    found = np.empty(len(groups.order), np.int64)
    found[groups.order] = np.repeat(np.arange(len(groups.starts)), groups.ends - groups.starts)
    return found


def _plain(column: pa.Array) -> pa.Array:
    """-0.0 is 0.0."""
    return pc.add(column, pa.scalar(0.0, column.type)) if pa.types.is_floating(column.type) else column


@dataclass(frozen=True)
class Net:
    """Rows of a pile put together: of each key and place one, in this order, and its weight, which is not 0."""

    key: Longs
    place: Longs
    row: Longs
    weight: Longs

    def take(self, rows: Longs | Flags) -> "Net":
        """Some of them."""
        return Net(self.key[rows], self.place[rows], self.row[rows], self.weight[rows])


def net(pile: Pile, place: Longs) -> Net:
    """Equal rows of a key put together."""
    groups = grouped(pile.key, place)
    if not len(groups.starts):
        return Net(pile.key, place, pile.key, pile.weight)
    sums = np.add.reduceat(pile.weight[groups.order], groups.starts)
    some = np.flatnonzero(sums)
    row = groups.firsts[some]
    return Net(pile.key[row], place[row], row, sums[some])


def rank_in_key(key: Longs) -> Longs:
    """0, 1, 2 … within each stretch of equal keys."""
    if not len(key):
        return key
    starts = np.flatnonzero(np.append(True, key[1:] != key[:-1]))
    return np.arange(len(key)) - np.repeat(starts, np.diff(np.append(starts, len(key))))


def first_of(key: Longs, weight: Longs, limit: int | None) -> Longs:
    """The first `limit` rows of each key, as numbers, each as often as it is there. Keys lie together, in order."""
    there = np.flatnonzero(weight > 0)
    whose, often = key[there], weight[there]
    if limit is not None and len(there):
        upto = np.cumsum(often)
        starts = np.flatnonzero(np.append(True, whose[1:] != whose[:-1]))
        base = np.repeat((upto - often)[starts], np.diff(np.append(starts, len(whose))))
        often = np.clip(limit - (upto - often - base), 0, often)
    return np.repeat(there, often)


def differing(count: int, one: tuple[Longs, Longs], other: tuple[Longs, Longs]) -> Flags:
    """The keys whose lists differ; a side is keys, in order, and values."""
    sizes = [np.bincount(key, minlength=count) for key, _ in (one, other)]
    found: Flags = sizes[0] != sizes[1]
    alike = [value[~found[key]] for key, value in (one, other)]
    whose = one[0][~found[one[0]]]
    found[whose[alike[0] != alike[1]]] = True
    return found
