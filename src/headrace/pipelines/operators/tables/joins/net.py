"""What a log of rows that come and go adds up to, key by key. Pure; the loop is compiled.

A row that goes takes back the version that it names. If it names none (see `form`), it takes back one of those that are
there; and if none is there yet, whatever comes later with the same columns is what it meant.
"""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from headrace.jit import compiled
from headrace.pipelines.keyed.operator import Longs
from headrace.pipelines.operators.tables.row_bytes import arena_of

Bytes = NDArray[np.uint8]
Flags = NDArray[np.bool_]


@dataclass(frozen=True)
class Net:
    """Different rows, in the order of their keys' numbers.

    `before` is how often a row is there by what was kept, `change` what is new to it. `pick` is where it stands among
    the rows that were added up.
    """

    key: Longs
    before: Longs
    change: Longs
    pick: Longs

    @property
    def after(self) -> Longs:
        """How often a row is there from now on."""
        return self.before + self.change

    def __len__(self) -> int:
        return len(self.key)


def net(key: Longs, rows: pa.RecordBatch, kept: int) -> Net:
    """Rows of a log added up; the first `kept` were there before, the others are new."""
    count = len(key)
    columns = [np.zeros(count, np.int64) for _ in range(4)]
    weight = np.array(rows.column("weight"), np.int64)
    known = np.array(rows.column("known"), np.bool_)
    found = _add_up(key, *arena_of(rows.column("row")), *arena_of(rows.column("marks")), known, weight, kept, *columns)
    whose, before, change, pick = (column[:found] for column in columns)
    alive = np.flatnonzero((before != 0) | (change != 0))
    order = alive[np.argsort(whose[alive], kind="stable")]
    return Net(whose[order], before[order], change[order], pick[order])


def keep_apart(key: Longs, weight: Longs) -> Net:
    """New rows, each for itself."""
    order = np.argsort(key, kind="stable")
    return Net(key[order], np.zeros(len(order), np.int64), weight[order], order)


@compiled
def _hash(seed: int, arena: Bytes, begin: int, end: int) -> np.int64:
    """A hash of bytes, eight at a time."""
    found = np.int64(seed) * np.int64(-7046029254386353131)
    at = begin
    while at + 8 <= end:
        # Written out, eight bytes become one load.
        low = arena[at] | arena[at + 1] << 8 | arena[at + 2] << 16 | arena[at + 3] << 24
        high = arena[at + 4] | arena[at + 5] << 8 | arena[at + 6] << 16 | arena[at + 7] << 24
        found = (found ^ np.int64(low | high << 32)) * np.int64(-4417276706812531889)
        found ^= (found >> 29) & np.int64(0x7FFFFFFFF)
        at += 8
    while at < end:
        found = (found ^ np.int64(arena[at])) * np.int64(-4417276706812531889)
        at += 1
    return found ^ ((found >> 32) & np.int64(0xFFFFFFFF))


@compiled
def _is_same(arena: Bytes, bounds: Longs, one: int, other: int) -> bool:
    """Whether two spans hold the same bytes."""
    begin, other_begin = bounds[one], bounds[other]
    length = bounds[one + 1] - begin
    if bounds[other + 1] - other_begin != length:
        return False
    at = 0
    while at < length and arena[begin + at] == arena[other_begin + at]:
        at += 1
    return bool(at == length)


@compiled
def _add_up(
    key: Longs,
    arena: Bytes,
    bounds: Longs,
    marks: Bytes,
    mark_bounds: Longs,
    known: Flags,
    weight: Longs,
    kept: int,
    whose: Longs,
    before: Longs,
    change: Longs,
    pick: Longs,
) -> int:
    """Number the different rows of each key as they come, and add their weights up; how many there are."""
    size = 16
    while size < 2 * len(key):
        size *= 2
    slots = np.full(size, -1, np.int64)
    hashes = np.empty(len(key), np.int64)
    mask = size - 1
    count = 0
    for row in range(len(key)):
        own = _hash(key[row], arena, bounds[row], bounds[row + 1])
        slot = own & mask
        same = -1
        meant = -1
        while slots[slot] >= 0:
            number = slots[slot]
            other = pick[number]
            if hashes[number] == own and whose[number] == key[row] and _is_same(arena, bounds, row, other):
                total = before[number] + change[number]
                if known[row] == known[other]:
                    if not known[row] or _is_same(marks, mark_bounds, row, other):
                        same = number
                elif (known[row] and weight[row] > 0 and total < 0) or (known[other] and weight[row] < 0 and total > 0):
                    meant = number
            slot = (slot + 1) & mask
        number = meant if meant >= 0 else same
        if number < 0:
            number = count
            slots[slot] = number
            hashes[number] = own
            whose[number] = key[row]
            pick[number] = row
            count += 1
        if row < kept:
            before[number] += weight[row]
        else:
            change[number] += weight[row]
    return count
