"""How many messages a subscriber missed, by the sequences of its publishers. Pure.

A publisher counts what it sends of each topic, so a subscriber to some topics sees each of them without gaps, unless
messages were dropped on the way. What was sent before a subscriber came is not missed: only what lies between two
messages that it got is. What comes again, or behind its successor, is counted as repeated and changes nothing else;
memory is bounded by `most` topics of publishers, of which those are forgotten that were silent longest.
"""

from collections import OrderedDict
from typing import Final

MOST: Final = 65_536


class Losses:
    """Counts for one subscriber."""

    __slots__ = ("_most", "_next", "before", "missed", "repeated", "sessions")

    def __init__(self, most: int = MOST) -> None:
        self._most = most
        self._next: OrderedDict[tuple[int, str], int] = OrderedDict()
        self.missed = 0  # sent between two that came, and did not come
        self.before = 0  # sent before the first that came: of these a late joiner knows nothing
        self.repeated = 0  # came again, or out of order
        self.sessions = 0  # beginnings of a topic: of a publisher, or of one that was started anew

    def see(self, session: int, topic: str, sequence: int) -> int:
        """A message came; how many are missed before it."""
        place = (session, topic)
        expected = self._next.get(place)
        if expected is None:
            self.sessions += 1
            self.before += sequence
            if len(self._next) >= self._most:
                self._next.popitem(last=False)
            self._next[place] = sequence + 1
            return 0
        if len(self._next) > 1:
            self._next.move_to_end(place)
        if sequence < expected:
            self.repeated += 1
            return 0
        self._next[place] = sequence + 1
        self.missed += sequence - expected
        return sequence - expected
