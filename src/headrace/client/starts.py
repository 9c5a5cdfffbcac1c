"""Where a reader begins in each partition, and where the partition ends at that moment."""

from collections.abc import Collection
from dataclasses import dataclass
from enum import Enum, auto
from typing import NamedTuple

from headrace.client.cluster import Cluster
from headrace.client.errors import OffsetOutOfRange
from headrace.client.offsets import Bounds, bounds, list_offsets
from headrace.model import TopicPartition


class StartKind(Enum):
    """How a place in a log is named."""

    EARLIEST = auto()
    LATEST = auto()
    OFFSET = auto()
    LAST = auto()  # so many before the end
    TIME = auto()


@dataclass(frozen=True, slots=True)
class Start:
    """A place in a log; `number` is an offset, how many, or milliseconds since the epoch."""

    kind: StartKind
    number: int = 0


class Stretch(NamedTuple):
    """For each partition the offset to begin at, and its end."""

    starts: dict[TopicPartition, int]
    ends: dict[TopicPartition, int]


def find_stretch(
    cluster: Cluster, partitions: Collection[TopicPartition], start: Start, *, committed: bool = False
) -> Stretch:
    """Look up a place in each partition; an offset must be in every one of them."""
    held = bounds(cluster, partitions, committed=committed)
    ends = {where: bound.end for where, bound in held.items()}
    if start.kind is StartKind.TIME:
        found = list_offsets(cluster, dict.fromkeys(partitions, start.number), committed=committed)
        # Nothing that young: what comes from now on will be.
        starts = {where: ends[where] if found[where].offset < 0 else found[where].offset for where in partitions}
    else:
        starts = {where: _place(where, held[where], start) for where in partitions}
    return Stretch(starts, ends)


def _place(where: TopicPartition, held: Bounds, start: Start) -> int:
    match start.kind:
        case StartKind.EARLIEST:
            return held.start
        case StartKind.LAST:
            return max(held.start, held.end - start.number)
        case StartKind.OFFSET:
            if not held.start <= start.number <= held.end:
                raise OffsetOutOfRange(where, start.number, held.start, held.end)
            return start.number
        case _:
            return held.end
