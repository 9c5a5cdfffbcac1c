"""Backing off: how long to wait after each failure in a row, and when to give up. Pure: others do the waiting."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import count
from typing import Final, Self

_MOST_DOUBLINGS: Final = 60  # what is longer than this is longer than any limit
_JITTER: Final = 0.2  # as Kafka's own clients have it (KIP-580)


@dataclass(frozen=True, slots=True)
class Backoff:
    """Pauses that double up to the longest."""

    first_s: float = 0.5
    longest_s: float = 30.0
    retries: int | None = None  # for ever

    def pause_s(self, failures: int) -> float:
        """The pause after so many failures in a row."""
        return float(min(self.first_s * 2.0 ** min(failures - 1, _MOST_DOUBLINGS), self.longest_s))

    def gives_up(self, failures: int) -> bool:
        """Whether so many failures in a row are too many."""
        return self.retries is not None and failures > self.retries

    def pauses(self) -> Iterator[float]:
        """The pause before each retry, until it gives up."""
        for failures in count(1):
            if self.gives_up(failures):
                return
            yield self.pause_s(failures)

    def at_most(self, retries: int) -> Self:
        """The same pauses, and so many retries."""
        return replace(self, retries=retries)


def spread(pause_s: float, chance: float) -> float:
    """A pause a fifth longer or shorter, by a `chance` of 0 to 1: those who failed together do not return together."""
    return pause_s * (1 + _JITTER * (2 * chance - 1))
