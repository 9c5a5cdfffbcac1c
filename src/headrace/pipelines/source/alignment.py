"""How far a batch goes that cannot take all: up to one moment of record time, the same in every partition.

A watermark follows the latest row of all partitions. If a batch took a share of each partition by its length, one
partition could come hours before another, and the rows of the other would be late although each partition is in order:
a replay would drop what a live run kept. So a batch ends at a moment: what is older has been read in every partition,
and what comes next is younger. Pure; where a moment lies in each partition is asked through functions.

A broker finds a time's first record, in the whole log. One record with a time ahead of its neighbours, or the marker of
a transaction whose records are older than it, therefore hides all that comes behind it and is older; the partition
would stand still while the others, and the watermark, go on. So what a batch leaves is looked at, and where that is too
old the moment is found by looking at records instead.

Record time has milliseconds. Where one of them holds more than a batch may take, partitions share by what waits in
them, within that millisecond.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from headrace.model import TopicPartition
from headrace.pipelines.source.planning import Offsets, limit_offsets

# A batch this full is full enough: each further step of the search is a request to every broker.
_FULL_ENOUGH = 0.8
# Looking stops at this part of a batch: each look is a request too.
_PRECISION = 1 / 64
_LITTLE = 8  # disorder by this part of a batch's time is little


class Moment(NamedTuple):
    """A time, the offsets that lie before it, and what the records up to there cost."""

    time_ms: int
    offsets: Offsets
    cost: float


@dataclass(frozen=True)
class Backlog:
    """What waits from `starts` to `ends`, what a record of each partition costs, and how its times are asked for."""

    starts: Mapping[TopicPartition, int]
    ends: Mapping[TopicPartition, int]
    cost: Mapping[TopicPartition, float]
    offsets_at: Callable[[int], Mapping[TopicPartition, int]]
    """For each partition the first offset at or after a time, -1 where there is none."""
    oldest_from: Callable[[Offsets], Mapping[TopicPartition, int]]
    """For offsets that wait the oldest time of the first few records from there on."""
    _looked: dict[tuple[TopicPartition, int], int] = field(default_factory=dict)

    def cost_to(self, reach: Mapping[TopicPartition, int]) -> float:
        return sum(max(end - self.starts[where], 0) * self.cost[where] for where, end in reach.items())

    def left_behind(self, moment: Moment, time_ms: int) -> set[TopicPartition]:
        """The partitions in which a batch up to a moment leaves records that are older than a time."""
        left = {where: reach for where, reach in moment.offsets.items() if reach < self.ends[where]}
        return {where for where, oldest in self.oldest_from(left).items() if oldest < time_ms}

    def reached(self, misled: Collection[TopicPartition], time_ms: int, budget: float) -> Offsets:
        """About where a time lies in some partitions, by looking; no further than a batch may go."""
        low = {where: self.starts[where] for where in misled}
        high = {where: min(self.ends[where], low[where] + int(budget / self.cost[where]) + 1) for where in misled}
        step = {where: max(int((high[where] - low[where]) * _PRECISION), 1) for where in misled}
        while middle := {w: (low[w] + high[w]) // 2 for w in misled if high[w] - low[w] > step[w]}:
            unseen = {where: offset for where, offset in middle.items() if (where, offset) not in self._looked}
            self._looked.update({(where, unseen[where]): oldest for where, oldest in self.oldest_from(unseen).items()})
            for where, offset in middle.items():
                (low if self._looked[where, offset] < time_ms else high)[where] = offset
        return low


def align_batch(backlog: Backlog, budget: float, *, first_ms: int, last_ms: int) -> Moment:
    """How far a batch may go whose records may cost so much in all, and the moment at which it ends.

    Everything that waits lies from `first_ms`, the moment of the batch before, to `last_ms`, or is older than a record
    that was read already. Records in a little disorder are as good as in order: the next batch has what is left, and
    rows are judged by the watermark before.
    """
    misled: set[TopicPartition] = set()
    while True:
        moment = _found(backlog, budget, misled, first_ms, last_ms)
        length_ms = moment.time_ms - first_ms if first_ms else 0
        behind = backlog.left_behind(moment, moment.time_ms - max(length_ms, 0) // _LITTLE) - misled
        if not behind:
            return moment
        misled |= behind


def _found(backlog: Backlog, budget: float, misled: set[TopicPartition], first_ms: int, last_ms: int) -> Moment:
    """The moment, in `misled` partitions by looking."""
    starts, ends = backlog.starts, backlog.ends

    def moment(time_ms: int) -> Moment:
        found = backlog.offsets_at(time_ms)
        reach = {w: max(min(found[w], end), starts[w]) if found[w] >= 0 else end for w, end in ends.items()}
        reach |= {w: max(reach[w], offset) for w, offset in backlog.reached(misled, time_ms, budget).items()}
        return Moment(time_ms, reach, backlog.cost_to(reach))

    high = Moment(last_ms + 1, dict(ends), backlog.cost_to(ends))
    if high.cost <= budget:
        return high
    low = moment(first_ms)
    if low.cost > budget:
        low = Moment(0, dict(starts), 0.0)
    halves = False
    while high.time_ms - low.time_ms > 1:
        if low.cost >= _FULL_ENOUGH * budget:
            return low
        # Where records come evenly the first guess is right; where they do not, every second step halves what is left.
        share = 0.5 if halves else (0.5 * (1 + _FULL_ENOUGH) * budget - low.cost) / (high.cost - low.cost)
        halves = not halves
        guess = low.time_ms + int((high.time_ms - low.time_ms) * share)
        tried = moment(min(max(guess, low.time_ms + 1), high.time_ms - 1))
        low, high = (tried, high) if tried.cost <= budget else (low, tried)
    if low.cost >= _FULL_ENOUGH * budget:
        return low
    shared = limit_offsets(low.offsets, high.offsets, budget - low.cost, backlog.cost)
    return Moment(low.time_ms, shared, backlog.cost_to(shared))
