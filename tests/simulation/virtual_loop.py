"""An event loop in which time passes only when nothing else is left to do: deterministic, and as fast as it can be."""

import asyncio
import selectors
from math import ceil

from headrace.testing.clock import FakeClock


class _NothingToWaitFor(selectors.SelectSelector):
    def __init__(self, clock: FakeClock) -> None:
        super().__init__()
        self._clock = clock

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        assert timeout is not None, "everybody waits, and nothing is going to happen"
        if timeout > 0:
            self._clock.advance(max(1, ceil(timeout * 1000)))
        return []


class VirtualLoop(asyncio.SelectorEventLoop):
    """Its time is the clock's."""

    def __init__(self, clock: FakeClock) -> None:
        self._fake = clock
        super().__init__(_NothingToWaitFor(clock))

    def time(self) -> float:
        """Seconds, as the clock has them."""
        return self._fake.now_ms() / 1000
