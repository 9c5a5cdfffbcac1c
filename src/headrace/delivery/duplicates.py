"""Which records of a partition are duplicates: those whose id an earlier record had, within a window of time.

A duplicate does not renew the window, as with SQS: it counts from the first record with the id. Times are those of the
records, so that whoever looks again comes to the same result. What has been decided is kept, a bit a record, since a
group may come to it much later than the window lasts; the ids themselves are kept for the window, as numbers.
"""

from collections import OrderedDict
from typing import Final

CHUNK: Final = 8192  # records whose bits are kept together
MAX_IDS: Final = 200_000  # of a partition, at some 200 bytes each; beyond them the window is shorter than was asked for


class Duplicates:
    """The offsets of duplicates."""

    def __init__(self) -> None:
        self.chunks: dict[int, bytearray] = {}  # by offset; one that is not here has no duplicates

    def put(self, chunk: int, bits: bytes | None) -> None:
        if bits is None:
            self.chunks.pop(chunk, None)
        else:
            self.chunks[chunk] = bytearray(bits)

    def add(self, offset: int) -> int:
        """Note a duplicate; the chunk that it is in."""
        chunk, place = divmod(offset, CHUNK)
        self.chunks.setdefault(chunk, bytearray(CHUNK // 8))[place >> 3] |= 1 << (place & 7)
        return chunk

    def __contains__(self, offset: int) -> bool:
        chunk, place = divmod(offset, CHUNK)
        bits = self.chunks.get(chunk)
        return bits is not None and bool(bits[place >> 3] >> (place & 7) & 1)

    def drop_from(self, offset: int) -> list[int]:
        """Forget what lies at an offset and behind; the chunks that have changed, some of which may be gone."""
        first, place = divmod(offset, CHUNK)
        changed = [chunk for chunk in self.chunks if chunk >= first]
        for chunk in changed:
            bits = int.from_bytes(self.chunks.pop(chunk), "little") & ((1 << place) - 1 if chunk == first else 0)
            if bits:
                self.chunks[chunk] = bytearray(bits.to_bytes(CHUNK // 8, "little"))
        return changed

    def drop_before(self, offset: int) -> list[int]:
        """Forget chunks that lie before an offset altogether; which."""
        gone = [chunk for chunk in self.chunks if (chunk + 1) * CHUNK <= offset]
        for chunk in gone:
            del self.chunks[chunk]
        return gone


class Window:
    """The ids of the last while, each with the time of the first record that had it."""

    def __init__(self, max_ids: int = MAX_IDS) -> None:
        self._max_ids = max_ids
        # By the id's hash, which nobody can choose: it is keyed for each process.
        self._first_ms: OrderedDict[int, int] = OrderedDict()
        self.newest_ms = -1
        self.dropped = 0  # ids for which there was no room

    def __len__(self) -> int:
        return len(self._first_ms)

    def is_new(self, dedup_id: bytes, timestamp: int, window_ms: int, now_ms: int) -> bool:
        """Whether no record within the window had the id; if so, it is remembered."""
        number = hash(dedup_id)
        first_ms = self._first_ms.get(number)
        if first_ms is not None and abs(timestamp - first_ms) < window_ms:
            return False
        self._first_ms[number] = timestamp
        self._first_ms.move_to_end(number)
        # A record from the future, of a producer whose clock is fast, does not end the window of all others.
        self.newest_ms = max(self.newest_ms, min(timestamp, now_ms))
        self._trim(self.newest_ms - window_ms)
        return True

    def _trim(self, until_ms: int) -> None:
        while self._first_ms:
            is_over = next(iter(self._first_ms.values())) <= until_ms
            if not is_over and len(self._first_ms) <= self._max_ids:
                return
            self.dropped += not is_over
            self._first_ms.popitem(last=False)
