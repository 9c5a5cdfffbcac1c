"""Where in a segment an offset stands: Kafka's `.index`, sparse and sorted.

An entry is `offset - base u32, position u32`, big-endian, and says: the batch whose last offset this is begins at that
position. In memory the two columns are plain arrays, so look-up is a bisection in C. The index of a segment that is
still written to lives in memory alone; it goes to disk when the segment is full, and is rebuilt after a crash.

A full segment has a quarter of a million entries, and a reader that lags has them read while everybody waits: nothing
here looks at entries one by one in Python.
"""

import sys
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from itertools import islice
from operator import lt

ENTRY_SIZE = 8
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
    """The offset index of one segment."""

    __slots__ = ("_base", "_offsets", "_positions")

    def __init__(self, base_offset: int) -> None:
        self._base = base_offset
        self._offsets = array("I")
        self._positions = array("I")

    @classmethod
    def decode(cls, base_offset: int, data: bytes) -> "OffsetIndex":
        """From a file's content."""
        index = cls(base_offset)
        columns = array("I", entries_of(data, ENTRY_SIZE))
        if _SWAP:
            columns.byteswap()
        index._offsets, index._positions = columns[::2], columns[1::2]
        return index

    def encode(self) -> bytes:
        """A file's content."""
        columns = array("I", bytes(ENTRY_SIZE * len(self._offsets)))
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
