"""Truncates: every partition has one, and the target is emptied when all partitions have come to it. Pure.

A truncate empties the whole table, but partitions are read at different speeds: emptied at the first truncate that is
seen, the target would keep or lose rows of the other partitions. So a partition waits at its truncate for the others.

Compaction may have removed an older truncate from some partitions and not yet from others, because a newer one stands
for it there. So the newest one counts: a partition that waits at an older one goes on to it. A partition that comes to
its end, as it was when the newest was seen, has none and is waited for no more: a truncate is written to all partitions
in one transaction, so by then it would have to be there.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

Moment: TypeAlias = tuple[int, ...]


@dataclass(slots=True)
class Alignment:
    """Which partitions wait at a truncate, and for whom."""

    waiting: dict[int, tuple[Moment, int]] = field(default_factory=dict)  # partition: its truncate and that's offset
    ends: dict[int, int] = field(default_factory=dict)  # of all partitions, when the newest truncate was seen
    newest: Moment | None = None
    done: Moment | None = None

    @property
    def is_waiting(self) -> bool:
        """Whether any partition waits."""
        return bool(self.waiting)

    def meet(self, partition: int, moment: Moment, offset: int) -> bool:
        """A partition has come to a truncate: whether it has to wait there."""
        if moment == self.done:
            return False  # in a partition that was not known when the others came to it
        self.waiting[partition] = (moment, offset)
        return True

    def wants_ends(self) -> bool:
        """Whether a truncate was seen that is newer than `ends`."""
        seen = max((moment for moment, _ in self.waiting.values()), default=None)
        return seen is not None and (self.newest is None or seen > self.newest)

    def set_ends(self, ends: Mapping[int, int]) -> None:
        """Where the partitions end now that the newest truncate was seen."""
        self.newest = max(moment for moment, _ in self.waiting.values())
        self.ends = dict(ends)

    def outdated(self) -> dict[int, int]:
        """Partitions that wait at a truncate for which a newer one stands, and the offset behind it; they go on."""
        old = {p: offset + 1 for p, (moment, offset) in self.waiting.items() if moment != self.newest}
        for partition in old:
            del self.waiting[partition]
        return old

    def complete(self, positions: Mapping[int, int]) -> dict[int, int] | None:
        """Once nobody is missing: the offsets behind the truncate. Partitions are at `positions`."""
        for partition, position in positions.items():
            if partition not in self.waiting and position < self.ends.get(partition, 0):
                return None
        behind = {partition: offset + 1 for partition, (_, offset) in self.waiting.items()}
        self.done, self.newest = self.newest, None
        self.waiting.clear()
        return behind
