"""From which offset on records may be as young as a timestamp: Kafka's `.timeindex`, sparse and sorted.

An entry is `timestamp i64, offset - base u32`, big-endian, and says: no record before this offset is younger than the
timestamp. Kept in memory and written as the offset index is.
"""

from array import array
from bisect import bisect_left
from struct import Struct

_ENTRY = Struct(">qI")
ENTRY_SIZE = _ENTRY.size


class TimeIndex:
    """The time index of one segment."""

    __slots__ = ("_base", "_offsets", "_timestamps")

    def __init__(self, base_offset: int) -> None:
        self._base = base_offset
        self._timestamps = array("q")
        self._offsets = array("I")

    @classmethod
    def decode(cls, base_offset: int, data: bytes) -> "TimeIndex":
        """From a file's content; entries of zeroes at the end are room that a Kafka broker set aside."""
        index = cls(base_offset)
        for timestamp, relative in _ENTRY.iter_unpack(data[: len(data) // ENTRY_SIZE * ENTRY_SIZE]):
            if len(index) and timestamp <= index._timestamps[-1]:
                break
            index._timestamps.append(timestamp)
            index._offsets.append(relative)
        return index

    def encode(self) -> bytes:
        """A file's content."""
        return b"".join(map(_ENTRY.pack, self._timestamps, self._offsets))

    def __len__(self) -> int:
        return len(self._timestamps)

    @property
    def last(self) -> tuple[int, int] | None:
        """The youngest timestamp and its offset."""
        return (self._timestamps[-1], self._base + self._offsets[-1]) if self._timestamps else None

    def append(self, timestamp: int, offset: int) -> None:
        """Note that everything up to `offset` is at most `timestamp`; what says nothing new is left out."""
        if not self._timestamps or timestamp > self._timestamps[-1]:
            self._timestamps.append(timestamp)
            self._offsets.append(offset - self._base)

    def lookup(self, timestamp: int) -> int:
        """An offset before which every record is older than `timestamp`."""
        index = bisect_left(self._timestamps, timestamp)
        return self._base + self._offsets[index - 1] if index else self._base

    def truncate(self, offset: int) -> None:
        """Forget what is said of `offset` and later ones."""
        index = bisect_left(self._offsets, offset - self._base)
        del self._timestamps[index:], self._offsets[index:]

    def is_sane(self, end_offset: int) -> bool:
        """Whether the offsets ascend and stay inside the segment."""
        offsets = self._offsets
        return all(offsets[i] <= offsets[i + 1] for i in range(len(offsets) - 1)) and (
            not offsets or self._base + offsets[-1] < end_offset
        )
