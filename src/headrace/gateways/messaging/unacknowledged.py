"""What was sent and is not acknowledged yet, and how far a reader may be said to have come. Pure.

What always holds: a position is never behind a record that is not acknowledged, and never goes back; a record is sent
again when its time is over, as it was, until it is acknowledged; memory is what the records take that are held, however
many were acknowledged behind one that nobody acknowledges.
"""

from collections import OrderedDict
from dataclasses import dataclass, field
from typing import NamedTuple

from headrace.model import TopicPartition


class _Held(NamedTuple):
    where: TopicPartition
    offset: int
    frame: bytes
    due: float


@dataclass(slots=True)
class _Line:
    """The records of a partition that are held, in the order of their offsets."""

    offsets: OrderedDict[int, None] = field(default_factory=OrderedDict)
    end: int = 0  # behind the last that was sent


@dataclass(slots=True)
class Unacknowledged:
    """Records by the numbers that they were sent under."""

    size_bytes: int = 0
    repeated: int = 0
    _held: OrderedDict[int, _Held] = field(default_factory=OrderedDict)  # in the order in which they are due
    _lines: dict[TopicPartition, _Line] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self._held)

    def add(self, number: int, where: TopicPartition, offset: int, frame: bytes, due: float) -> None:
        """A record was sent; those of a partition come in the order of their offsets, and times in theirs."""
        self._held[number] = _Held(where, offset, frame, due)
        self.size_bytes += len(frame)
        line = self._lines.setdefault(where, _Line())
        line.offsets[offset] = None
        line.end = offset + 1

    def acknowledge(self, number: int) -> bool:
        """Whether it was not acknowledged before."""
        held = self._held.pop(number, None)
        if held is None:
            return False
        self.size_bytes -= len(held.frame)
        del self._lines[held.where].offsets[held.offset]
        return True

    def positions(self) -> dict[TopicPartition, int]:
        """What may be committed: behind all that is acknowledged without a gap."""
        return {where: next(iter(line.offsets), line.end) for where, line in self._lines.items()}

    def overdue(self, now: float) -> list[tuple[int, bytes]]:
        """The records whose time is over, longest first; who sends one again says so with `sent_again`."""
        found: list[tuple[int, bytes]] = []
        for number, held in self._held.items():
            if held.due > now:
                break
            found.append((number, held.frame))
        return found

    def sent_again(self, number: int, due: float) -> None:
        self.repeated += 1
        self._held[number] = self._held[number]._replace(due=due)
        self._held.move_to_end(number)
