"""When a window is over: by the watermark, and if asked for by the wall clock as well."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from headrace.pipelines.keyed.operator import NEVER, NO_WATERMARK, Clock, Due, State, Timers, Times
from headrace.pipelines.operators.grouping import Longs
from headrace.pipelines.operators.hops import EARLY


@dataclass(frozen=True)
class Closing:
    """`grace_us` closes a window so long after its end by the wall clock, whatever the watermark says.

    `early_us` tells what there is of open windows so often, for keys that have new rows.
    """

    grace_us: int | None = None
    early_us: int | None = None

    @property
    def clock(self) -> Clock:
        """What has to wake the operator."""
        return Clock.EVENT if self.grace_us is None and self.early_us is None else Clock.WALL

    def reached(self, times: Times) -> int:
        """Up to where windows are over."""
        found = times.watermark_us
        if self.grace_us is not None and times.wall_us != NO_WATERMARK:
            found = max(found, times.wall_us - self.grace_us)
        return max(found, EARLY)

    def waiting(self, state: State) -> Longs:
        """When each key of the call is to be woken for the end of a window."""
        return state.timers(Clock.EVENT)

    def event_timers(self, at_us: Longs) -> Timers:
        """Timers of all keys of a call."""
        return Timers(np.arange(len(at_us), dtype=np.int64), at_us)

    def wall_timers(self, at_us: Longs, state: State, times: Times, *, fresh: bool) -> Timers | None:
        """Timers by the wall clock, if there are any: for the end of a window, and to tell early results."""
        if self.clock is Clock.EVENT:
            return None
        wanted = np.full(len(at_us), NEVER, np.int64)
        if self.grace_us is not None:
            ends = np.flatnonzero(at_us != NEVER)
            wanted[ends] = at_us[ends] + self.grace_us
        if self.early_us is not None:
            # The first row after a telling sets the time of the next one; later rows do not put it off.
            wanted = np.minimum(wanted, state.timers(Clock.WALL))
            wanted = np.minimum(wanted, times.wall_us + self.early_us) if fresh else wanted
        return Timers(np.arange(len(at_us), dtype=np.int64), wanted)

    def tells_early(self, due: Due) -> NDArray[np.bool_]:
        """The keys of which open windows are told now."""
        return np.asarray((due.wall_us != NEVER) & (self.early_us is not None), np.bool_)

    def due_from(self, due: Due, state: State) -> Longs:
        """The earliest end that each key waits for; a key woken by the wall clock still has its event timer set."""
        return np.minimum(due.event_us, state.timers(Clock.EVENT))
