"""How long until a slow reader loses records: retention against the speed of reading. Pure.

The record that a group reads next is removed when it is as old as the retention. While the group reads, that record is
replaced by younger ones: if it reads one second's worth of records in two seconds, its next record ages at half the
pace, and what is left lasts twice as long. A group that reads at the pace of the writers or faster never gets there.
"""

from dataclasses import dataclass

from headrace.client.lag import Loss, PartitionLag
from headrace.dashboard.history import Series

_ALMOST = 0.995  # closer to the writers' pace than anybody can measure in a minute
_SHORTEST_MS = 1000  # of looking: less says nothing about a pace


@dataclass(frozen=True, slots=True)
class Danger:
    """What a group stands to lose in one partition."""

    lag: PartitionLag
    setting: str
    left_ms: int | None  # until the first loss; None if it will not come, or nobody can say
    pace: float | None  # seconds' worth of records read in a second; None while it cannot be told
    is_near: bool

    @property
    def is_catching_up(self) -> bool:
        """Whether it reads as fast as is written, or faster."""
        return self.pace is not None and self.pace >= _ALMOST


def pace_of(places: Series) -> float | None:
    """How many milliseconds of the log are read in one millisecond; None while it cannot be told."""
    if len(places) < 2 or places[-1].at_ms - places[0].at_ms < _SHORTEST_MS:
        return None
    first, last = places[0], places[-1]
    return max((last.value - first.value) / (last.at_ms - first.at_ms), 0.0)


def danger_of(lag: PartitionLag, places: Series, now_ms: int) -> Danger | None:
    """What threatens a group in a partition; None if nothing does, because it has read all or nothing is removed."""
    loss = lag.loss(now_ms)
    if loss is None:
        return None
    pace = pace_of(places)
    if pace is not None and pace >= _ALMOST:
        return Danger(lag, loss.setting, None, pace, is_near=False)
    slower = 1.0 / (1.0 - (pace or 0.0))  # who is not known to read is taken to stand still
    left_ms = None if loss.left_ms is None else int(loss.left_ms * slower)
    near = Loss(loss.setting, left_ms, min(loss.share_left * slower, 1.0)).is_near
    return Danger(lag, loss.setting, left_ms, pace, is_near=near)


def worst(dangers: list[Danger]) -> Danger | None:
    """The danger that comes first."""
    coming = [danger for danger in dangers if danger.left_ms is not None]
    return min(coming, key=lambda danger: danger.left_ms or 0) if coming else (dangers[0] if dangers else None)
