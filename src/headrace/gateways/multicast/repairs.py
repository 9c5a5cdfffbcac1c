"""Which datagrams are sent again, and when. Pure.

Receivers take turns, and each has an allowance of its own beside that of all: one that loses everything gets its share
and no more, and the others' repairs do not wait behind its. What is asked for twice within a moment is sent once, since
everybody hears it.
"""

from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Final

from headrace.gateways.multicast.pace import Pace
from headrace.gateways.multicast.wire import Nak

_MOST_RECEIVERS: Final = 256
_MOST_WANTED: Final = 512  # datagrams, of one receiver
_AGAIN_S: Final = 0.02  # what was sent again so long ago is on its way
_FORGET: Final = 4_096


@dataclass(slots=True)
class _Receiver:
    pace: Pace
    number: int = -1  # of its last NAK
    wanted: OrderedDict[int, None] = field(default_factory=OrderedDict)


class Repairs:
    """What receivers ask for, in turns."""

    def __init__(self, rate_bytes_s: float, datagram_bytes: int) -> None:
        self._all = Pace(rate_bytes_s, 4 * datagram_bytes)
        self._each_rate = rate_bytes_s / 2
        self._datagram_bytes = datagram_bytes
        self._receivers: OrderedDict[int, _Receiver] = OrderedDict()
        self._turns: OrderedDict[int, None] = OrderedDict()  # receivers that want something
        self._sent: OrderedDict[int, float] = OrderedDict()
        self.refused = 0

    def ask(self, nak: Nak, first_held: int, end: int) -> bool:
        """Note what a receiver misses; whether something of it is held no more."""
        receiver = self._receivers.get(nak.receiver)
        if receiver is None:
            if len(self._receivers) >= _MOST_RECEIVERS:
                gone, _ = self._receivers.popitem(last=False)
                self._turns.pop(gone, None)
            receiver = self._receivers[nak.receiver] = _Receiver(Pace(self._each_rate, 4 * self._datagram_bytes))
        self._receivers.move_to_end(nak.receiver)
        if nak.number <= receiver.number:
            self.refused += 1  # one that was recorded and sent again, or overtaken by its successor
            return False
        receiver.number = nak.number
        is_gone = False
        for first, count in nak.ranges:
            is_gone = is_gone or first < first_held
            for sequence in range(max(first, first_held), min(first + count, end)):
                if len(receiver.wanted) >= _MOST_WANTED:
                    self.refused += 1
                    break
                receiver.wanted[sequence] = None
        if receiver.wanted:
            self._turns[nak.receiver] = None
        return is_gone

    def next(self, now: float, first_held: int) -> int | None:
        """What is to be sent again now; `sent` has to be called with its size."""
        if not self._turns or not self._all.is_ready(now):
            return None
        for name in list(self._turns):
            receiver = self._receivers[name]
            if not receiver.pace.is_ready(now):
                continue
            while receiver.wanted:
                sequence, _ = receiver.wanted.popitem(last=False)
                if sequence >= first_held and now - self._sent.get(sequence, float("-inf")) >= _AGAIN_S:
                    self._turns.move_to_end(name)
                    self._current = receiver
                    return sequence
            del self._turns[name]
        return None

    _current: _Receiver

    def sent(self, sequence: int, size: int, now: float) -> None:
        self._all.take(size)
        self._current.pace.take(size)
        self._sent[sequence] = now
        self._sent.move_to_end(sequence)
        if len(self._sent) > _FORGET:
            self._sent.popitem(last=False)

    def next_at(self, now: float) -> float | None:
        """When the next one may go; None if nothing is asked for."""
        if not self._turns:
            return None
        return max(self._all.ready_at(now), min(self._receivers[name].pace.ready_at(now) for name in self._turns))
