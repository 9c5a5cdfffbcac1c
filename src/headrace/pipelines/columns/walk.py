"""The walk over the records of uncompressed batch bodies, and gathering what it found. Compiled; arrays in, arrays out.

A record is `length, attributes i8, timestamp delta, offset delta, key, value, headers`, every number but the attributes
a zig-zag varint, a length of -1 standing for null.
"""

import numpy as np
from numpy.typing import NDArray

from headrace.jit import compiled

Bytes = NDArray[np.uint8]
Longs = NDArray[np.int64]

_BROKEN = -1  # the answer of `varint_at` where no number ends before the limit


@compiled
def varint_at(arena: Bytes, position: int, limit: int) -> tuple[int, int]:
    """A zig-zag varint of at most 64 bits, and the position behind it; -1 for the position where it does not end."""
    value = np.uint64(0)
    shift = np.uint64(0)
    while position < limit:
        byte = arena[position]
        position += 1
        value |= np.uint64(byte & 0x7F) << shift
        if byte < 0x80:
            return np.int64(value >> np.uint64(1)) ^ -np.int64(value & np.uint64(1)), position
        shift += np.uint64(7)
        if shift > np.uint64(63):
            break
    return 0, _BROKEN


@compiled
def walk(
    arena: Bytes,
    bodies: Longs,
    first_offset: int,
    until_offset: int,
    places: Longs,
) -> int:
    """Fill `places` with what each record is and where its parts are; the number of records, or a broken place below 0.

    `bodies` has a row per batch: start, end, record count, base offset, base timestamp, and the one timestamp of all
    its records or -1. `places` has eight rows: offset, timestamp, key at, key size, value at, value size, headers at,
    end. Records before `first_offset` or from `until_offset` on are walked over: a batch comes whole, whatever was
    asked for.
    """
    found = 0
    for body in range(bodies.shape[0]):
        position, limit = bodies[body, 0], bodies[body, 1]
        base_offset, base_timestamp, append_time = bodies[body, 3], bodies[body, 4], bodies[body, 5]
        for _ in range(bodies[body, 2]):
            start = position
            size, position = varint_at(arena, position, limit)
            if position < 0 or size < 1 or size > limit - position:
                return -1 - start
            end = position + size
            timestamp_delta, position = varint_at(arena, position + 1, end)
            if position < 0:
                return -1 - start
            offset_delta, position = varint_at(arena, position, end)
            if position < 0:
                return -1 - start
            key_size, key_at = varint_at(arena, position, end)
            if key_at < 0 or key_size > end - key_at:
                return -1 - start
            position = key_at + key_size if key_size > 0 else key_at
            value_size, value_at = varint_at(arena, position, end)
            if value_at < 0 or value_size > end - value_at:
                return -1 - start
            headers_at = value_at + value_size if value_size > 0 else value_at
            if headers_at >= end:
                return -1 - start
            position = end
            offset = base_offset + offset_delta
            if first_offset <= offset < until_offset:
                places[0, found] = offset
                places[1, found] = base_timestamp + timestamp_delta if append_time == -1 else append_time
                places[2, found] = key_at
                places[3, found] = max(key_size, -1)
                places[4, found] = value_at
                places[5, found] = max(value_size, -1)
                places[6, found] = headers_at
                places[7, found] = end
                found += 1
        if position != limit:
            return -1 - position
    return found


@compiled
def ends_of(sizes: Longs, ends: NDArray[np.int32]) -> None:
    """Arrow's offsets for values of these sizes, null (below 0) taking none; `ends` is one longer."""
    total = 0
    ends[0] = 0
    for row in range(sizes.shape[0]):
        if sizes[row] > 0:
            total += sizes[row]
        ends[row + 1] = total


@compiled
def gather(arena: Bytes, at: Longs, ends: NDArray[np.int32], out: Bytes) -> None:
    """Copy the values at these places one behind the other."""
    for row in range(at.shape[0]):
        start = ends[row]
        source = at[row]
        size = ends[row + 1] - start
        for i in range(size):
            out[start + i] = arena[source + i]


@compiled
def count_headers(arena: Bytes, headers_at: Longs, ends: Longs, counts: Longs) -> int:
    """How many headers each record has, every one checked to lie inside it; the sum, or a broken place below 0."""
    total = 0
    for row in range(headers_at.shape[0]):
        end = ends[row]
        count, position = varint_at(arena, headers_at[row], end)
        if position < 0 or count < 0 or count > end - position:
            return -1 - headers_at[row]
        for _ in range(count):
            size, position = varint_at(arena, position, end)
            if position < 0 or size < 0 or size > end - position:
                return -1 - headers_at[row]
            size, position = varint_at(arena, position + size, end)
            if position < 0 or size > end - position:
                return -1 - headers_at[row]
            position += max(size, 0)
        if position != end:
            return -1 - headers_at[row]
        counts[row] = count
        total += count
    return total


@compiled
def place_headers(arena: Bytes, headers_at: Longs, ends: Longs, places: Longs) -> None:
    """Fill `places` (name at, name size, value at, value size) with every header; `count_headers` has checked them."""
    found = 0
    for row in range(headers_at.shape[0]):
        count, position = varint_at(arena, headers_at[row], ends[row])
        for _ in range(count):
            size, position = varint_at(arena, position, ends[row])
            places[0, found] = position
            places[1, found] = size
            size, position = varint_at(arena, position + size, ends[row])
            places[2, found] = position
            places[3, found] = max(size, -1)
            position += max(size, 0)
            found += 1
