"""Facts: what may be true of a document and what some query asks, each a small integer.

A fact is a token of a field, a pattern that some token of a field matches, a block of numbers or a cell on the globe
in which one of its values lies, or that it has a value at all. A query is filed under facts of which any document that
it matches has at least one, and its program asks for facts. A number is used again once no query needs the fact.

What always holds: fact 0 is true of every document. What is filed under a fact are pairs: a query's number with flags,
and a further fact that a match needs (-1: none). Tokens have keys from 0 on, places have negative ones; two places may
share a key and so a fact, so whoever files under a place has the value compared by a program.
"""

from collections.abc import Callable
from typing import Final

import numpy as np
from numpy.typing import NDArray

from headrace.jit import compiled
from headrace.percolation.index.blocks import NO_ROOM, SIZES, Blocks, give_back, size_class, take

Ints = NDArray[np.int32]
Longs = NDArray[np.int64]
Bytes = NDArray[np.uint8]

EVERY_DOCUMENT: Final = 0
NONE: Final = -1
# Flags of an entry, below the query's number.
HAS_PROGRAM, HAS_SIBLINGS, FLAG_BITS = 1, 2, 2


@compiled
def slot_of(key: int, keys: Longs) -> int:
    """Where a key would stand."""
    mixed = (key ^ (key >> 32)) * np.int64(-7046029254386353131)
    return (mixed ^ (mixed >> 29)) & (len(keys) - 1)


@compiled
def find_fact(key: int, keys: Longs, facts: Ints) -> int:
    """The fact of a key, or -1."""
    at = slot_of(key, keys)
    mask = len(keys) - 1
    while facts[at] >= 0:
        if keys[at] == key:
            return facts[at]
        at = (at + 1) & mask
    return -1


@compiled
def insert_fact(key: int, fact: int, keys: Longs, facts: Ints) -> None:
    at = slot_of(key, keys)
    mask = len(keys) - 1
    while facts[at] >= 0:
        at = (at + 1) & mask
    keys[at] = key
    facts[at] = fact


@compiled
def delete_fact(key: int, keys: Longs, facts: Ints) -> None:
    """Take a key out; those that stand behind it because of it move up."""
    mask = len(keys) - 1
    at = slot_of(key, keys)
    while keys[at] != key or facts[at] < 0:
        at = (at + 1) & mask
    hole = at
    facts[hole] = -1
    at = (at + 1) & mask
    while facts[at] >= 0:
        if ((at - slot_of(keys[at], keys)) & mask) >= ((at - hole) & mask):
            keys[hole] = keys[at]
            facts[hole] = facts[at]
            facts[at] = -1
            hole = at
        at = (at + 1) & mask


@compiled
def move_all(old_keys: Longs, old_facts: Ints, keys: Longs, facts: Ints) -> None:
    for each in range(len(old_keys)):
        if old_facts[each] >= 0:
            insert_fact(old_keys[each], old_facts[each], keys, facts)


@compiled
def add_entry(
    fact: int,
    entry: int,
    confirm: int,
    starts: Ints,
    counts: Ints,
    kinds: Bytes,
    words: Ints,
    free: Longs,
    sizes: Longs,
) -> bool:
    """File under a fact; false if there is no room, and nothing has changed."""
    count = counts[fact]
    at = starts[fact]
    if count == 0 or sizes[kinds[fact]] < 2 * count + 2:
        kind = size_class(2 * count + 2, sizes)
        new = take(kind, words, free, sizes)
        if new == NO_ROOM:
            return False
        for offset in range(2 * count):
            words[new + offset] = words[at + offset]
        if count > 0:
            give_back(at, kinds[fact], words, free)
        at = new
        starts[fact] = at
        kinds[fact] = kind
    words[at + 2 * count] = entry
    words[at + 2 * count + 1] = confirm
    counts[fact] = count + 1
    return True


@compiled
def remove_entry(fact: int, number: int, starts: Ints, counts: Ints, kinds: Bytes, words: Ints, free: Longs) -> None:
    """Take a query out from under a fact. The block stays until it is empty."""
    count = counts[fact]
    at = starts[fact]
    for each in range(count):
        if words[at + 2 * each] >> FLAG_BITS == number:
            words[at + 2 * each] = words[at + 2 * count - 2]
            words[at + 2 * each + 1] = words[at + 2 * count - 1]
            if count == 1:
                give_back(at, kinds[fact], words, free)
            counts[fact] = count - 1
            return


