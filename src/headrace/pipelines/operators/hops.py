"""Where windows begin and end on the line of time, and the panes they are made of. Pure arithmetic on columns."""

from dataclasses import dataclass
from math import gcd

import numpy as np

from headrace.pipelines.operators.grouping import Longs
from headrace.pipelines.operators.intervals import in_words

EARLY = -(2**61)  # before every time, with room for arithmetic
LATE = 2**61  # behind every time


@dataclass(frozen=True)
class Hops:
    """Windows of `size`, a new one every `slide`, counted from `offset` after 1970. A pane is what all edges divide."""

    size: int
    slide: int
    offset: int = 0

    @property
    def parameters(self) -> dict[str, str]:
        """As a user gives them."""
        return {"size": in_words(self.size), "every": in_words(self.slide), "offset": in_words(self.offset)}

    @property
    def pane(self) -> int:
        """A window is a row of panes, and a row of data belongs to one pane."""
        return gcd(self.size, self.slide)

    def pane_of(self, time: Longs) -> Longs:
        """The start of the pane that holds a time."""
        return (time - self.offset) // self.pane * self.pane + self.offset

    def first_end(self, pane: Longs) -> Longs:
        """The end of the earliest window that has the pane in it."""
        low = pane + self.pane - self.size - self.offset
        return -(-low // self.slide) * self.slide + self.offset + self.size

    def last_end(self, pane: Longs) -> Longs:
        """The end of the latest window that has the pane in it."""
        return (pane - self.offset) // self.slide * self.slide + self.offset + self.size

    def end_until(self, time: int) -> int:
        """The latest end of a window at or before a time."""
        return (max(time, EARLY) - self.offset - self.size) // self.slide * self.slide + self.offset + self.size

    def next_end(self, pane: Longs, after: int) -> Longs:
        """The earliest end after a time of a window with the pane in it; beyond `last_end` if there is none."""
        return np.maximum(self.first_end(pane), self.end_until(after) + self.slide)
