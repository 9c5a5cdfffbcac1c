"""The work of a pass, from files to files: build the map of latest offsets, then write what remains.

A job says everything that is needed in plain values, and touches no file but those it names; its result names the new
files, which are whole and on disk but not yet in place.
"""

import dataclasses
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from headrace.records import BodyTooLarge
from headrace.records.compression import MAX_BODY_BYTES
from headrace.records.record import body_of
from headrace.storage.atomic_file import write_all
from headrace.storage.compaction.retained import BatchFilter, LastRecord, LatestOffsets, OffsetMap, TransactionWalk
from headrace.storage.errors import StorageError
from headrace.storage.filesystem import File, FileSystem, OsFileSystem
from headrace.storage.indexes import AbortedTransaction
from headrace.storage.names import CLEANED, LOG, file_name
from headrace.storage.scan import CHUNK, scan_file


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
    groups: tuple[CleanedGroup, ...]
    end_offset: int  # the log is clean up to here
    bytes_read: int
    bytes_written: int


def run(job: CleaningJob, filesystem: FileSystem, offsets: LatestOffsets | None = None) -> CleaningResult:
    """Do the job; a batch that is corrupt ends it with `CorruptBatch`, and nothing has changed."""
    offsets = OffsetMap(job.max_keys) if offsets is None else offsets
    _map_offsets(job, filesystem, offsets)
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


def _map_offsets(job: CleaningJob, filesystem: FileSystem, offsets: LatestOffsets) -> None:
    offsets.latest_offset = job.dirty_offset - 1
    transactions = TransactionWalk(job.aborted)
    ends = [base for base, _ in job.segments[1:]] + [job.uncleanable_offset]
    for (base, size), end in zip(job.segments, ends, strict=True):
        if end <= job.dirty_offset:
            continue
        for _, header, batch in scan_file(filesystem, f"{job.directory}/{file_name(base, LOG)}", size):
            if offsets.is_full:
                return
            if header.is_control:
                transactions.is_idle_marker(header, batch)
            elif not transactions.is_aborted(header) and header.last_offset >= job.dirty_offset:
                try:
                    body = body_of(batch, header, MAX_BODY_BYTES)
                except BodyTooLarge:  # from before the topic was compacted: it stays whole, and supersedes nothing
                    body = b""
                if body:
                    offsets.note(header, body)
            offsets.latest_offset = max(offsets.latest_offset, header.last_offset)
        # Compaction may have left a gap before the next segment: there is nothing more to come up to it.
        offsets.latest_offset = end - 1


def _clean(job: CleaningJob, filesystem: FileSystem, group: list[tuple[int, int]], batch_filter: BatchFilter) -> int:
    path = f"{job.directory}/{file_name(group[0][0], LOG)}{CLEANED}"
    target = filesystem.open(path, create=True)
    try:
        target.truncate(0)
        out = Output(target)
        for base, size in group:
            for _, header, batch in scan_file(filesystem, f"{job.directory}/{file_name(base, LOG)}", size):
                kept = batch_filter.retain(header, batch)
                if kept is not None:
                    out.write(kept)
        out.flush()
        target.sync()
    finally:
        target.close()
    return out.position


class Output:
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


# A cleaning job in a process of its own: the job as JSON on standard input, the result as JSON on standard output.
#
# The process is given the log's folder as a descriptor, not as a path: a log that is deleted meanwhile may have a
# successor at its path, and its files are not this job's.
#
# Walking records is work for the processor, and in the broker's process every moment of it would be taken from the
# threads that append and read. A small job is not worth a process and is done in place.
#
# It ends with its broker, however that ends: the next one gives the same names to files of its own, and what is still
# written by the last one's would be in them.

COMPILED_FROM_RECORDS = 100_000  # as many are walked in the time that it takes to import Numba
# Without garbage collection: an import is quicker without, and nothing here makes cycles.
_CHILD = "import gc; gc.disable(); from headrace.storage.compaction.job import work_as_child; work_as_child()"


class CleaningFailed(StorageError):
    """The worker ended without a result; the log is as it was."""


def run_in_process(job: CleaningJob, folder: File) -> CleaningResult:
    """Do the job in a child process and wait for it, without holding up other threads."""
    descriptor = folder.fileno()
    child = subprocess.run(
        # -P: not out of the folder where the broker was started, where a json.py is the user's and not Python's.
        [sys.executable, "-P", "-c", _CHILD, str(descriptor), str(os.getpid())],
        input=json.dumps(dataclasses.asdict(dataclasses.replace(job, directory="."))).encode(),
        capture_output=True,
        check=False,
        pass_fds=(descriptor,),
    )
    if child.returncode != 0:
        reason = child.stderr.decode(errors="replace").strip().splitlines()
        raise CleaningFailed(f"compaction of {job.directory} failed: {reason[-1] if reason else child.returncode}")
    return _decode_result(json.loads(child.stdout))


def _decode_job(data: dict[str, Any]) -> CleaningJob:
    return CleaningJob(
        **{
            **data,
            "segments": tuple(map(tuple, data["segments"])),
            "aborted": tuple(AbortedTransaction(*entry) for entry in data["aborted"]),
            "producers": {int(key): LastRecord(*value) for key, value in data["producers"].items()},
        }
    )


def _decode_result(data: dict[str, Any]) -> CleaningResult:
    groups = tuple(
        CleanedGroup(
            tuple(group["segments"]), tuple(AbortedTransaction(*entry) for entry in group["aborted"]), group["size"]
        )
        for group in data["groups"]
    )
    return CleaningResult(**{**data, "groups": groups})


def work_as_child() -> None:
    if sys.platform == "linux":
        with suppress(OSError, ImportError):  # better untied than not compacted
            from headrace.tether import tie_to  # which the broker itself needs not

            tie_to(int(sys.argv[2]))
    os.nice(5)  # whoever waits for an answer from the broker comes first
    os.fchdir(int(sys.argv[1]))
    job = _decode_job(json.load(sys.stdin))
    result = run(job, OsFileSystem(), _best_map(job))
    json.dump(dataclasses.asdict(result), sys.stdout)
    sys.stdout.flush()
    os._exit(0)  # to take Numba down in order takes as long as to compact 30 MB


def _best_map(job: CleaningJob) -> LatestOffsets:
    """The compiled one for many records, where its packages are installed and work; the broker itself needs none."""
    if _record_count(job) < COMPILED_FROM_RECORDS:
        return OffsetMap(job.max_keys)
    try:
        from headrace.storage.compaction.columnar import OffsetTable

        table = OffsetTable(job.max_keys, os.urandom(16))
        table.try_out()
    except Exception:  # noqa: BLE001 - a log that is not compacted fills a disk: whatever is wrong, the other one works
        return OffsetMap(job.max_keys)
    return table


def _record_count(job: CleaningJob) -> int:
    """How many records there are, about: what was cleaned before is taken to be as large as what was not."""
    ends = [base for base, _ in job.segments[1:]] + [job.uncleanable_offset]
    dirty_bytes = sum(size for (_, size), end in zip(job.segments, ends, strict=True) if end > job.dirty_offset)
    return (job.uncleanable_offset - job.dirty_offset) * sum(size for _, size in job.segments) // max(dirty_bytes, 1)
