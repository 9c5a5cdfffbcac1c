"""How far a batch goes that cannot take all: up to one moment of record time, the same in every partition.

A watermark follows the latest row of all partitions. If a batch took a share of each partition by its length, one
partition could come hours before another, and the rows of the other would be late although each partition is in order:
a replay would drop what a live run kept. So a batch ends at a moment: what is older has been read in every partition,
and what comes next is younger. Pure; where a moment lies in each partition is asked through a function.

Record time has milliseconds. Where one of them holds more than a batch may take, partitions share by what waits in
them, within that millisecond.
"""

from collections.abc import Callable, Mapping
from typing import NamedTuple

from headrace.model import TopicPartition
from headrace.pipelines.source.planning import Offsets, limited

# A batch this full is full enough: each further step of the search is a request to every broker.
_FULL_ENOUGH = 0.8


class Moment(NamedTuple):
    """A time, the offsets that lie before it, and what the records up to there cost."""

    time_ms: int
    offsets: Offsets
    cost: float


def aligned(
    starts: Mapping[TopicPartition, int],
    ends: Mapping[TopicPartition, int],
    budget: float,
    cost: Mapping[TopicPartition, float],
    offsets_at: Callable[[int], Mapping[TopicPartition, int]],
    *,
    first_ms: int,
    last_ms: int,
) -> Moment:
    """How far a batch may go whose records may cost so much in all, and the moment at which it ends.

    `offsets_at` gives for each partition the first offset at or after a time, -1 where there is none. Everything that
    waits lies from `first_ms` to `last_ms`, or is older than a record that was read already.
    """

    def moment(time_ms: int) -> Moment:
        found = offsets_at(time_ms)
        reach = {w: max(min(found[w], end), starts[w]) if found[w] >= 0 else end for w, end in ends.items()}
        return Moment(time_ms, reach, _cost(starts, reach, cost))

    high = Moment(last_ms + 1, dict(ends), _cost(starts, ends, cost))
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
    shared = limited(low.offsets, high.offsets, budget - low.cost, cost)
    return Moment(low.time_ms, shared, _cost(starts, shared, cost))


def _cost(
    starts: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int], cost: Mapping[TopicPartition, float]
) -> float:
    return sum(max(end - starts[where], 0) * cost[where] for where, end in ends.items())
