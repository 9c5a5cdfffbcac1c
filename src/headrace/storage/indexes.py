"""The three indexes of a segment, in memory and in their files.

The offset index leads from an offset to a position, the time index from a time to an offset, both sparse; the
transaction index names the transactions that were aborted.

Kafka's index formats have no checksum, and an entry with a flipped bit leads a reader to the wrong place or hides that
a transaction was rolled back. So the checksums of the three files stand in a fourth, `.indexsums` (a Kafka broker
ignores it), which is written last. Files that do not match are made anew from the batches; where the fourth is
missing, the files are a Kafka broker's and are trusted as far as they make sense.
"""

import sys
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import islice
from operator import le, lt
from struct import Struct
from typing import NamedTuple

from headrace.model import NO_TIMESTAMP
from headrace.records import BatchHeader, CorruptBatch
from headrace.records.checksum import crc32c
from headrace.storage.atomic_file import write_atomically
from headrace.storage.checkpoint import CorruptCheckpoint, read_lines, write_lines
from headrace.storage.config import MAX_INT
from headrace.storage.filesystem import FileSystem
from headrace.storage.names import INDEX_SUMS, INDEXES, OFFSET_INDEX, TIME_INDEX, TRANSACTION_INDEX, file_name

OFFSET_ENTRY_SIZE = 8
_SWAP = sys.byteorder == "little"


