"""Finding records by time: what ListOffsets asks of a log.

The time index leads to a stretch of batches, their headers to one batch, and only that one is decoded, as far as it
has to be; one that decompresses to more than is looked into stands for its first record. Reads files, and may take a
while: a broker does it in a thread.
"""

from collections.abc import Iterator
from typing import NamedTuple

from headrace.records import BatchHeader, BodyTooLarge, Record
from headrace.records.compression import MAX_BODY_BYTES
from headrace.records.record import body_of, decode
from headrace.storage.log import Log
from headrace.storage.segment import Segment


class FoundRecord(NamedTuple):
    """A record found by its time."""

    offset: int
    timestamp: int
    leader_epoch: int


def first_at_or_after(log: Log, timestamp: int) -> FoundRecord | None:
    """The first record, by offset, that is at least as young as `timestamp`."""
    start = log.start_offset
    for segment in log.segments:
        if not segment.size or segment.largest_timestamp < timestamp:
            continue
        position = segment.position_of(max(segment.indexes.times.lookup(timestamp), start))
        for at, header in segment.headers(position):
            if header.max_timestamp < timestamp or header.last_offset < start:
                continue
            for record in _records_at(segment, at, header):
                if record.timestamp >= timestamp and record.offset >= start:
                    return FoundRecord(record.offset, record.timestamp, header.leader_epoch)
    return None


def youngest(log: Log) -> FoundRecord | None:
    """The record with the largest timestamp, the first of them if there are several."""
    filled = [segment for segment in log.segments if segment.size]
    if not filled:
        return None
    found = first_at_or_after(log, max(segment.largest_timestamp for segment in filled))
    # What a segment says of its youngest record may be of one before the start, or one that compaction has removed.
    return found or _youngest_of_all(log, filled)


def _youngest_of_all(log: Log, segments: list[Segment]) -> FoundRecord | None:
    best: FoundRecord | None = None
    for segment in segments:
        for at, header in segment.headers():
            if header.last_offset < log.start_offset or (best and header.max_timestamp <= best.timestamp):
                continue
            for record in _records_at(segment, at, header):
                if record.offset >= log.start_offset and not (best and record.timestamp <= best.timestamp):
                    best = FoundRecord(record.offset, record.timestamp, header.leader_epoch)
    return best


def _records_at(segment: Segment, position: int, header: BatchHeader) -> Iterator[Record]:
    try:
        body = body_of(segment.file.read_at(header.size, position), header, MAX_BODY_BYTES)
    except BodyTooLarge:
        return iter([Record(header.base_offset, header.max_timestamp, None, None)])
    return decode(header, body)