class Facts:
    """The facts that queries ask for, by key, and the queries filed under each."""

    def __init__(self) -> None:
        self.keys = np.zeros(1024, np.int64)
        self.numbers = np.full(1024, NONE, np.int32)
        self.starts = np.zeros(512, np.int32)
        self.counts = np.zeros(512, np.int32)
        self.kinds = np.zeros(512, np.uint8)
        self.uses = np.zeros(512, np.int32)
        """How many queries need the fact, whether filed under it or not."""
        self.own_keys = np.zeros(512, np.int64)
        # What a row of a batch sets: the row's serial number, and the first and last of the token's places in it.
        self.stamps = np.zeros(512, np.int32)
        self.firsts = np.zeros(512, np.int32)
        self.lasts = np.zeros(512, np.int32)
        self.entries = Blocks()
        self._count = 1  # EVERY_DOCUMENT
        self._keyed = 0
        self._free: list[int] = []

    def __len__(self) -> int:
        return self._count - 1 - len(self._free)

    @property
    def size_bytes(self) -> int:
        arrays = (self.keys, self.numbers, self.starts, self.counts, self.kinds, self.uses, self.own_keys)
        return sum(each.nbytes for each in (*arrays, self.stamps, self.firsts, self.lasts)) + self.entries.size_bytes

    def find(self, key: int) -> int:
        return int(find_fact(key, self.keys, self.numbers))

    def need(self, key: int) -> int:
        """The fact of a key, needed once more."""
        fact = self.find(key)
        if fact < 0:
            fact = self._new()
            self.own_keys[fact] = key
            self._keyed += 1
            if 3 * self._keyed > 2 * len(self.keys):
                old_keys, old_numbers = self.keys, self.numbers
                self.keys = np.zeros(2 * len(old_keys), np.int64)
                self.numbers = np.full(len(self.keys), NONE, np.int32)
                move_all(old_keys, old_numbers, self.keys, self.numbers)
            insert_fact(key, fact, self.keys, self.numbers)
        self.uses[fact] += 1
        return fact

    def rename(self, renamed: Callable[[Longs], Longs]) -> None:
        """Give facts other keys, all different again."""
        is_taken = self.numbers >= 0
        numbers = self.numbers[is_taken]
        old = renamed(self.keys[is_taken])
        self.own_keys[numbers] = old
        self.keys, self.numbers = np.zeros(len(self.keys), np.int64), np.full(len(self.keys), NONE, np.int32)
        move_all(old, numbers, self.keys, self.numbers)

    def need_again(self, fact: int) -> None:
        self.uses[fact] += 1

    def new(self) -> int:
        """A fact without a key, needed once: somebody else keeps in mind what it means, and calls `free` for it."""
        fact = self._new()
        self.uses[fact] = 1
        return fact

    def release(self, fact: int, *, has_key: bool = True) -> bool:
        """A query less needs it; true if that was the last one. Without a key it is not used again before `free`."""
        self.uses[fact] -= 1
        if self.uses[fact] > 0:
            return False
        if has_key:
            delete_fact(int(self.own_keys[fact]), self.keys, self.numbers)
            self._keyed -= 1
            self.free(fact)
        return True

    def free(self, fact: int) -> None:
        self._free.append(fact)

    def file(self, fact: int, entry: int, confirm: int) -> None:
        """File a query under a fact."""
        entries = self.entries
        while not add_entry(
            fact, entry, confirm, self.starts, self.counts, self.kinds, entries.words, entries.free, SIZES
        ):
            entries.grow(3 * int(self.counts[fact]) + 8)

    def unfile(self, fact: int, number: int) -> None:
        """Take a query out from under a fact."""
        entries = self.entries
        remove_entry(fact, number, self.starts, self.counts, self.kinds, entries.words, entries.free)

    def _new(self) -> int:
        if self._free:
            return self._free.pop()
        if self._count == len(self.starts):
            wanted = self._count + max(self._count // 4, 512)
            for name in ("starts", "counts", "kinds", "uses", "own_keys", "stamps", "firsts", "lasts"):
                old = getattr(self, name)
                larger = np.zeros(wanted, old.dtype)
                larger[: self._count] = old
                setattr(self, name, larger)
        self._count += 1
        return self._count - 1
