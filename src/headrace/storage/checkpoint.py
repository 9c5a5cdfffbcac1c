"""Kafka's textual checkpoints: a version, a count, and a line per entry.

    0
    2
    orders 0 4711
    orders 1 0

A file that does not read as one is refused, with its name and line; guessing an offset would lose or repeat data.
"""

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from headrace.model import TopicPartition
from headrace.records.checksum import crc32c
from headrace.storage.atomic_file import write_atomically
from headrace.storage.errors import DamagedLog, StorageError
from headrace.storage.filesystem import FileSystem

RECOVERY_POINT = "recovery-point-offset-checkpoint"
LOG_START = "log-start-offset-checkpoint"
HIGH_WATERMARK = "replication-offset-checkpoint"
CLEANER = "cleaner-offset-checkpoint"
MEMORY_START = "memory-start-offset-checkpoint"  # ours: where logs in memory begin next

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
            raise CorruptCheckpoint(path, number, f"{line[:80]!r} is not 'topic partition offset'") from None
    return offsets


def write_offsets(filesystem: FileSystem, path: str, offsets: Mapping[TopicPartition, int]) -> None:
    """Replace the file by these offsets, durably."""
    write_lines(filesystem, path, [f"{tp.topic} {tp.partition} {offset}" for tp, offset in sorted(offsets.items())])


def read_lines(filesystem: FileSystem, path: str) -> list[str]:
    """The entries of a checkpoint, checked against its version and count."""
    if not filesystem.exists(path):
        return []
    data = filesystem.read(path)
    if not data and path.endswith(CLEANER):  # Kafka makes it when it starts, and writes it when it has compacted
        return []
    lines = data.decode("utf-8", "replace").splitlines()
    if not lines or lines[0] != str(_VERSION):
        raise CorruptCheckpoint(
            path, 1, f"expected version {_VERSION}, found {lines[0][:80] if lines else 'an empty file'!r}"
        )
    if len(lines) < 2 or not lines[1].isdecimal() or int(lines[1]) != len(lines) - 2:
        raise CorruptCheckpoint(path, 2, "the number of entries does not match")
    return lines[2:]


def write_lines(filesystem: FileSystem, path: str, entries: Sequence[str]) -> None:
    """Replace a checkpoint by these entries, durably."""
    write_atomically(filesystem, path, "\n".join([str(_VERSION), str(len(entries)), *entries, ""]).encode())


# Stretches of a segment that are no valid batches although they were durable once: a disk's fault, not a crash's.
#
# They are found at recovery, remembered in a file `damaged-ranges` beside the segments (a Kafka broker ignores it),
# and never served: a read stops before them, and a read into them is told where they are and where to read on.

DAMAGE_FILE = "damaged-ranges"


class Damage(NamedTuple):
    """Bytes of the segment `segment`, and the offsets that were there."""

    segment: int
    position: int
    size: int
    first_offset: int
    next_offset: int

    def refuse(self, offset: int, path: str) -> None:
        """Raise if `offset` is one of the lost ones."""
        if self.first_offset <= offset < self.next_offset:
            raise DamagedLog(path, self.position, self.size, self.first_offset, self.next_offset)


def read_damage(filesystem: FileSystem, directory: str) -> list[Damage]:
    path = f"{directory}/{DAMAGE_FILE}"
    damage = []
    for number, line in enumerate(read_lines(filesystem, path), start=3):
        numbers, _, checksum = line.rpartition(" ")
        try:
            entry = Damage(*map(int, numbers.split(" ")))
        except (TypeError, ValueError):
            raise CorruptCheckpoint(path, number, f"{line[:80]!r} is not six numbers") from None
        if checksum != str(crc32c(numbers.encode())):
            raise CorruptCheckpoint(path, number, f"the checksum of {line[:80]!r} does not match")
        damage.append(entry)
    return damage


