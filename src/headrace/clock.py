"""Time as something that is handed in, so that a test can hold it still.

Pure code takes `now_ms` as an argument; only shells own a `Clock`.
"""

import time
from typing import Protocol


class Clock(Protocol):
    """Where a shell reads the time from."""

    def now_ms(self) -> int:
        """Wall-clock milliseconds since the Unix epoch, as record timestamps are."""
        ...


class SystemClock:
    """The machine's own clock."""

    def now_ms(self) -> int:
        """Wall-clock milliseconds since the Unix epoch."""
        return time.time_ns() // 1_000_000
