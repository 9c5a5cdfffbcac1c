"""Arrow columns to record batches that are ready to be produced, one list per partition.

Rows keep their order within a partition. A key always goes to the partition that Kafka's own clients give it; rows
without a key fill one partition after another, a batch each, which is what the sticky partitioner comes to.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from headrace.jit import compiled
from headrace.pipelines.columns.walk import Bytes, Longs
from headrace.records import Codec, compress
from headrace.records.batch import MAGIC, TRANSACTIONAL, BatchHeader, assemble

Ends = NDArray[np.int32]
BATCH_BYTES = 512 * 1024  # before compression; half of what a topic takes by default
_NO_BYTES = np.zeros(1, np.uint8)
_SEQUENCE_MASK = 2**31 - 1


@dataclass(frozen=True, slots=True)
class Spans:
    """A binary column as its parts: bytes, where each value ends, and which are null."""

    data: Bytes
    ends: Ends
    is_null: NDArray[np.bool_]

    def __post_init__(self) -> None:
        # Some of Arrow's buffers can be written and some cannot, and a loop is compiled for each mixture of them.
        for part in (self.data, self.ends, self.is_null):
            part.flags.writeable = False

    @classmethod
    def of(cls, column: pa.Array) -> "Spans":
        """The parts of a binary or string column, without a copy where the array begins at its buffers' beginning."""
        rows = len(column)
        if rows == 0:
            return cls(_NO_BYTES, np.zeros(1, np.int32), np.zeros(0, np.bool_))
        _, ends, data = column.buffers()
        offsets = np.frombuffer(ends, np.int32)[column.offset : column.offset + rows + 1]
        content = np.frombuffer(data, np.uint8) if data is not None and data.size else _NO_BYTES
        return cls(content, offsets, _nulls(column))

    @classmethod
    def nulls(cls, rows: int) -> "Spans":
        """A column in which every row is null."""
        return cls(_NO_BYTES, np.zeros(rows + 1, np.int32), np.ones(rows, np.bool_))


def _nulls(column: pa.Array) -> NDArray[np.bool_]:
    if not column.null_count:
        return np.zeros(len(column), np.bool_)
    nulls: NDArray[np.bool_] = column.is_null().to_numpy(zero_copy_only=False)
    return nulls


@dataclass(frozen=True, slots=True)
class Outgoing:
    """Rows to be written to one topic."""

    keys: Spans
    values: Spans
    timestamps: Longs
    first_header: Longs
    header_names: Spans
    header_values: Spans
    header_size: Longs
    size: Longs

    def __len__(self) -> int:
        return len(self.timestamps)


def outgoing(
    rows: int,
    *,
    values: pa.Array | None,
    keys: pa.Array | None,
    headers: pa.Array | None,
    timestamps: Longs,
) -> Outgoing:
    """Columns, each of them optional but the timestamps, as what the encoder takes."""
    key_spans = Spans.of(keys) if keys is not None else Spans.nulls(rows)
    value_spans = Spans.of(values) if values is not None else Spans.nulls(rows)
    first, names, contents = _headers(rows, headers)
    header_size = np.empty(rows, np.int64)
    header_sizes(first, names.ends, contents.ends, contents.is_null, header_size)
    size = np.empty(rows, np.int64)
    record_sizes(key_spans.ends, key_spans.is_null, value_spans.ends, value_spans.is_null, header_size, size)
    return Outgoing(key_spans, value_spans, timestamps, first, names, contents, header_size, size)


def _headers(rows: int, headers: pa.Array | None) -> tuple[Longs, Spans, Spans]:
    if headers is None:
        return np.zeros(rows + 1, np.int64), Spans.nulls(0), Spans.nulls(0)
    counts = headers.value_lengths().fill_null(0).to_numpy().astype(np.int64)
    first = np.zeros(rows + 1, np.int64)
    np.cumsum(counts, out=first[1:])
    pairs = headers.flatten()  # null lists hold nothing
    names, contents = pairs.flatten()
    return first, Spans.of(names.cast(pa.string())), Spans.of(contents.cast(pa.binary()))


def partitions_by_key(out: Outgoing, rows: Longs, partitions: int) -> Longs:
    """For each of these rows the partition of its key, -1 where it has none; other rows are -1 too."""
    chosen = np.full(len(out), -1, np.int64)
    murmur2_partitions(rows, out.keys.data, out.keys.ends, out.keys.is_null, partitions, chosen)
    return chosen


def spread(size: Longs, rows: Longs, partitions: int, first: int, batch_bytes: int) -> Longs:
    """A partition for each of these rows, that have no key: one is filled with a batch, then comes the next."""
    before = np.cumsum(size[rows]) - size[rows]
    return np.asarray((first + before // batch_bytes) % partitions, np.int64)


def batches_of(out: Outgoing, rows: Longs, batch_bytes: int = BATCH_BYTES) -> Iterator[Longs]:
    """The rows of one partition in stretches that each make a batch."""
    ends = np.cumsum(out.size[rows])
    start = 0
    while start < len(rows):
        before = ends[start - 1] if start else 0
        stop = max(int(np.searchsorted(ends, before + batch_bytes, side="right")), start + 1)
        yield rows[start:stop]
        start = stop


@dataclass(frozen=True, slots=True)
class Stamp:
    """Whose batch it is, and which of that producer's in the partition; -1 for nobody's."""

    producer_id: int = -1
    epoch: int = -1
    sequence: int = -1
    transactional: bool = False

    def after(self, records: int) -> "Stamp":
        """The stamp of the batch behind one of so many records."""
        if self.sequence < 0:
            return self
        return Stamp(self.producer_id, self.epoch, self.sequence + records & _SEQUENCE_MASK, self.transactional)


def encode(out: Outgoing, rows: Longs, stamp: Stamp, codec: Codec) -> bytes:
    """One batch with these rows, in this order."""
    buffer = np.empty(int(out.size[rows].sum()), np.uint8)
    written, highest = put_records(
        rows,
        out.timestamps,
        out.keys.data,
        out.keys.ends,
        out.keys.is_null,
        out.values.data,
        out.values.ends,
        out.values.is_null,
        out.first_header,
        out.header_names.data,
        out.header_names.ends,
        out.header_values.data,
        out.header_values.ends,
        out.header_values.is_null,
        out.header_size,
        buffer,
    )
    header = BatchHeader(
        base_offset=0,
        length=0,
        leader_epoch=-1,
        magic=MAGIC,
        crc=0,
        attributes=codec | (TRANSACTIONAL if stamp.transactional else 0),
        last_offset_delta=len(rows) - 1,
        base_timestamp=int(out.timestamps[rows[0]]),
        max_timestamp=int(highest),
        producer_id=stamp.producer_id,
        producer_epoch=stamp.epoch,
        base_sequence=stamp.sequence,
        record_count=len(rows),
    )
    return assemble(header, compress(codec, buffer[:written].tobytes()))


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
