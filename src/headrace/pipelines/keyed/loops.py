"""The loops over keys, compiled: writing keys as bytes, grouping, finding, and resolving what levels hold.

A key is a span of bytes in an arena (`ends[i - 1]` to `ends[i]`) and has a hash. Keys are in order by hash, then by
bytes. Two keys are the same if their bytes are: the hash only makes it quick to see that they are not.
"""

import numpy as np
from numpy.typing import NDArray

from headrace.jit import compiled

Longs = NDArray[np.int64]
Bytes = NDArray[np.uint8]
Flags = NDArray[np.bool_]


@compiled
def write_fixed(arena: Bytes, at: Longs, source: Bytes, width: int, valid: Flags) -> None:
    """A column of cells of one width: a byte that says whether it is there, and the cell."""
    for row in range(len(at)):
        place = at[row]
        if valid[row]:
            arena[place] = 1
            for index in range(width):
                arena[place + 1 + index] = source[row * width + index]
            at[row] = place + 1 + width
        else:
            arena[place] = 0
            at[row] = place + 1


@compiled
def read_fixed(arena: Bytes, at: Longs, target: Bytes, width: int, valid: Flags) -> None:
    """The way back from `write_fixed`."""
    for row in range(len(at)):
        place = at[row]
        valid[row] = arena[place] == 1
        at[row] = place + 1
        if valid[row]:
            for index in range(width):
                target[row * width + index] = arena[place + 1 + index]
            at[row] = place + 1 + width


@compiled
def write_spans(arena: Bytes, at: Longs, source: Bytes, ends: Longs, valid: Flags) -> None:
    """A column of cells of any length: a byte that says whether it is there, four with its length, and the cell."""
    for row in range(len(at)):
        place = at[row]
        if not valid[row]:
            arena[place] = 0
            at[row] = place + 1
            continue
        arena[place] = 1
        begin, end = ends[row], ends[row + 1]
        length = end - begin
        for index in range(4):
            arena[place + 1 + index] = (length >> (8 * index)) & 255
        for index in range(length):
            arena[place + 5 + index] = source[begin + index]
        at[row] = place + 5 + length


@compiled
def read_sizes(arena: Bytes, at: Longs, begins: Longs, sizes: Longs) -> None:
    """Where each cell of such a column lies and how long it is; -1 if it is null."""
    for row in range(len(at)):
        place = at[row]
        if arena[place] == 0:
            begins[row] = 0
            sizes[row] = -1
            at[row] = place + 1
            continue
        length = 0
        for index in range(4):
            length += int(arena[place + 1 + index] * (1 << (8 * index)))
        begins[row] = place + 5
        sizes[row] = length
        at[row] = place + 5 + length


@compiled
def compare(a: Bytes, a_begin: int, a_end: int, b: Bytes, b_begin: int, b_end: int) -> int:
    """Below 0, 0 or above 0, as the first span comes before, equals or comes after the second."""
    length = min(a_end - a_begin, b_end - b_begin)
    for index in range(length):
        # Not by subtraction: bytes are unsigned, and so would be the difference.
        one, other = a[a_begin + index], b[b_begin + index]
        if one != other:
            return -1 if one < other else 1
    return (a_end - a_begin) - (b_end - b_begin)


@compiled
def group(hashes: Longs, begins: Longs, ends: Longs, arena: Bytes, numbers: Longs, first: Longs) -> int:
    """Number the distinct keys as they come: `numbers[row]`, and `first[number]` is its first row; how many."""
    size = 16
    while size < 2 * len(hashes):
        size *= 2
    slots = np.full(size, -1, np.int64)
    mask = size - 1
    count = 0
    for row in range(len(hashes)):
        own = hashes[row]
        # Buckets are chosen by the low bits, so within one these are alike: the high ones are mixed in.
        slot = (own ^ (own >> 32) ^ (own >> 17)) & mask
        while True:
            number = slots[slot]
            if number < 0:
                slots[slot] = count
                first[count] = row
                numbers[row] = count
                count += 1
                break
            other = first[number]
            if hashes[other] == own and compare(arena, begins[row], ends[row], arena, begins[other], ends[other]) == 0:
                numbers[row] = number
                break
            slot = (slot + 1) & mask
    return count


