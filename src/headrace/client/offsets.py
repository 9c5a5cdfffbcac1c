"""Where partitions start and end, where a time begins in them (ListOffsets), and where a reader is to begin."""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum, auto
from typing import NamedTuple

from headrace.client.cluster import Cluster
from headrace.client.errors import ClientError, OffsetOutOfRange
from headrace.client.leaders import Question, ask_leaders, by_topic, refused
from headrace.model import TopicPartition
from headrace.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)

LATEST = -1
EARLIEST = -2
YOUNGEST = -3  # the record with the greatest timestamp (KIP-734)
READ_UNCOMMITTED, READ_COMMITTED = 0, 1


class FoundOffset(NamedTuple):
    """An offset, and the timestamp of the record there; both -1 where no record is young enough."""

    offset: int
    timestamp: int


class Bounds(NamedTuple):
    """What a partition holds: the first offset, and the one that the next record will get."""

    start: int
    end: int


def list_offsets(
    cluster: Cluster, asked: Mapping[TopicPartition, int], *, committed: bool = False
) -> dict[TopicPartition, FoundOffset]:
    """For each partition the first offset at or after a time in milliseconds, or at `EARLIEST`, `LATEST`
    or `YOUNGEST`.

    `committed` makes the end that of a read-committed reader: open transactions lie behind it.
    """

    def ask(partitions: list[TopicPartition]) -> ListOffsetsRequest:
        return ListOffsetsRequest(
            replica_id=-1,
            isolation_level=READ_COMMITTED if committed else READ_UNCOMMITTED,
            topics=[
                ListOffsetsTopic(
                    name=topic,
                    partitions=[
                        ListOffsetsPartition(partition_index=index, timestamp=asked[TopicPartition(topic, index)])
                        for index in indexes
                    ],
                )
                for topic, indexes in by_topic(partitions).items()
            ],
        )

    return ask_leaders(cluster, asked, Question(ListOffsetsResponse, ask, _read))


def _read(response: ListOffsetsResponse) -> Iterator[tuple[TopicPartition, FoundOffset | ClientError]]:
    for topic in response.topics:
        for answer in topic.partitions:
            where = TopicPartition(topic.name, answer.partition_index)
            if answer.error_code:
                yield where, refused(where, answer.error_code)
            else:
                yield where, FoundOffset(answer.offset, answer.timestamp)


def bounds(
    cluster: Cluster, partitions: Iterable[TopicPartition], *, committed: bool = False
) -> dict[TopicPartition, Bounds]:
    asked = list(partitions)
    starts = list_offsets(cluster, dict.fromkeys(asked, EARLIEST))
    ends = list_offsets(cluster, dict.fromkeys(asked, LATEST), committed=committed)
    return {where: Bounds(starts[where].offset, ends[where].offset) for where in asked}


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
    if start.kind is StartKind.TIME and start.number < 0:  # before 1970, where Kafka has numbers for ends of a log
        start = Start(StartKind.EARLIEST)
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
