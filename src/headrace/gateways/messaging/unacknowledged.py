"""What was sent and is not acknowledged yet, and how far a reader may be said to have come. Pure.

What always holds: a position is never behind a record that is not acknowledged, and never goes back; a record is sent
again when its time is over, as it was, until it is acknowledged; memory is what the records take that are held.
"""

from collections import deque
from dataclasses import dataclass, field
from typing import NamedTuple

from headrace.model import TopicPartition


class _Held(NamedTuple):
    where: TopicPartition
    offset: int
    frame: bytes


@dataclass(slots=True)
class _Line:
    """The records of a partition in the order of their offsets; the first is not acknowledged."""

    offsets: deque[int] = field(default_factory=deque)
    done: set[int] = field(default_factory=set)
    next: int = 0  # behind everything that is acknowledged without a gap


@dataclass(slots=True)
class Unacknowledged:
    """Records by the numbers that they were sent under."""

    size_bytes: int = 0
    repeated: int = 0
    _held: dict[int, _Held] = field(default_factory=dict)
    _due: deque[tuple[float, int]] = field(default_factory=deque)
    _lines: dict[TopicPartition, _Line] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self._held)

    def add(self, number: int, where: TopicPartition, offset: int, frame: bytes, due: float) -> None:
        """A record was sent; those of a partition come in the order of their offsets, and times in theirs."""
        self._held[number] = _Held(where, offset, frame)
        self._due.append((due, number))
        self.size_bytes += len(frame)
        line = self._lines.setdefault(where, _Line())
        line.offsets.append(offset)

    def acknowledge(self, number: int) -> bool:
        """Whether it was not acknowledged before."""
        held = self._held.pop(number, None)
        if held is None:
            return False
        self.size_bytes -= len(held.frame)
        line = self._lines[held.where]
        line.done.add(held.offset)
        while line.offsets and line.offsets[0] in line.done:
            offset = line.offsets.popleft()
            line.done.discard(offset)
            line.next = offset + 1
        return True

    def positions(self) -> dict[TopicPartition, int]:
        """What may be committed: behind all that is acknowledged without a gap."""
        return {where: line.next for where, line in self._lines.items() if line.next}

    def overdue(self, now: float) -> list[tuple[int, bytes]]:
        """The records whose time is over; who sends one again says so with `sent_again`."""
        found: list[tuple[int, bytes]] = []
        while self._due and (self._due[0][1] not in self._held or self._due[0][0] <= now):
            _, number = self._due.popleft()
            if number in self._held:
                found.append((number, self._held[number].frame))
        return found

    def sent_again(self, number: int, due: float) -> None:
        self.repeated += 1
        self._due.append((due, number))

    def put_off(self, number: int, due: float) -> None:
        """It could not be sent again just now."""
        self._due.append((due, number))
