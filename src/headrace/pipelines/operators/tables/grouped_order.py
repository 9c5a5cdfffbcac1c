"""Weighted rows in an order: putting them together. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from headrace.pipelines.operators.grouping import Longs, grouped

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


def differing(count: int, one: tuple[Longs, Longs], other: tuple[Longs, Longs]) -> Flags:
    """The keys whose lists differ; a side is keys, in order, and values."""
    sizes = [np.bincount(key, minlength=count) for key, _ in (one, other)]
    found: Flags = sizes[0] != sizes[1]
    alike = [value[~found[key]] for key, value in (one, other)]
    whose = one[0][~found[one[0]]]
    found[whose[alike[0] != alike[1]]] = True
    return found
