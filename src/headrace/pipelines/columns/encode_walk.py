"""Records out of columns, and Kafka's hash of a key. Compiled; arrays in, arrays out."""

import numpy as np
from numpy.typing import NDArray

from headrace.pipelines.columns.jit import compiled
from headrace.pipelines.columns.walk import Bytes, Longs

Ends = NDArray[np.int32]


@compiled
def varint_size(value: int) -> int:
    """The bytes of a number as a zig-zag varint."""
    left = np.uint64((np.int64(value) << 1) ^ (np.int64(value) >> 63))
    size = 1
    while left >= np.uint64(0x80):
        left >>= np.uint64(7)
        size += 1
    return size


@compiled
def put_varint(out: Bytes, to: int, value: int) -> int:
    """Write a zig-zag varint; the place behind it."""
    left = np.uint64((np.int64(value) << 1) ^ (np.int64(value) >> 63))
    while left >= np.uint64(0x80):
        out[to] = np.uint8((left & np.uint64(0x7F)) | np.uint64(0x80))
        left >>= np.uint64(7)
        to += 1
    out[to] = np.uint8(left)
    return to + 1


@compiled
def put_span(out: Bytes, to: int, data: Bytes, start: int, end: int) -> int:
    """Write a length and that many bytes; the place behind them."""
    to = put_varint(out, to, end - start)
    for i in range(end - start):
        out[to + i] = data[start + i]
    return to + end - start


@compiled
def span_size(size: int) -> int:
    """The bytes of a length and what it announces; -1 is null."""
    return varint_size(size) + max(size, 0)


@compiled
def header_sizes(first: Longs, names: Ends, values: Ends, value_null: NDArray[np.bool_], out: Longs) -> None:
    """The bytes of each record's headers, their count included; `first` has a row's first header, one row more."""
    for row in range(first.shape[0] - 1):
        size = varint_size(first[row + 1] - first[row])
        for header in range(first[row], first[row + 1]):
            size += span_size(names[header + 1] - names[header])
            size += span_size(-1 if value_null[header] else values[header + 1] - values[header])
        out[row] = size


@compiled
def murmur2_partitions(
    rows: Longs, data: Bytes, ends: Ends, is_null: NDArray[np.bool_], partitions: int, out: Longs
) -> None:
    """The partition of every key that is not null, as Kafka's Java client chooses it; other rows are left alone."""
    for row in rows:
        if is_null[row]:
            continue
        start, end = ends[row], ends[row + 1]
        length = end - start
        h = np.uint32(np.uint32(0x9747B28C) ^ np.uint32(length))
        at = start
        while at + 4 <= end:
            k = np.uint32(
                np.uint32(data[at])
                | (np.uint32(data[at + 1]) << np.uint32(8))
                | (np.uint32(data[at + 2]) << np.uint32(16))
                | (np.uint32(data[at + 3]) << np.uint32(24))
            )
            k = np.uint32(k * np.uint32(0x5BD1E995))
            k = np.uint32(k ^ (k >> np.uint32(24)))
            k = np.uint32(k * np.uint32(0x5BD1E995))
            h = np.uint32(np.uint32(h * np.uint32(0x5BD1E995)) ^ k)
            at += 4
        left = end - at
        if left > 0:
            tail = np.uint32(0)
            for i in range(left):
                tail |= np.uint32(data[at + i]) << np.uint32(8 * i)
            h = np.uint32(np.uint32(h ^ tail) * np.uint32(0x5BD1E995))
        h = np.uint32(np.uint32(h ^ (h >> np.uint32(13))) * np.uint32(0x5BD1E995))
        h = np.uint32(h ^ (h >> np.uint32(15)))
        out[row] = np.int64(h & np.uint32(0x7FFFFFFF)) % partitions


@compiled
def record_sizes(
    key_ends: Ends, key_null: NDArray[np.bool_], value_ends: Ends, value_null: NDArray[np.bool_], headers: Longs,
    out: Longs,
) -> None:  # fmt: skip
    """About the bytes of each record: exact but for its two deltas and its length, which take 16 at most."""
    for row in range(out.shape[0]):
        key = -1 if key_null[row] else key_ends[row + 1] - key_ends[row]
        value = -1 if value_null[row] else value_ends[row + 1] - value_ends[row]
        out[row] = 17 + span_size(key) + span_size(value) + headers[row]


@compiled
def put_records(
    rows: Longs,
    timestamps: Longs,
    keys: Bytes,
    key_ends: Ends,
    key_null: NDArray[np.bool_],
    values: Bytes,
    value_ends: Ends,
    value_null: NDArray[np.bool_],
    first_header: Longs,
    names: Bytes,
    name_ends: Ends,
    header_values: Bytes,
    header_value_ends: Ends,
    header_value_null: NDArray[np.bool_],
    header_size: Longs,
    out: Bytes,
) -> tuple[int, int]:
    """Write these rows as the records of one batch; the bytes written, and the highest timestamp."""
    to = 0
    base = timestamps[rows[0]]
    highest = base
    for index in range(rows.shape[0]):
        row = rows[index]
        delta = timestamps[row] - base
        highest = max(highest, timestamps[row])
        key = -1 if key_null[row] else key_ends[row + 1] - key_ends[row]
        value = -1 if value_null[row] else value_ends[row + 1] - value_ends[row]
        size = 1 + varint_size(delta) + varint_size(index) + span_size(key) + span_size(value) + header_size[row]
        to = put_varint(out, to, size)
        out[to] = 0
        to = put_varint(out, to + 1, delta)
        to = put_varint(out, to, index)
        to = put_varint(out, to, -1) if key < 0 else put_span(out, to, keys, key_ends[row], key_ends[row + 1])
        to = put_varint(out, to, -1) if value < 0 else put_span(out, to, values, value_ends[row], value_ends[row + 1])
        first, last = first_header[row], first_header[row + 1]
        to = put_varint(out, to, last - first)
        for header in range(first, last):
            to = put_span(out, to, names, name_ends[header], name_ends[header + 1])
            if header_value_null[header]:
                to = put_varint(out, to, -1)
            else:
                to = put_span(out, to, header_values, header_value_ends[header], header_value_ends[header + 1])
    return to, highest