def write_damage(filesystem: FileSystem, directory: str, damage: Iterable[Damage]) -> None:
    """Remember what is damaged; a log without damage has no file."""
    path = f"{directory}/{DAMAGE_FILE}"
    lines = [f"{numbers} {crc32c(numbers.encode())}" for numbers in (" ".join(map(str, entry)) for entry in damage)]
    if lines:
        write_lines(filesystem, path, lines)
    elif filesystem.exists(path):
        filesystem.remove(path)


# Which leader epoch began at which offset: how a client notices that the log it read was cut (KIP-101, KIP-320).
#
# The list is short, one entry per epoch that wrote anything, and ascends in both numbers. It is kept in Kafka's
# `leader-epoch-checkpoint` beside the segments. Every batch says its epoch too, so the list is written when the log is
# flushed, and what a crash took of it is made again from the batches that are checked then.

EPOCHS_FILE = "leader-epoch-checkpoint"


class EpochStart(NamedTuple):
    """The first offset that an epoch wrote."""

    epoch: int
    offset: int


class LeaderEpochs:
    def __init__(self, filesystem: FileSystem, directory: str) -> None:
        self._filesystem = filesystem
        self._path = f"{directory}/{EPOCHS_FILE}"
        self._entries: list[EpochStart] = []
        self._saved: list[EpochStart] = []

    def load(self) -> None:
        self._entries = []
        for number, line in enumerate(read_lines(self._filesystem, self._path), start=3):
            try:
                epoch, offset = map(int, line.split(" "))
            except ValueError:
                raise CorruptCheckpoint(self._path, number, f"{line[:80]!r} is not 'epoch offset'") from None
            self._entries.append(EpochStart(epoch, offset))
        self._saved = self._entries

    @property
    def entries(self) -> tuple[EpochStart, ...]:
        """Every epoch with its first offset, ascending."""
        return tuple(self._entries)

    @property
    def latest(self) -> int:
        """The newest epoch, or -1 before any."""
        return self._entries[-1].epoch if self._entries else -1

    def note(self, epoch: int, offset: int) -> bool:
        """Remember that `epoch` writes at `offset`; whether that is news. An older epoch than the latest is not."""
        if epoch <= self.latest:
            return False
        # An epoch that began here or later wrote nothing that is still there.
        self._entries = [*(entry for entry in self._entries if entry.offset < offset), EpochStart(epoch, offset)]
        return True

    def epoch_at(self, offset: int) -> int:
        """The epoch that wrote `offset`, or -1 if unknown."""
        index = bisect_right(self._entries, offset, key=lambda entry: entry.offset)
        return self._entries[index - 1].epoch if index else -1

    def end_of(self, epoch: int, log_end: int) -> tuple[int, int]:
        """The largest epoch not above `epoch`, and the offset at which it ended; (-1, -1) if unknown.

        The answer of OffsetForLeaderEpoch: a follower or consumer whose position is beyond it has read what was cut.
        """
        index = bisect_right(self._entries, epoch, key=lambda entry: entry.epoch)
        if not self._entries or epoch < 0 or epoch > self.latest:
            return -1, -1
        if index == 0:
            return epoch, self._entries[0].offset
        end = self._entries[index].offset if index < len(self._entries) else log_end
        return self._entries[index - 1].epoch, end

    def truncate_to(self, offset: int) -> None:
        """Forget what began at `offset` or later: the log was cut there."""
        self._entries = [entry for entry in self._entries if entry.offset < offset]

    def drop_before(self, offset: int) -> None:
        """Forget epochs whose every record is gone; the one that covers `offset` now begins there."""
        index = bisect_right(self._entries, offset, key=lambda entry: entry.offset)
        if index:
            self._entries = [EpochStart(self._entries[index - 1].epoch, offset), *self._entries[index:]]

    def save(self) -> None:
        """Write the checkpoint, durably."""
        entries = self._entries  # another thread may note an epoch meanwhile
        write_lines(self._filesystem, self._path, [f"{entry.epoch} {entry.offset}" for entry in entries])
        self._saved = entries

    def save_changes(self) -> None:
        """Write the checkpoint if it is not as it was written or read last."""
        if self._entries != self._saved:
            self.save()
