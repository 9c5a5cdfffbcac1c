"""In which order the records of a partition are delivered to the members of a group, where that matters.

What always holds of `KeyOrder`: of the unfinished records of a key that it knows exactly one has its turn, the first;
and it knows no more records than are under way, which whoever tells it of them bounds.
"""

from collections import deque
from enum import StrEnum
from hashlib import blake2b

_LONGEST_KEY = 64  # bytes; of longer keys a digest is kept, so that memory does not depend on what producers send


class Order(StrEnum):
    """What a group wants of the order of records."""

    NONE = "none"
    KEY = "key"  # the records of a key one after the other: the next one when the one before is finished
    SINGLE = "single"  # one member at a time has records of a partition


class KeyOrder:
    """The unfinished records of a partition by their keys, and whose turn it is."""

    __slots__ = ("_keys", "_offsets", "known")

    def __init__(self, start: int) -> None:
        self.known = start  # before this offset every unfinished record that has a key was noted
        self._keys: dict[int, bytes] = {}
        self._offsets: dict[bytes, deque[int]] = {}  # of a key, in order

    def __len__(self) -> int:
        return len(self._keys)

    def note(self, offset: int, key: bytes) -> bool:
        """Take in an unfinished record, unless it is known already; whether it is its turn."""
        known = self._keys.get(offset)
        if known is None:
            known = key if len(key) <= _LONGEST_KEY else blake2b(key, digest_size=_LONGEST_KEY).digest()
            self._keys[offset] = known
            self._offsets.setdefault(known, deque()).append(offset)
        return self._offsets[known][0] == offset

    def finish(self, first: int, last: int) -> list[int]:
        """Forget the records from first to last; the offsets of those whose turn it is now."""
        known = self._keys
        gone = (
            [offset for offset in range(first, last + 1) if offset in known]
            if last - first < len(known)
            else sorted(offset for offset in known if first <= offset <= last)
        )
        turns = []
        for offset in gone:
            key = known.pop(offset)
            offsets = self._offsets[key]
            if offsets[0] != offset:
                offsets.remove(offset)
                continue
            offsets.popleft()
            if offsets:
                turns.append(offsets[0])
            else:
                del self._offsets[key]
        return turns
