"""A clock that a test moves by hand."""


class FakeClock:
    """A `headrace.clock.Clock` that stands still until it is told otherwise."""

    def __init__(self, now_ms: int = 1_700_000_000_000) -> None:
        self._now_ms = now_ms

    def now_ms(self) -> int:
        """Milliseconds since the Unix epoch, the same until somebody moves them."""
        return self._now_ms

    def advance(self, ms: int) -> None:
        """Let `ms` milliseconds pass; a negative number sets the clock back, as wall clocks sometimes are."""
        self._now_ms += ms
