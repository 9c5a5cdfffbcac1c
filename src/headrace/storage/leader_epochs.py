"""Which leader epoch began at which offset: how a client notices that the log it read was cut (KIP-101, KIP-320).

The list is short, one entry per epoch that wrote anything, and ascends in both numbers. It is kept in Kafka's
`leader-epoch-checkpoint` beside the segments. Every batch says its epoch too, so the list is written when the log is
flushed, and what a crash took of it is made again from the batches that are checked then.
"""

from bisect import bisect_right
from typing import NamedTuple

from headrace.storage.checkpoint import CorruptCheckpoint, read_lines, write_lines
from headrace.storage.filesystem import FileSystem

FILE_NAME = "leader-epoch-checkpoint"


class EpochStart(NamedTuple):
    """The first offset that an epoch wrote."""

    epoch: int
    offset: int


class LeaderEpochs:
    def __init__(self, filesystem: FileSystem, directory: str) -> None:
        self._filesystem = filesystem
        self._path = f"{directory}/{FILE_NAME}"
        self._entries: list[EpochStart] = []
        self._saved: list[EpochStart] = []

    def load(self) -> None:
        self._entries = []
        for number, line in enumerate(read_lines(self._filesystem, self._path), start=3):
            try:
                epoch, offset = map(int, line.split(" "))
            except ValueError:
                raise CorruptCheckpoint(self._path, number, f"{line!r} is not 'epoch offset'") from None
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