@compiled
def order_ties(order: Longs, hashes: Longs, begins: Longs, ends: Longs, arena: Bytes) -> None:
    """Put what is already in the order of hashes into that of keys; equal keys stay in the order they have."""
    at = 0
    while at < len(order):
        end = at + 1
        while end < len(order) and hashes[order[end]] == hashes[order[at]]:
            end += 1
        for index in range(at + 1, end):
            moving = order[index]
            place = index
            while (
                place > at
                and compare(
                    arena, begins[order[place - 1]], ends[order[place - 1]], arena, begins[moving], ends[moving]
                )
                > 0
            ):
                order[place] = order[place - 1]
                place -= 1
            order[place] = moving
        at = end


@compiled
def merge_orders(
    older: Longs, newer: Longs, hashes: Longs, begins: Longs, ends: Longs, arena: Bytes, merged: Longs
) -> None:
    """Two lists of places, each in the order of keys, as one; of equal keys the older comes first."""
    first = 0
    second = 0
    for at in range(len(merged)):
        if second == len(newer):
            is_first = True
        elif first == len(older):
            is_first = False
        else:
            one, other = older[first], newer[second]
            is_first = hashes[one] < hashes[other] or (
                hashes[one] == hashes[other]
                and compare(arena, begins[one], ends[one], arena, begins[other], ends[other]) <= 0
            )
        if is_first:
            merged[at] = older[first]
            first += 1
        else:
            merged[at] = newer[second]
            second += 1


@compiled
def number_equal(order: Longs, hashes: Longs, begins: Longs, ends: Longs, arena: Bytes, numbers: Longs) -> int:
    """Number the distinct keys of what is in order: `numbers[place]` grows by one with each new key."""
    count = -1
    for place in range(len(order)):
        this = order[place]
        same = False
        if place > 0:
            last = order[place - 1]
            same = (
                hashes[this] == hashes[last]
                and compare(arena, begins[this], ends[this], arena, begins[last], ends[last]) == 0
            )
        if not same:
            count += 1
        numbers[place] = count
    return count + 1


@compiled
def find(
    hashes: Longs, ends: Longs, arena: Bytes, run_hashes: Longs, run_ends: Longs, run_arena: Bytes, found: Longs
) -> int:
    """For each key (in order) its place in a run (in order), or -1; how many were found.

    Both are in order, so the search goes on from where it was, in steps that double.
    """
    low = 0
    count = 0
    total = len(run_hashes)
    for index in range(len(hashes)):
        own = hashes[index]
        step = 1
        high = low
        while high < total and run_hashes[high] < own:
            low = high + 1
            high += step
            step *= 2
        high = min(high, total)
        while low < high:
            middle = (low + high) // 2
            if run_hashes[middle] < own:
                low = middle + 1
            else:
                high = middle
        found[index] = -1
        place = low
        begin = ends[index - 1] if index else 0
        while place < total and run_hashes[place] == own:
            run_begin = run_ends[place - 1] if place else 0
            if compare(arena, begin, ends[index], run_arena, run_begin, run_ends[place]) == 0:
                found[index] = place
                count += 1
                break
            place += 1
    return count


@compiled
def resolve(
    numbers: Longs,
    replaces: Flags,
    begins: Longs,
    ends: Longs,
    times: Longs,
    bound: int,
    rows: Longs,
    row_ends: Longs,
    replaced: Flags,
) -> int:
    """What holds of the entries of some keys: `numbers` (not falling) says whose, older entries of a key come first.

    An entry that replaces hides the key's older ones. Rows whose time lies before the bound are left out, the rest of a
    key is put in the order of time; without times (an empty array) rows stay as they are. Gives each key's rows, where
    they end, and whether an entry replaced; how many rows there are.
    """
    count = 0
    at = 0
    while at < len(numbers):
        end = at + 1
        while end < len(numbers) and numbers[end] == numbers[at]:
            end += 1
        start = at
        replaced[numbers[at]] = False
        for index in range(at, end):
            if replaces[index]:
                start = index
                replaced[numbers[at]] = True
        key_begin = count
        in_order = True
        for index in range(start, end):
            for row in range(begins[index], ends[index]):
                if len(times):
                    if times[row] < bound:
                        continue
                    if count > key_begin and times[row] < times[rows[count - 1]]:
                        in_order = False
                rows[count] = row
                count += 1
        if not in_order:
            mine = rows[key_begin:count].copy()
            rows[key_begin:count] = mine[np.argsort(times[mine], kind="mergesort")]
        row_ends[numbers[at]] = count
        at = end
    return count


@compiled
def copy_spans(source: Bytes, begins: Longs, ends: Longs, target: Bytes, target_ends: Longs) -> None:
    """The spans one behind the other."""
    at = 0
    for index in range(len(begins)):
        for place in range(begins[index], ends[index]):
            target[at] = source[place]
            at += 1
        target_ends[index] = at
