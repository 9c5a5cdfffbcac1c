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
        self._fake, self._began_ms = clock, clock.now_ms()
        super().__init__(_NothingToWaitFor(clock))

    def time(self) -> float:
        """Seconds since the start: a small number, so that the loop's comparisons have no rounding to stumble over."""
        return (self._fake.now_ms() - self._began_ms) / 1000
