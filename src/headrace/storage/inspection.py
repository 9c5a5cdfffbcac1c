"""Looking at a data directory from outside: nothing is opened for writing, locked, recovered or changed.

For a person who wants to know what is there, also while a broker (ours or Kafka's) has the directory open.
"""

from collections.abc import Iterator
from typing import NamedTuple

from headrace.model import TopicPartition
from headrace.records import CorruptBatch, Record, records_of
from headrace.records.batch import BatchHeader
from headrace.storage import checkpoint
from headrace.storage.errors import StorageError
from headrace.storage.filesystem import FileSystem
from headrace.storage.names import LOG, file_name, offset_of
from headrace.storage.scan import find_batch, headers, scan, scan_file


class SegmentSummary(NamedTuple):
    path: str
    base_offset: int
    next_offset: int
    size_bytes: int
    batches: int
    records: int
    first_timestamp: int
    last_timestamp: int
    problem: str


class PartitionSummary(NamedTuple):
    partition: TopicPartition
    path: str
    start_offset: int
    segments: list[SegmentSummary]

    @property
    def end_offset(self) -> int:
        return self.segments[-1].next_offset if self.segments else self.start_offset

    @property
    def size_bytes(self) -> int:
        return sum(segment.size_bytes for segment in self.segments)


class Problem(NamedTuple):
    """A stretch of a file that is no valid batch."""

    path: str
    position: int
    size: int
    reason: str


def partitions_in(filesystem: FileSystem, path: str) -> list[TopicPartition]:
    if not filesystem.exists(path):
        raise StorageError(f"{path} does not exist: name a data directory")
    found = (TopicPartition.from_folder(name) for name in filesystem.list(path))
    return sorted(partition for partition in found if partition)


def summarize(filesystem: FileSystem, path: str, partition: TopicPartition) -> PartitionSummary:
    folder = f"{path}/{partition}"
    segments = [_summarize_segment(filesystem, file, base) for base, file in segment_files(filesystem, folder)]
    first = segments[0].base_offset if segments else 0
    return PartitionSummary(partition, folder, max(first, start_of(filesystem, path, partition)), segments)


def segment_files(filesystem: FileSystem, folder: str) -> list[tuple[int, str]]:
    """The log files of a partition's folder with their base offsets, ascending."""
    if not filesystem.exists(folder):
        raise StorageError(f"{folder} does not exist: check the topic and partition")
    bases = (offset_of(name, LOG) for name in filesystem.list(folder))
    return [(base, f"{folder}/{file_name(base, LOG)}") for base in bases if base is not None]


def _summarize_segment(filesystem: FileSystem, path: str, base: int) -> SegmentSummary:
    next_offset, batches, records, problem = base, 0, 0, ""
    first_timestamp, last_timestamp = -1, -1
    file = filesystem.open_to_read(path)
    try:
        size = file.size()
        for _, header in headers(file, 0, size):
            batches += 1
            records += header.record_count
            next_offset = header.next_offset
            first_timestamp = header.base_timestamp if first_timestamp < 0 else first_timestamp
            last_timestamp = max(last_timestamp, header.max_timestamp)
    except CorruptBatch as error:
        problem = str(error)
    finally:
        file.close()
    return SegmentSummary(path, base, next_offset, size, batches, records, first_timestamp, last_timestamp, problem)


def records_in(filesystem: FileSystem, path: str, partition: TopicPartition) -> Iterator[tuple[BatchHeader, Record]]:
    """Each readable record of a partition in offset order, markers included, with its batch's header."""
    start = start_of(filesystem, path, partition)
    for _, file in segment_files(filesystem, f"{path}/{partition}"):
        for _, header, batch in scan_file(filesystem, file):
            for record in records_of(batch):
                if record.offset >= start:
                    yield header, record


def start_of(filesystem: FileSystem, path: str, partition: TopicPartition) -> int:
    return checkpoint.read_offsets(filesystem, f"{path}/{checkpoint.LOG_START}").get(partition, 0)


def verify(filesystem: FileSystem, path: str) -> tuple[int, list[Problem]]:
    """Check every batch of a log file by length, checksum and offset order; the bytes that are good, and the rest."""
    file = filesystem.open_to_read(path)
    try:
        good, position, expected, size = 0, 0, 0, file.size()
        problems = []
        while position < size:
            reason = ""
            try:
                for at, header, _ in scan(file, position, size):
                    if header.base_offset < expected:
                        reason = f"offset {header.base_offset} where at least {expected} was due"
                        position = at
                        break
                    expected = header.next_offset
                    position = at + header.size
                    good += header.size
            except CorruptBatch as error:
                reason = error.reason
            if reason:
                found = find_batch(file, position + 1, size, expected, 2**63 - 1)
                end = found.position if found else size
                problems.append(Problem(path, position, end - position, reason))
                position = end
        return good, problems
    finally:
        file.close()
