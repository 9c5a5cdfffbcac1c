"""Share groups: where each begins in its partitions, how much it has yet to finish, and how to move it (KIP-932).

What Kafka answers is where a group begins and, since KIP-1226, how many records it has yet to finish. Our own broker
adds what is in flight and how often it delivered something again; of a Kafka these are None, which means unknown.
"""

from collections.abc import Mapping
from typing import NamedTuple

from headrace.client.connection import Connection
from headrace.client.coordinators import Coordinators
from headrace.client.errors import GroupHasMembers, Refused, UnknownGroup
from headrace.client.leaders import by_topic
from headrace.model import TopicPartition
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.alter_share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsRequestPartition,
    AlterShareGroupOffsetsRequestTopic,
    AlterShareGroupOffsetsResponse,
)
from headrace.protocol.messages.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
    DescribeShareGroupOffsetsResponse,
)

PENDING, ARCHIVING, ACQUIRED, ACKNOWLEDGED = -3, -2, 1, 2  # of the states of records; what is above is finished as well


class RecordRun(NamedTuple):
    """Offsets from first to last, whose records are in one state."""

    first: int
    last: int
    state: int
    deliveries: int

    @property
    def is_finished(self) -> bool:
        return self.state >= ACKNOWLEDGED

    @property
    def is_in_flight(self) -> bool:
        return self.state in (ACQUIRED, PENDING)  # by a member, or by a transaction


class ShareOffset(NamedTuple):
    """A share group in one partition: it has finished everything before `offset`, and some of what is behind it."""

    offset: int
    unfinished: int | None = None
    in_flight: int | None = None
    redeliveries: int | None = None
    runs: tuple[RecordRun, ...] = ()  # if they were asked for: those of which something is known; others are available


def share_offsets(
    coordinators: Coordinators, name: str, *, with_runs: bool = False
) -> dict[TopicPartition, ShareOffset]:
    """Where a share group is, in each partition of which that is known."""

    def ask(connection: Connection) -> dict[TopicPartition, ShareOffset]:
        asked = DescribeShareGroupOffsetsRequestGroup(group_id=name, topics=None)
        request = DescribeShareGroupOffsetsRequest(groups=[asked], include_runs=with_runs)
        (answer,) = connection.request(request, DescribeShareGroupOffsetsResponse).groups
        _check(f"cannot read the offsets of group {name!r}", answer.error_code, answer.error_message)
        return {
            TopicPartition(topic.topic_name, found.partition_index): ShareOffset(
                found.start_offset,
                _known(found.lag),
                _known(found.in_flight),
                _known(found.redeliveries),
                tuple(RecordRun(*found.runs[at : at + 4]) for at in range(0, len(found.runs), 4)),
            )
            for topic in answer.topics
            for found in topic.partitions
            if not found.error_code and found.start_offset >= 0
        }

    return dict(sorted(coordinators.ask(name, ask).items()))


def alter_share_offsets(coordinators: Coordinators, name: str, offsets: Mapping[TopicPartition, int]) -> None:
    """Set where a share group begins, and forget all else about its records; it must exist and have no members."""
    request = AlterShareGroupOffsetsRequest(
        group_id=name,
        topics=[
            AlterShareGroupOffsetsRequestTopic(
                topic_name=topic,
                partitions=[
                    AlterShareGroupOffsetsRequestPartition(
                        partition_index=index, start_offset=offsets[TopicPartition(topic, index)]
                    )
                    for index in indexes
                ],
            )
            for topic, indexes in by_topic(offsets).items()
        ],
    )

    def ask(connection: Connection) -> None:
        response = connection.request(request, AlterShareGroupOffsetsResponse)
        if response.error_code == ErrorCode.NON_EMPTY_GROUP:
            raise GroupHasMembers(name, [])
        if response.error_code == ErrorCode.GROUP_ID_NOT_FOUND:
            raise UnknownGroup(name, str(coordinators.cluster))
        _check(f"cannot move group {name!r}", response.error_code, response.error_message)
        for topic in response.responses:
            for outcome in topic.partitions:
                where = TopicPartition(topic.topic_name, outcome.partition_index)
                doing = f"cannot set the offset of group {name!r} for {where}"
                _check(doing, outcome.error_code, outcome.error_message)

    coordinators.ask(name, ask)


def _known(number: int) -> int | None:
    return None if number < 0 else number


def _check(doing: str, code: int, message: str | None) -> None:
    if code:
        raise Refused(doing, ErrorCode.of(code), message)
