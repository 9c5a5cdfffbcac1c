"""The work of a pass, from files to files: build the map of latest offsets, then write what remains.

A job says everything that is needed in plain values, and touches no file but those it names; its result names the
new files, which are whole and on disk but not yet in place.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from headrace.records import BodyTooLarge
from headrace.records.compression import MAX_BODY_BYTES
from headrace.records.record import body_of, walk
from headrace.storage.atomic_file import write_all
from headrace.storage.compaction.offset_map import OffsetMap
from headrace.storage.compaction.retained import BatchFilter, LastRecord
from headrace.storage.compaction.transactions import TransactionWalk
from headrace.storage.filesystem import File, FileSystem
from headrace.storage.names import CLEANED, LOG, file_name
from headrace.storage.scan import CHUNK, scan_file
from headrace.storage.transaction_index import AbortedTransaction


@dataclass(frozen=True, slots=True)
class CleaningJob:
    """What to clean: all segments up to `uncleanable_offset`, with keys looked up from `dirty_offset` on."""

    directory: str
    segments: tuple[tuple[int, int], ...]  # base offset and bytes
    dirty_offset: int
    uncleanable_offset: int
    segment_bytes: int
    delete_retention_ms: int
    now_ms: int
    max_keys: int
    aborted: tuple[AbortedTransaction, ...]
    producers: Mapping[int, LastRecord]


@dataclass(frozen=True, slots=True)
class CleanedGroup:
    """Several segments that became one, under the first one's name with `.cleaned` behind it."""

    segments: tuple[int, ...]
    aborted: tuple[AbortedTransaction, ...]
    size: int


@dataclass(frozen=True, slots=True)
class CleaningResult:
    """What a pass achieved."""

    groups: tuple[CleanedGroup, ...]
    end_offset: int  # the log is clean up to here
    bytes_read: int
    bytes_written: int


def run(job: CleaningJob, filesystem: FileSystem) -> CleaningResult:
    """Do the job; a batch that is corrupt ends it with `CorruptBatch`, and nothing has changed."""
    offsets = _map_offsets(job, filesystem)
    end_offset = offsets.latest_offset + 1
    segments = [(base, size) for base, size in job.segments if base < end_offset]
    transactions = TransactionWalk(job.aborted)
    batch_filter = BatchFilter(
        offsets,
        transactions,
        job.producers,
        end_offset=job.uncleanable_offset,
        delete_retention_ms=job.delete_retention_ms,
        now_ms=job.now_ms,
        file_ends=[base for base, _ in job.segments],
    )
    groups = []
    for group in group_segments(segments, job.segment_bytes, job.uncleanable_offset):
        size = _clean(job, filesystem, group, batch_filter)
        needed, transactions.still_needed = transactions.still_needed, []
        groups.append(CleanedGroup(tuple(base for base, _ in group), tuple(needed), size))
    return CleaningResult(
        tuple(groups),
        end_offset,
        bytes_read=sum(size for _, size in segments),
        bytes_written=sum(group.size for group in groups),
    )


def group_segments(segments: list[tuple[int, int]], max_bytes: int, end_offset: int) -> list[list[tuple[int, int]]]:
    """Neighbours that fit into one segment together, by bytes and by the 32 bits that an offset has in an index."""
    ends = [base for base, _ in segments[1:]] + [end_offset]
    groups: list[list[tuple[int, int]]] = []
    total = 0
    for segment, end in zip(segments, ends, strict=True):
        total += segment[1]
        if groups and total <= max_bytes and end - groups[-1][0][0] < 2**31:
            groups[-1].append(segment)
        else:
            groups.append([segment])
            total = segment[1]
    return groups


def _map_offsets(job: CleaningJob, filesystem: FileSystem) -> OffsetMap:
    offsets = OffsetMap(job.max_keys)
    offsets.latest_offset = job.dirty_offset - 1
    transactions = TransactionWalk(job.aborted)
    ends = [base for base, _ in job.segments[1:]] + [job.uncleanable_offset]
    for (base, size), end in zip(job.segments, ends, strict=True):
        if end <= job.dirty_offset:
            continue
        for _, header, batch in scan_file(filesystem, f"{job.directory}/{file_name(base, LOG)}", size):
            if offsets.is_full:
                return offsets
            if header.is_control:
                transactions.is_idle_marker(header, batch)
            elif not transactions.is_aborted(header) and header.last_offset >= job.dirty_offset:
                try:
                    body = body_of(batch, header, MAX_BODY_BYTES)
                except BodyTooLarge:  # from before the topic was compacted: it stays whole, and supersedes nothing
                    body = b""
                for raw in walk(body, header.record_count) if body else ():
                    if raw.key_size >= 0:
                        key = body[raw.key_at : raw.key_at + raw.key_size]
                        offsets.put(key, header.base_offset + raw.offset_delta)
            offsets.latest_offset = max(offsets.latest_offset, header.last_offset)
        # Compaction may have left a gap before the next segment: there is nothing more to come up to it.
        offsets.latest_offset = end - 1
    return offsets


def _clean(job: CleaningJob, filesystem: FileSystem, group: list[tuple[int, int]], batch_filter: BatchFilter) -> int:
    path = f"{job.directory}/{file_name(group[0][0], LOG)}{CLEANED}"
    target = filesystem.open(path, create=True)
    try:
        target.truncate(0)
        out = _Output(target)
        for base, size in group:
            for _, header, batch in scan_file(filesystem, f"{job.directory}/{file_name(base, LOG)}", size):
                kept = batch_filter.retained(header, batch)
                if kept is not None:
                    out.write(kept)
        out.flush()
        target.sync()
    finally:
        target.close()
    return out.position


class _Output:
    """Writes in large pieces."""

    def __init__(self, file: File) -> None:
        self._file = file
        self._pending = bytearray()
        self.position = 0

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self._pending += data
        if len(self._pending) >= CHUNK:
            self.flush()

    def flush(self) -> None:
        write_all(self._file, self._pending, self.position)
        self.position += len(self._pending)
        self._pending = bytearray()
