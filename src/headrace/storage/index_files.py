"""The three indexes of a segment in memory, and their files.

Kafka's index formats have no checksum, and an entry with a flipped bit leads a reader to the wrong place or hides that
a transaction was rolled back. So the checksums of the three files stand in a fourth, `.indexsums` (a Kafka broker
ignores it), which is written last. Files that do not match are made anew from the batches; where the fourth is missing,
the files are a Kafka broker's and are trusted as far as they make sense.
"""

from collections.abc import Iterable
from typing import NamedTuple

from crc32c import crc32c

from headrace.model import NO_TIMESTAMP
from headrace.records import BatchHeader
from headrace.storage.atomic_file import write_atomically
from headrace.storage.checkpoint import CorruptCheckpoint, read_lines, write_lines
from headrace.storage.filesystem import FileSystem
from headrace.storage.names import INDEX_SUMS, INDEXES, OFFSET_INDEX, TIME_INDEX, TRANSACTION_INDEX, file_name
from headrace.storage.offset_index import OffsetIndex
from headrace.storage.time_index import TimeIndex
from headrace.storage.transaction_index import TransactionIndex


class Indexes:
    """The three indexes of a segment, loaded or built together."""

    __slots__ = ("offsets", "times", "transactions")

    def __init__(self, base_offset: int) -> None:
        self.offsets = OffsetIndex(base_offset)
        self.times = TimeIndex(base_offset)
        self.transactions = TransactionIndex()


class Built(NamedTuple):
    """Offset and time index made from the batches, and what else was learnt on the way."""

    indexes: Indexes
    max_timestamp: int
    max_timestamp_offset: int
    first_timestamp: int | None
    bytes_since_entry: int


def build(base_offset: int, headers: Iterable[tuple[int, BatchHeader]], interval_bytes: int) -> Built:
    """Index these batches."""
    indexes = Indexes(base_offset)
    largest, largest_at, first, since_entry = NO_TIMESTAMP, base_offset, None, 0
    for position, header in headers:
        # A batch that compaction left empty has no say: the index would name a time that no record has.
        if header.record_count and header.max_timestamp > largest:
            largest, largest_at = header.max_timestamp, header.last_offset
        if first is None and not position:
            first = header.max_timestamp
        if since_entry > interval_bytes:
            indexes.offsets.append(header.last_offset, position)
            indexes.times.append(largest, largest_at)
            since_entry = 0
        since_entry += header.size
    if largest >= 0:
        indexes.times.append(largest, largest_at)
    return Built(indexes, largest, largest_at, first, since_entry)


class IndexFiles:
    """The index files of the segment that begins at `base_offset`."""

    def __init__(self, filesystem: FileSystem, directory: str, base_offset: int) -> None:
        self._filesystem = filesystem
        self._directory = directory
        self._base_offset = base_offset
        self._is_removed = False  # and the disk may not know it yet
        self._are_sane = False  # whether files of a Kafka broker were looked through

    def _path(self, suffix: str) -> str:
        return f"{self._directory}/{file_name(self._base_offset, suffix)}"

    @property
    def exist(self) -> bool:
        """Whether the files that every segment has are there."""
        return self._filesystem.exists(self._path(OFFSET_INDEX)) and self._filesystem.exists(self._path(TIME_INDEX))

    def load_transactions(self) -> TransactionIndex | None:
        """The aborted transactions; None if the files are not there or not what was written."""
        if not self.exist:
            return None
        data, is_good = self._read(2, self._sums())
        return TransactionIndex.decode(data) if is_good else None

    def load(self, segment_size: int, transactions: TransactionIndex) -> Indexes | None:
        """The indexes with these transactions, or None if they must be made from the batches."""
        if not self.exist:
            return None
        sums = self._sums()
        offsets, is_good = self._read(0, sums)
        times, is_good_too = self._read(1, sums)
        if not (is_good and is_good_too):
            return None
        indexes = Indexes(self._base_offset)
        indexes.offsets = OffsetIndex.decode(self._base_offset, offsets)
        indexes.times = TimeIndex.decode(self._base_offset, times)
        indexes.transactions = transactions
        if not sums and not self._are_sane:  # else they are the entries that were written, and those ascend
            self._are_sane = indexes.offsets.is_sane(segment_size) and indexes.times.is_sane(2**63 - 1)
            return indexes if self._are_sane else None
        return indexes if indexes.offsets.fits(segment_size) else None

    def _sums(self) -> list[int] | None:
        """The checksums of the three files; an empty list if the file with them is not one, None without any."""
        if not self._filesystem.exists(self._path(INDEX_SUMS)):
            return None
        try:
            return [int(line) for line in read_lines(self._filesystem, self._path(INDEX_SUMS))]
        except (CorruptCheckpoint, ValueError):
            return []

    def _read(self, which: int, sums: list[int] | None) -> tuple[bytes, bool]:
        path = self._path(INDEXES[which])
        data = self._filesystem.read(path) if self._filesystem.exists(path) else b""
        return data, sums is None or (len(sums) == len(INDEXES) and sums[which] == crc32c(data))

    def save(self, indexes: Indexes) -> None:
        """Write the files, durably."""
        # The offset index comes last of the three: where it stands, the other two are whole (see `exist`).
        contents = {
            TRANSACTION_INDEX: indexes.transactions.encode(),
            TIME_INDEX: indexes.times.encode(),
            OFFSET_INDEX: indexes.offsets.encode(),
        }
        for suffix, data in contents.items():
            if data or suffix != TRANSACTION_INDEX:
                write_atomically(self._filesystem, self._path(suffix), data)
        sums = [str(crc32c(contents[suffix])) for suffix in INDEXES]
        write_lines(self._filesystem, self._path(INDEX_SUMS), sums)

    def remove(self) -> None:
        """Remove the files; `sync_removal` makes that last."""
        for path in map(self._path, (*INDEXES, INDEX_SUMS)):
            if self._filesystem.exists(path):
                self._is_removed = True
                self._filesystem.remove(path)

    def sync_removal(self) -> None:
        """Return once no crash can bring removed files back."""
        if self._is_removed:
            self._filesystem.sync_directory(self._directory)
            self._is_removed = False
