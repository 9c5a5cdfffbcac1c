"""Small lists of integers in one array: blocks of a few sizes, which are given back and used again.

Postings and programs live here. There is no compaction to wait for: a block that is given back is the next one of its
size to be handed out, and a list that outgrows its block moves to one half as large again.
"""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from headrace.jit import compiled

Ints = NDArray[np.int32]
Longs = NDArray[np.int64]


def _sizes() -> Longs:
    sizes = [1]
    while sizes[-1] < 1 << 30:
        sizes.append(sizes[-1] + max(1, sizes[-1] // 4 if sizes[-1] >= 4 else 1))
    return np.array(sizes, np.int64)


SIZES: Final = _sizes()
"""By class, how many integers a block holds."""

NO_ROOM: Final = -1


@compiled
def size_class(wanted: int, sizes: Longs) -> int:
    """The class of the smallest block that holds so many."""
    low, high = 0, len(sizes) - 1
    while low < high:
        middle = (low + high) >> 1
        if sizes[middle] < wanted:
            low = middle + 1
        else:
            high = middle
    return low


@compiled
def take(kind: int, words: Ints, free: Longs, sizes: Longs) -> int:
    """A block of this class, or `NO_ROOM`; the last place of `free` is where nothing was ever used."""
    at = free[kind]
    if at >= 0:
        free[kind] = words[at]
        return at
    at = free[len(free) - 1]
    if at + sizes[kind] > len(words):
        return NO_ROOM
    free[len(free) - 1] = at + sizes[kind]
    return at


@compiled
def give_back(at: int, kind: int, words: Ints, free: Longs) -> None:
    words[at] = np.int32(free[kind])
    free[kind] = at


class Blocks:
    """The array and what is free in it; compiled loops use `words`, `free` and `SIZES`."""

    def __init__(self) -> None:
        self.words = np.zeros(1024, np.int32)
        self.free = np.full(len(SIZES) + 1, -1, np.int64)
        self.free[-1] = 0

    @property
    def size_bytes(self) -> int:
        return self.words.nbytes

    def grow(self, by: int = 0) -> None:
        """Room for a quarter more, and for `by` integers."""
        larger = np.empty(len(self.words) + max(by, len(self.words) // 4, 1024), np.int32)
        larger[: len(self.words)] = self.words
        self.words = larger

    def store(self, values: Ints) -> int:
        """Keep these integers; where they begin."""
        kind = int(np.searchsorted(SIZES, len(values)))
        # As in `take`, without a call of compiled code.
        at = int(self.free[kind])
        if at >= 0:
            self.free[kind] = self.words[at]
        else:
            at = int(self.free[-1])
            if at + int(SIZES[kind]) > len(self.words):
                self.grow(int(SIZES[kind]))
            self.free[-1] = at + int(SIZES[kind])
        self.words[at : at + len(values)] = values
        return at

    def release(self, at: int, count: int) -> None:
        """Give back what `store` kept `count` integers at."""
        kind = int(np.searchsorted(SIZES, count))
        self.words[at] = self.free[kind]
        self.free[kind] = at
