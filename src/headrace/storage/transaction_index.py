"""The aborted transactions that end in a segment: Kafka's `.txnindex`.

An entry is `version i16, producer id i64, first offset i64, last offset i64, last stable offset i64`. A reader that
wants committed records only is given the entries that overlap what it fetched, and leaves their records out.
"""

from struct import Struct
from typing import NamedTuple

_ENTRY = Struct(">hqqqq")
ENTRY_SIZE = _ENTRY.size
_VERSION = 0


class AbortedTransaction(NamedTuple):
    """A transaction that was rolled back, from its first record to its marker."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


class TransactionIndex:
    """The aborted transactions of one segment, in the order of their markers."""

    __slots__ = ("entries",)

    def __init__(self) -> None:
        self.entries: list[AbortedTransaction] = []

    @classmethod
    def decode(cls, data: bytes) -> "TransactionIndex":
        """From a file's content."""
        index = cls()
        for version, *fields in _ENTRY.iter_unpack(data[: len(data) // ENTRY_SIZE * ENTRY_SIZE]):
            if version != _VERSION:
                break
            index.entries.append(AbortedTransaction(*fields))
        return index

    def encode(self) -> bytes:
        """A file's content."""
        return b"".join(_ENTRY.pack(_VERSION, *entry) for entry in self.entries)

    def __len__(self) -> int:
        return len(self.entries)

    def append(self, aborted: AbortedTransaction) -> None:
        """Note a transaction whose abort marker was just written."""
        self.entries.append(aborted)

    def truncate(self, offset: int) -> None:
        """Forget transactions whose marker stood at `offset` or later."""
        self.entries = [entry for entry in self.entries if entry.last_offset < offset]

    def overlapping(self, start: int, end: int) -> tuple[list[AbortedTransaction], bool]:
        """What touches offsets `start` to `end` (exclusive), and whether a later segment can hold no more of it.

        Once an entry was written when everything before `end` was already decided, nothing behind it can overlap.
        """
        found = [entry for entry in self.entries if entry.last_offset >= start and entry.first_offset < end]
        return found, any(entry.last_stable_offset >= end for entry in self.entries)
