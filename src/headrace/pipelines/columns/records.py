"""Fetched record batches as columns of places and numbers over one arena of bytes.

Nothing is copied that need not be: if no batch is compressed the arena is the fetched buffer itself.
"""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from headrace.pipelines.columns.walk import Bytes, Longs, walk
from headrace.records import HEADER_SIZE, BatchHeader, CorruptBatch, crc_of
from headrace.records.compression import Codec, decompress

FOR_EVER = 2**63 - 1


@dataclass(frozen=True, slots=True)
class RecordColumns:
    """Records of one partition, a row each; a size of -1 is null. Places point into `arena`."""

    arena: Bytes
    offset: Longs
    timestamp: Longs
    key_at: Longs
    key_size: Longs
    value_at: Longs
    value_size: Longs
    headers_at: Longs
    end: Longs
    is_append_time: NDArray[np.bool_]

    def __len__(self) -> int:
        return len(self.offset)


def columns_of(
    batches: Iterable[tuple[BatchHeader, memoryview]], *, first_offset: int = 0, until_offset: int = FOR_EVER
) -> RecordColumns:
    """The records of some whole batches, between two offsets; raises `CorruptBatch` where the bytes do not add up."""
    chosen = list(batches)
    for header, batch in chosen:
        if crc_of(batch) != header.crc:
            raise CorruptBatch(
                f"the checksum does not match at offset {header.base_offset}: the batch was altered on its way or on "
                "the broker's disk"
            )
    bodies = [_body(header, batch) for header, batch in chosen]
    arena = np.frombuffer(bodies[0] if len(bodies) == 1 else b"".join(bodies), np.uint8)
    # Some buffers can be written and some cannot, and a loop is compiled for each kind: one kind is enough.
    arena.flags.writeable = False
    rows = np.empty((len(chosen), 6), np.int64)
    start = 0
    for row, ((header, _), body) in enumerate(zip(chosen, bodies, strict=True)):
        stamp = header.max_timestamp if header.is_log_append_time else -1
        rows[row] = (start, start + len(body), header.record_count, header.base_offset, header.base_timestamp, stamp)
        start += len(body)
    if len(rows) and rows[:, 2].min() < 0:
        raise CorruptBatch("a batch announces a negative number of records")
    # No record is shorter than seven bytes: a count that the bytes cannot hold must not decide how much is reserved.
    places = np.empty((8, min(int(rows[:, 2].sum()), len(arena) // 7)), np.int64)
    if len(rows) and bool((rows[:, 2] > (rows[:, 1] - rows[:, 0]) // 7).any()):
        raise CorruptBatch("a batch announces more records than it has bytes for")
    found = walk(arena, rows, first_offset, until_offset, places)
    if found < 0:
        raise CorruptBatch("a record is cut short, or longer than its batch", -1 - found)
    append_times = np.repeat(rows[:, 5] != -1, rows[:, 2]) if (rows[:, 5] != -1).any() else np.zeros(found, np.bool_)
    if len(append_times) != found:  # some records were walked over; batches are few here, so looking them up is cheap
        owner = np.searchsorted(rows[:, 3], places[0, :found], side="right") - 1
        append_times = (rows[:, 5] != -1)[owner]
    offset, timestamp, key_at, key_size, value_at, value_size, headers_at, end = places[:, :found]
    return RecordColumns(
        arena, offset, timestamp, key_at, key_size, value_at, value_size, headers_at, end, append_times
    )


def _body(header: BatchHeader, batch: memoryview) -> bytes | memoryview:
    body = batch[HEADER_SIZE : header.size]
    return body if header.codec == Codec.NONE else decompress(header.codec, body)
