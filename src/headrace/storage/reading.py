"""Finding what a reader gets: batches by offset for a fetch, records by time for ListOffsets.

A fetch gets one stretch of one segment, and which of its transactions were rolled back. It works on the segments as
they were when the reader came, and takes no lock.

By time, the time index leads to a stretch of batches, their headers to one batch, and only that one is decoded, as far
as it has to be; one that decompresses to more than is looked into stands for its first record. That reads files, and
may take a while: a broker does it in a thread.
"""

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from headrace.records import BatchHeader, BodyTooLarge, Record
from headrace.records.compression import MAX_BODY_BYTES
from headrace.records.record import body_of, decode
from headrace.storage.config import MAX_LONG
from headrace.storage.indexes import AbortedTransaction
from headrace.storage.segment import FileSlice, Segment

_WALKED_BYTES = 256 * 1024


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


def size_from(log: "Log", offset: int) -> int:
    """How many bytes batches take from the one that holds `offset` on."""
    segments = log.segments
    index = index_of(segments, offset)
    first = segments[index]
    return first.size - first.position_of(offset) + sum(segment.size for segment in segments[index + 1 :])


def offset_behind(log: "Log", offset: int, size: int, *, by_segment: bool = False) -> int:
    """Where the log has to begin for `size` bytes less from the batch that holds `offset` on; at most its end.

    `by_segment` frees whole segments, from the first one on.
    """
    segments = log.segments
    for segment in segments if by_segment else segments[index_of(segments, offset) :]:
        if size <= 0:
            return segment.base_offset
        start = 0 if by_segment else segment.position_of(offset)
        if by_segment or segment.size - start <= size:
            size -= segment.size - start
            continue
        if size > _WALKED_BYTES:  # by the index, which is rough
            bound = segment.indexes.offsets.offset_behind(start + size)
            if bound is not None:
                return bound + 1
        for _, header in segment.headers(start):
            if size <= 0:
                return header.base_offset
            size -= header.size
    return log.end_offset


def collect_aborted(segments: Sequence[Segment], start: int, end: int) -> list[AbortedTransaction]:
    """The aborted transactions that touch offsets `start` to `end`; their markers may stand in later segments."""
    collected = []
    for segment in segments:
        found, complete = segment.indexes.transactions.find_overlapping(start, end)
        collected += found
        if complete:
            break
    return collected


if TYPE_CHECKING:
    from headrace.storage.log import Log


class FoundRecord(NamedTuple):
    offset: int
    timestamp: int
    leader_epoch: int


def first_at_or_after(log: "Log", timestamp: int) -> FoundRecord | None:
    """The first record, by offset, that is at least as young as `timestamp`."""
    start = log.start_offset
    for segment in log.segments:
        if not segment.size or segment.largest_timestamp < timestamp:
            continue
        position = segment.position_of(max(segment.indexes.times.lookup(timestamp), start))
        for at, header in segment.headers(position):
            if header.max_timestamp < timestamp or header.last_offset < start:
                continue
            last = header.last_offset
            for record in _records_at(segment, at, header):
                # Nobody looks into a batch that is produced: numbers that no answer could hold are not found.
                if timestamp <= record.timestamp <= MAX_LONG and start <= record.offset <= last:
                    return FoundRecord(record.offset, record.timestamp, header.leader_epoch)
    return None


def youngest(log: "Log") -> FoundRecord | None:
    """The record with the largest timestamp, the first of them if there are several."""
    filled = [segment for segment in log.segments if segment.size]
    if not filled:
        return None
    found = first_at_or_after(log, max(segment.largest_timestamp for segment in filled))
    # What a segment says of its youngest record may be of one before the start, or one that compaction has removed.
    return found or _youngest_of_all(log, filled)


def _youngest_of_all(log: "Log", segments: list[Segment]) -> FoundRecord | None:
    best: FoundRecord | None = None
    for segment in segments:
        for at, header in segment.headers():
            if header.last_offset < log.start_offset or (best and header.max_timestamp <= best.timestamp):
                continue
            for record in _records_at(segment, at, header):
                is_there = log.start_offset <= record.offset <= header.last_offset and record.timestamp <= MAX_LONG
                if is_there and not (best and record.timestamp <= best.timestamp):
                    best = FoundRecord(record.offset, record.timestamp, header.leader_epoch)
    return best


def _records_at(segment: Segment, position: int, header: BatchHeader) -> Iterator[Record]:
    try:
        body = body_of(segment.file.read_at(header.size, position), header, MAX_BODY_BYTES)
    except BodyTooLarge:
        return iter([Record(header.base_offset, header.max_timestamp, None, None)])
    return decode(header, body)
