"""How fast something may go: a bucket of bytes that fills with time. Pure."""

from dataclasses import dataclass
from math import inf
from typing import Final

_BURST_S: Final = 0.01  # so much of a second may go out in one go


@dataclass(slots=True)
class Pace:
    """What was taken may be more than there was, once; then nothing is until that is made up for."""

    rate_bytes_s: float | None  # None: as fast as it goes
    least_burst_bytes: int
    _tokens: float = 0.0
    _at: float = -inf

    def __post_init__(self) -> None:
        self._tokens = self._burst

    @property
    def _burst(self) -> float:
        return max(self.least_burst_bytes, (self.rate_bytes_s or 0.0) * _BURST_S)

    def is_ready(self, now: float) -> bool:
        if self.rate_bytes_s is None:
            return True
        if now > self._at:
            # At the first look there is no time to fill it by: it is full.
            gained = (now - self._at) * self.rate_bytes_s if self._at != -inf else 0.0
            self._tokens = min(self._burst, self._tokens + gained)
            self._at = now
        return self._tokens > 0

    def take(self, size: int) -> None:
        if self.rate_bytes_s is not None:
            self._tokens -= size

    def ready_at(self, now: float) -> float:
        """When something may go again."""
        if self.rate_bytes_s is None or self.is_ready(now):
            return now
        # A byte more than nothing: rounding must not wake anybody a moment too early, again and again.
        return now + (1.0 - self._tokens) / self.rate_bytes_s
