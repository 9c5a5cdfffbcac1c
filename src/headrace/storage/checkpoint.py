"""Kafka's textual checkpoints: a version, a count, and a line per entry.

    0
    2
    orders 0 4711
    orders 1 0

A file that does not read as one is refused, with its name and line; guessing an offset would lose or repeat data.
"""

from collections.abc import Mapping, Sequence

from headrace.model import TopicPartition
from headrace.storage.atomic_file import write_atomically
from headrace.storage.errors import StorageError
from headrace.storage.filesystem import FileSystem

RECOVERY_POINT = "recovery-point-offset-checkpoint"
LOG_START = "log-start-offset-checkpoint"
HIGH_WATERMARK = "replication-offset-checkpoint"
CLEANER = "cleaner-offset-checkpoint"

_VERSION = 0


class CorruptCheckpoint(StorageError):
    def __init__(self, path: str, line: int, reason: str) -> None:
        super().__init__(f"{path}:{line}: {reason}: remove the file to have it made anew from the logs")
        self.path = path
        self.line = line


def read_offsets(filesystem: FileSystem, path: str) -> dict[TopicPartition, int]:
    """The offset of each partition; nothing where there is no file."""
    offsets = {}
    for number, line in enumerate(read_lines(filesystem, path), start=3):
        try:
            topic, partition, offset = line.split(" ")
            offsets[TopicPartition(topic, int(partition))] = int(offset)
        except ValueError:
            raise CorruptCheckpoint(path, number, f"{line!r} is not 'topic partition offset'") from None
    return offsets


def write_offsets(filesystem: FileSystem, path: str, offsets: Mapping[TopicPartition, int]) -> None:
    """Replace the file by these offsets, durably."""
    write_lines(filesystem, path, [f"{tp.topic} {tp.partition} {offset}" for tp, offset in sorted(offsets.items())])


def read_lines(filesystem: FileSystem, path: str) -> list[str]:
    """The entries of a checkpoint, checked against its version and count."""
    if not filesystem.exists(path):
        return []
    lines = filesystem.read(path).decode("utf-8", "replace").splitlines()
    if not lines or lines[0] != str(_VERSION):
        raise CorruptCheckpoint(
            path, 1, f"expected version {_VERSION}, found {lines[0] if lines else 'an empty file'!r}"
        )
    if len(lines) < 2 or not lines[1].isdecimal() or int(lines[1]) != len(lines) - 2:
        raise CorruptCheckpoint(path, 2, "the number of entries does not match")
    return lines[2:]


def write_lines(filesystem: FileSystem, path: str, entries: Sequence[str]) -> None:
    """Replace a checkpoint by these entries, durably."""
    write_atomically(filesystem, path, "\n".join([str(_VERSION), str(len(entries)), *entries, ""]).encode())
