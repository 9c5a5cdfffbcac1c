"""From which offset on records may be as young as a timestamp: Kafka's `.timeindex`, sparse and sorted.

An entry is `timestamp i64, offset - base u32`, big-endian, and says: no record before this offset is younger than the
timestamp. Kept in memory and written as the offset index is; but few ask for a time, so it stays in the form of the
file, and costs nothing to read.
"""

from bisect import bisect_left
from operator import le
from struct import Struct

from headrace.storage.offset_index import ascends, entries_of

_ENTRY = Struct(">qI")
ENTRY_SIZE = _ENTRY.size


class TimeIndex:
    """The time index of one segment."""

    __slots__ = ("_base", "_entries")

    def __init__(self, base_offset: int) -> None:
        self._base = base_offset
        self._entries = bytearray()

    @classmethod
    def decode(cls, base_offset: int, data: bytes) -> "TimeIndex":
        """From a file's content."""
        index = cls(base_offset)
        index._entries += entries_of(data, ENTRY_SIZE)
        return index

    def encode(self) -> bytes:
        """A file's content."""
        return bytes(self._entries)

    def __len__(self) -> int:
        return len(self._entries) // ENTRY_SIZE

    def _timestamp(self, place: int) -> int:
        return int(_ENTRY.unpack_from(self._entries, place * ENTRY_SIZE)[0])

    def _relative(self, place: int) -> int:
        return int(_ENTRY.unpack_from(self._entries, place * ENTRY_SIZE)[1])

    @property
    def last(self) -> tuple[int, int] | None:
        """The youngest timestamp and its offset."""
        place = len(self) - 1
        return (self._timestamp(place), self._base + self._relative(place)) if place >= 0 else None

    def append(self, timestamp: int, offset: int) -> None:
        """Note that everything up to `offset` is at most `timestamp`; what says nothing new is left out."""
        if not self._entries or timestamp > self._timestamp(len(self) - 1):
            self._entries += _ENTRY.pack(timestamp, offset - self._base)

    def lookup(self, timestamp: int) -> int:
        """An offset before which every record is older than `timestamp`."""
        place = bisect_left(range(len(self)), timestamp, key=self._timestamp)
        return self._base + self._relative(place - 1) if place else self._base

    def truncate(self, offset: int) -> None:
        """Forget what is said of `offset` and later ones."""
        place = bisect_left(range(len(self)), offset - self._base, key=self._relative)
        del self._entries[place * ENTRY_SIZE :]

    def is_sane(self, end_offset: int) -> bool:
        """Whether the entries ascend and stay inside the segment."""
        timestamps, offsets = zip(*_ENTRY.iter_unpack(self._entries), strict=True) if self._entries else ((), ())
        is_inside = not offsets or self._base + offsets[-1] < end_offset
        return is_inside and ascends(timestamps) and ascends(offsets, le)
