"""Finding what a fetch gets: one stretch of one segment, and which of its transactions were rolled back.

Works on the segments as they were when the reader came, and takes no lock.
"""

from bisect import bisect_right
from collections.abc import Sequence
from typing import NamedTuple

from headrace.storage.segment import FileSlice, Segment
from headrace.storage.transaction_index import AbortedTransaction


class LogRead(NamedTuple):
    """Bytes of whole batches (the last may be cut), and the aborted transactions among them if they were asked for."""

    slice: FileSlice | None
    aborted: Sequence[AbortedTransaction] = ()


def read_segments(
    segments: Sequence[Segment], offset: int, limit: int, end: int, max_bytes: int, *, committed: bool
) -> LogRead:
    """Batches from the one that holds `offset` on, none that begins at `limit` or behind it; `end` is the log's."""
    for index in range(index_of(segments, offset), len(segments)):
        segment = segments[index]
        place = segment.find(offset)
        if place is None:
            continue
        position, size = place
        stop = segment.size if limit == end else segment.position_of(limit)
        if stop <= position:
            return LogRead(None)
        found = segment.slice_from(position, size, max_bytes, stop)
        if not committed:
            return LogRead(found)
        bound = segment.indexes.offsets.offset_behind(found.position + found.size)
        if bound is None:
            bound = segments[index + 1].base_offset if index + 1 < len(segments) else end
        return LogRead(found, collect_aborted(segments[index:], offset, bound))
    return LogRead(None)


def index_of(segments: Sequence[Segment], offset: int) -> int:
    """The segment in which `offset` would be."""
    return max(bisect_right(segments, offset, key=lambda segment: segment.base_offset) - 1, 0)


def collect_aborted(segments: Sequence[Segment], start: int, end: int) -> list[AbortedTransaction]:
    """The aborted transactions that touch offsets `start` to `end`; their markers may stand in later segments."""
    collected = []
    for segment in segments:
        found, complete = segment.indexes.transactions.overlapping(start, end)
        collected += found
        if complete:
            break
    return collected
