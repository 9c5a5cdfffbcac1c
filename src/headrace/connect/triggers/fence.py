"""Up to where the captured changes are complete. Pure, but for the questions that are handed in.

See the package's own text for why it takes a fence.
"""

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Fence:
    """Whoever holds a position up to `position` has a transaction id below `xid`."""

    position: int
    xid: int


@dataclass(slots=True)
class Fences:
    """Takes fences, and says how far one can read.

    `new_xid` gives an id to a transaction of our own, after the last position was asked: whoever has a position up to
    there had an id before. (`pg_snapshot_xmax` would be no such bound: it is the id behind the last that has *ended*,
    and transactions with higher ids may run.) It costs an id only when there is something new.
    """

    last_position: Callable[[], int]
    new_xid: Callable[[], int]
    oldest_running: Callable[[], int]
    passed: int = 0
    waiting: Fence | None = None

    def advance(self) -> int:
        """The position up to which everything is there."""
        if self.waiting is None:
            position = self.last_position()
            if position > self.passed:
                self.waiting = Fence(position, self.new_xid())
        if self.waiting is not None and self.oldest_running() >= self.waiting.xid:
            self.passed = self.waiting.position
            self.waiting = None
        return self.passed