def entries_of(data: bytes, entry_size: int) -> bytes:
    """What of a file's content is entries: zeroes at the end are room that a Kafka broker set aside."""
    whole = len(data) // entry_size
    used = -(-len(data.rstrip(b"\0")) // entry_size)
    return data[: min(whole, max(used, 1)) * entry_size]


def ascends(column: Sequence[int], before: Callable[[int, int], bool] = lt) -> bool:
    """Whether each number stands before the next."""
    return all(map(before, column, islice(column, 1, None)))


class OffsetIndex:
    """Where in a segment an offset stands: Kafka's `.index`, sparse and sorted.

    An entry is `offset - base u32, position u32`, big-endian, and says: the batch whose last offset this is begins at
    that position. In memory the two columns are plain arrays, so look-up is a bisection in C. The index of a segment
    that is still written to lives in memory alone; it goes to disk when the segment is full, and is rebuilt after a
    crash.

    A full segment has a quarter of a million entries, and a reader that lags has them read while everybody waits:
    nothing here looks at entries one by one in Python.
    """

    __slots__ = ("_base", "_offsets", "_positions")

    def __init__(self, base_offset: int) -> None:
        self._base = base_offset
        self._offsets = array("I")
        self._positions = array("I")

    @classmethod
    def decode(cls, base_offset: int, data: bytes) -> "OffsetIndex":
        index = cls(base_offset)
        columns = array("I", entries_of(data, OFFSET_ENTRY_SIZE))
        if _SWAP:
            columns.byteswap()
        index._offsets, index._positions = columns[::2], columns[1::2]
        return index

    def encode(self) -> bytes:
        columns = array("I", bytes(OFFSET_ENTRY_SIZE * len(self._offsets)))
        columns[::2], columns[1::2] = self._offsets, self._positions
        if _SWAP:
            columns.byteswap()
        return columns.tobytes()

    def __len__(self) -> int:
        return len(self._offsets)

    def append(self, offset: int, position: int) -> None:
        """Note the batch that ends with `offset` and begins at `position`."""
        self._offsets.append(offset - self._base)
        self._positions.append(position)

    def lookup(self, offset: int) -> int:
        """A position from which the batch with `offset` is found by walking forward."""
        index = bisect_right(self._offsets, offset - self._base)
        return self._positions[index - 1] if index else 0

    def offset_behind(self, position: int) -> int | None:
        """The last offset of the first indexed batch at or behind `position`: an upper bound of what lies before it."""
        index = bisect_left(self._positions, position)
        return self._base + self._offsets[index] if index < len(self._positions) else None

    def truncate(self, position: int) -> None:
        """Forget the batches that begin at `position` or later."""
        index = bisect_left(self._positions, position)
        del self._offsets[index:], self._positions[index:]

    def fits(self, segment_size: int) -> bool:
        """Whether the entries stay inside the segment, if they ascend."""
        return not self._positions or self._positions[-1] < segment_size

    def is_sane(self, segment_size: int) -> bool:
        """Whether the entries ascend and stay inside the segment: a file that is not is rebuilt, not trusted."""
        return self.fits(segment_size) and ascends(self._offsets) and ascends(self._positions)


_TIME_ENTRY = Struct(">qI")
_TIME_ENTRY_SIZE = _TIME_ENTRY.size


class TimeIndex:
    """From which offset on records may be as young as a timestamp: Kafka's `.timeindex`, sparse and sorted.

    An entry is `timestamp i64, offset - base u32`, big-endian, and says: no record before this offset is younger than
    the timestamp. Kept in memory and written as the offset index is; but few ask for a time, so it stays in the form of
    the file, and costs nothing to read.
    """

    __slots__ = ("_base", "_entries")

    def __init__(self, base_offset: int) -> None:
        self._base = base_offset
        self._entries = bytearray()

    @classmethod
    def decode(cls, base_offset: int, data: bytes) -> "TimeIndex":
        index = cls(base_offset)
        index._entries += entries_of(data, _TIME_ENTRY_SIZE)
        return index

    def encode(self) -> bytes:
        return bytes(self._entries)

    def __len__(self) -> int:
        return len(self._entries) // _TIME_ENTRY_SIZE

    def _timestamp(self, place: int) -> int:
        return int(_TIME_ENTRY.unpack_from(self._entries, place * _TIME_ENTRY_SIZE)[0])

    def _relative(self, place: int) -> int:
        return int(_TIME_ENTRY.unpack_from(self._entries, place * _TIME_ENTRY_SIZE)[1])

    @property
    def last(self) -> tuple[int, int] | None:
        """The youngest timestamp and its offset."""
        place = len(self) - 1
        return (self._timestamp(place), self._base + self._relative(place)) if place >= 0 else None

    def append(self, timestamp: int, offset: int) -> None:
        """Note that everything up to `offset` is at most `timestamp`; what says nothing new is left out."""
        if not self._entries or timestamp > self._timestamp(len(self) - 1):
            self._entries += _TIME_ENTRY.pack(timestamp, offset - self._base)

    def lookup(self, timestamp: int) -> int:
        """An offset before which every record is older than `timestamp`."""
        place = bisect_left(range(len(self)), timestamp, key=self._timestamp)
        return self._base + self._relative(place - 1) if place else self._base

    def truncate(self, offset: int) -> None:
        """Forget what is said of `offset` and later ones."""
        place = bisect_left(range(len(self)), offset - self._base, key=self._relative)
        del self._entries[place * _TIME_ENTRY_SIZE :]

    def is_sane(self, end_offset: int) -> bool:
        """Whether the entries ascend and stay inside the segment."""
        timestamps, offsets = zip(*_TIME_ENTRY.iter_unpack(self._entries), strict=True) if self._entries else ((), ())
        is_inside = not offsets or self._base + offsets[-1] < end_offset
        return is_inside and ascends(timestamps) and ascends(offsets, le)


_TRANSACTION_ENTRY = Struct(">hqqqq")
_TRANSACTION_VERSION = 0


class AbortedTransaction(NamedTuple):
    """A transaction that was rolled back, from its first record to its marker."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


class TransactionIndex:
    """The aborted transactions that end in a segment, in the order of their markers: Kafka's `.txnindex`.

    An entry is `version i16, producer id i64, first offset i64, last offset i64, last stable offset i64`. A reader that
    wants committed records only is given the entries that overlap what it fetched, and leaves their records out.
    """

    __slots__ = ("entries",)

    def __init__(self) -> None:
        self.entries: list[AbortedTransaction] = []

    @classmethod
    def decode(cls, data: bytes) -> "TransactionIndex":
        index = cls()
        whole = len(data) - len(data) % _TRANSACTION_ENTRY.size
        for version, *fields in _TRANSACTION_ENTRY.iter_unpack(data[:whole]):
            if version != _TRANSACTION_VERSION:
                break
            index.entries.append(AbortedTransaction(*fields))
        return index

    def encode(self) -> bytes:
        return b"".join(_TRANSACTION_ENTRY.pack(_TRANSACTION_VERSION, *entry) for entry in self.entries)

    def __len__(self) -> int:
        return len(self.entries)

    def append(self, aborted: AbortedTransaction) -> None:
        """Note a transaction whose abort marker was just written."""
        self.entries.append(aborted)

    def truncate(self, offset: int) -> None:
        """Forget transactions whose marker stood at `offset` or later."""
        self.entries = [entry for entry in self.entries if entry.last_offset < offset]

    def find_overlapping(self, start: int, end: int) -> tuple[list[AbortedTransaction], bool]:
        """What touches offsets `start` to `end` (exclusive), and whether a later segment can hold no more of it.

        Once an entry was written when everything before `end` was already decided, nothing behind it can overlap.
        """
        found = [entry for entry in self.entries if entry.last_offset >= start and entry.first_offset < end]
        return found, any(entry.last_stable_offset >= end for entry in self.entries)


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
    """Make the indexes of the batches up to the first damage, if there is any.

    Whoever looks for what is behind it comes upon it from the entry before; what is before it is served.
    """
    indexes = Indexes(base_offset)
    largest, largest_at, first, since_entry = NO_TIMESTAMP, base_offset, None, 0
    for position, header in _up_to_damage(base_offset, headers):
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


def _up_to_damage(base_offset: int, headers: Iterable[tuple[int, BatchHeader]]) -> Iterator[tuple[int, BatchHeader]]:
    with suppress(CorruptBatch):
        for position, header in headers:
            if not 0 <= header.last_offset - base_offset <= MAX_INT:
                return  # a segment holds no such offset: another file's batches, or a damaged offset
            yield position, header


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
