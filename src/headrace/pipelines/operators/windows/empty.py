"""Results of windows without rows, for keys that are alive: a rate that can read 0.

A pane with rows keeps its key alive until so long after its end: the windows that begin in that time and have no row
are empty ones with a result. So which windows those are depends on the panes with rows alone; more rows, also late
ones, only make more of them, or make an empty window one with rows.

Of the panes that no open window has in it one is kept, the last: what it keeps alive goes further than what those
before it do.
"""

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from headrace.pipelines.operators.errors import BadWindow
from headrace.pipelines.operators.grouping import Longs, highest, lowest
from headrace.pipelines.operators.times import LATEST, Interval, positive

_MOST = 100_000
_MOST_AT_ONCE = 50_000_000


class Places(Protocol):
    """Where windows and panes are: `panes.Hops`."""

    @property
    def size(self) -> int: ...

    @property
    def slide(self) -> int: ...

    @property
    def offset(self) -> int: ...

    @property
    def pane(self) -> int: ...

    def end_until(self, time: int) -> int: ...


def read_empty(given: Interval | None, slide_us: int, what: str) -> int | None:
    """How long a silent key is alive."""
    if given is None:
        return None
    found = positive(given, f"empty in {what}")
    if found // slide_us > _MOST:
        raise BadWindow(
            f"{what}: empty={given!r} makes {found // slide_us:,} results of each key that falls silent: write at most "
            f"{_MOST:,} windows, or larger ones"
        )
    return found


def check_number(results: int) -> None:
    """Refuse to make more results at once than memory holds, which a single time far in the future can ask for."""
    if results > _MOST_AT_ONCE:
        raise BadWindow(
            f"empty= makes {results:,} results of windows without rows at once, because the watermark went so far, and "
            f"at most {_MOST_AT_ONCE:,} can be: leave out rows with times that cannot be, or write larger windows"
        )


@dataclass(frozen=True)
class Alive:
    """Panes with rows, sorted by key and time, each once, and the empty windows behind each of them.

    `low` … `high` are the starts of the windows behind a pane that are empty, so far as is known.
    """

    hops: Places
    silence: int
    key: Longs
    pane: Longs

    @property
    def ends(self) -> Longs:
        return self.pane + self.hops.pane

    def _start_until(self, time: Longs) -> Longs:
        """The latest start of a window at or before a time."""
        return (time - self.hops.offset) // self.hops.slide * self.hops.slide + self.hops.offset

    @property
    def low(self) -> Longs:
        return self._start_until(self.ends - 1) + self.hops.slide

    @property
    def high(self) -> Longs:
        following = np.full(len(self.pane), LATEST, np.int64)
        same = self.key[1:] == self.key[:-1]
        following[:-1][same] = self.pane[1:][same]
        return self._start_until(np.minimum(self.ends + self.silence - 1, following - self.hops.size))

    def windows(self, begins: Longs, reached: int) -> tuple[Longs, Longs]:
        """Whose, and the ends: the empty windows that end from `begins` of their key to `reached`."""
        size, slide = self.hops.size, self.hops.slide
        low = np.maximum(self.low, self._start_until(np.minimum(begins, LATEST)[self.key] - size - 1) + slide)
        high = np.minimum(self.high, self.hops.end_until(reached) - size)
        numbers = np.maximum((high - low) // slide + 1, 0)
        check_number(int(numbers.sum()))
        step = np.arange(numbers.sum()) - np.repeat(np.cumsum(numbers) - numbers, numbers)
        return np.repeat(self.key, numbers), np.repeat(low, numbers) + step * slide + size

    def timers(self, count: int, reached: int, allowed: int, default: int) -> Longs:
        """When each key has its next empty window, or can be forgotten."""
        size, slide = self.hops.size, self.hops.slide
        following = np.maximum(self.low, self.hops.end_until(reached) + slide - size)
        some = following <= self.high
        timers = lowest(count, self.key[some], following[some] + size, default)
        forgotten = self.last_end + allowed
        waits = forgotten > reached
        last = highest(count, self.key[waits], forgotten[waits], -1)
        return np.minimum(timers, np.where(last < 0, default, last))

    @property
    def last_end(self) -> Longs:
        """Where the last window that a pane can keep alive ends."""
        return self._start_until(self.ends + self.silence - 1) + self.hops.size

    def kept(self, count: int, horizon: int) -> tuple[Longs, Longs]:
        """Of each key the last pane that no window has in it that can still be emitted; none if it keeps none alive."""
        open_from = self.hops.end_until(horizon) + self.hops.slide - self.hops.size
        closed = (self.ends <= open_from) & (self.last_end > horizon)
        last = highest(count, self.key[closed], self.pane[closed], -LATEST)
        keys = np.flatnonzero(last != -LATEST)
        return keys, last[keys]
