"""Which deliveries were taken: their ids for a while, and so many of them at the most. Pure.

What always holds: an id that is known was taken, and its record is durable; the oldest ids are forgotten first; and
what is forgotten is named once, so that it can be removed where it is kept.
"""

import hashlib
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

_DIGEST_BYTES = 16


def identity(endpoint: str, delivery_id: str) -> bytes:
    """What an id of an endpoint is known by: short, however long the id is."""
    said = f"{endpoint}\0{delivery_id}".encode(errors="surrogatepass")
    return hashlib.sha256(said).digest()[:_DIGEST_BYTES]


@dataclass(slots=True)
class Memory:
    """By identity, until when it counts, by the wall clock in milliseconds."""

    most: int
    forgotten_early: int = 0  # for want of room
    _known: dict[bytes, int] = field(default_factory=dict)  # in the order in which they end, about
    _forgotten: deque[bytes] = field(default_factory=deque)

    def __len__(self) -> int:
        return len(self._known)

    def load(self, known: Mapping[bytes, int], now_ms: int) -> None:
        """Begin anew with what is kept."""
        self._known = dict(sorted(known.items(), key=lambda each: each[1]))
        self._forgotten.clear()
        self.tidy(now_ms)

    def knows(self, each: bytes, now_ms: int) -> bool:
        until_ms = self._known.get(each)
        return until_ms is not None and until_ms > now_ms

    def remember(self, those: Iterable[bytes], until_ms: int, now_ms: int) -> None:
        for each in those:
            self._known.pop(each, None)
            self._known[each] = until_ms
        self.tidy(now_ms)

    def tidy(self, now_ms: int) -> None:
        """Forget what is over, and what there is no room for."""
        while self._known:
            oldest = next(iter(self._known))
            if self._known[oldest] > now_ms:
                if len(self._known) <= self.most:
                    return
                self.forgotten_early += 1
            del self._known[oldest]
            self._forgotten.append(oldest)

    def take_forgotten(self, most: int) -> list[bytes]:
        """Some of what can be removed where it is kept; named once, and not if it is known again."""
        found: list[bytes] = []
        while self._forgotten and len(found) < most:
            each = self._forgotten.popleft()
            if each not in self._known:
                found.append(each)
        return found
