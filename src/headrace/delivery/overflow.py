"""What becomes of a batch for a partition that is full: the rules of `headrace.overflow`, without clock, log or socket.

A partition has a limit in records, in bytes, or both, and a policy. What counts against the limit, and how room is
made, is known to whoever asks (`broker/queues/overflow.py`).

What always holds: what is in the partition and the batch that is taken are within the limit together; batches that wait
are taken in the order in which they came; and of one producer's numbered batches none is taken after one that was
refused before it, until that one has come again. Without that, the batches which a client has under way would be out of
order, or the first of a new producer be lost.
"""

from collections import OrderedDict, deque
from enum import Enum, StrEnum, auto
from typing import Final, Generic, NamedTuple, TypeVar

T = TypeVar("T")

_SEQUENCES: Final = 2**31  # sequence numbers wrap there
_REFUSED_KEPT: Final = 1000  # producers of which it is known that a batch was refused


class Policy(StrEnum):
    BUFFER = "buffer"  # there is no limit but retention
    BLOCK = "block"
    REJECT = "reject"
    DROP_OLDEST = "drop-oldest"
    DROP_NEWEST = "drop-newest"


class Size(NamedTuple):
    records: int
    bytes: int


class Limit(NamedTuple):
    """How much a partition may hold; -1 for any number."""

    policy: Policy
    records: int = -1
    bytes: int = -1

    def fits(self, held: Size, batch: Size) -> bool:
        return not any(self.excess(held, batch))

    def excess(self, held: Size, batch: Size) -> Size:
        """How much would have to go for the batch to fit."""
        return Size(
            max(0, held.records + batch.records - self.records) if self.records >= 0 else 0,
            max(0, held.bytes + batch.bytes - self.bytes) if self.bytes >= 0 else 0,
        )


class Numbered(NamedTuple):
    """Who sent a batch, and its first sequence number (KIP-98)."""

    producer_id: int
    epoch: int
    sequence: int


class Verdict(Enum):
    TAKE = auto()
    WAIT = auto()  # until there is room, behind those that wait already
    REFUSE = auto()  # the client sends it again later
    DROP = auto()  # it is acknowledged, and nowhere
    MAKE_ROOM = auto()  # the oldest records go, and it is taken
    TOO_LARGE = auto()  # it fits into no partition with this limit


_WHEN_FULL: Final = {
    Policy.BUFFER: Verdict.TAKE,
    Policy.BLOCK: Verdict.WAIT,
    Policy.REJECT: Verdict.REFUSE,
    Policy.DROP_OLDEST: Verdict.MAKE_ROOM,
    Policy.DROP_NEWEST: Verdict.DROP,
}


def is_before(sequence: int, other: int) -> bool:
    """Whether a producer's sequence number comes before another; they wrap."""
    return 0 < (other - sequence) % _SEQUENCES < _SEQUENCES // 2


class Gate(Generic[T]):
    """The way into one partition: who waits for room, and which producers are to come again."""

    def __init__(self) -> None:
        self._line: deque[tuple[T, Size, Numbered | None]] = deque()
        self._refused: OrderedDict[int, Numbered] = OrderedDict()  # by producer id: its first batch that was refused

    def __len__(self) -> int:
        return len(self._line)

    def judge(self, limit: Limit, held: Size, batch: Size, number: Numbered | None = None) -> Verdict:
        """What becomes of a batch that has just come; it changes nothing."""
        verdict = self._judge(limit, held, batch, number)
        return Verdict.WAIT if self._line and verdict is Verdict.TAKE else verdict

    def _judge(self, limit: Limit, held: Size, batch: Size, number: Numbered | None) -> Verdict:
        if not limit.fits(Size(0, 0), batch):
            return Verdict.TOO_LARGE
        if number is not None and self._follows_refused(number):
            return Verdict.REFUSE
        return Verdict.TAKE if limit.fits(held, batch) else _WHEN_FULL[limit.policy]

    def _follows_refused(self, number: Numbered) -> bool:
        first = self._refused.get(number.producer_id)
        return first is not None and first.epoch == number.epoch and is_before(first.sequence, number.sequence)

    def took(self, number: Numbered) -> None:
        """A numbered batch goes into the log: those behind it may follow."""
        first = self._refused.get(number.producer_id)
        if first is not None and not (first.epoch == number.epoch and is_before(number.sequence, first.sequence)):
            del self._refused[number.producer_id]

    def refused(self, number: Numbered) -> None:
        """A numbered batch was refused: those behind it are, until it comes again."""
        first = self._refused.get(number.producer_id)
        if first is None or first.epoch != number.epoch or is_before(number.sequence, first.sequence):
            self._refused[number.producer_id] = number
        self._refused.move_to_end(number.producer_id)
        if len(self._refused) > _REFUSED_KEPT:
            self._refused.popitem(last=False)

    # --- those that wait

    def wait(self, waiter: T, batch: Size, number: Numbered | None = None) -> None:
        self._line.append((waiter, batch, number))

    def next(self, limit: Limit, held: Size) -> tuple[T, Verdict] | None:
        """The first that waits, out of the line now, and what becomes of it; None as long as it has to wait."""
        if not self._line:
            return None
        waiter, batch, number = self._line[0]
        verdict = self._judge(limit, held, batch, number)
        if verdict is Verdict.WAIT:
            return None
        self._line.popleft()
        return waiter, verdict

    def first_size(self) -> Size:
        """How large the first is that waits."""
        return self._line[0][1] if self._line else Size(0, 0)

    def leave(self, waiter: T) -> bool:
        """Wait no more; whether it did."""
        for index, entry in enumerate(self._line):
            if entry[0] is waiter:
                del self._line[index]
                return True
        return False

    def everybody(self) -> list[T]:
        return [waiter for waiter, _, _ in self._line]
