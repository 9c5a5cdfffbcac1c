"""Groups: list them, look at them, read and set their offsets, take them away.

Four kinds are told apart, because each has an API of its own that describes it: groups of the classic protocol, of the
new one (KIP-848), of Kafka Streams (KIP-1071), and those that share records (KIP-932). A group that exists is one of
them; which one is found out by asking for each.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from headrace.client.address import Address
from headrace.client.cluster import Cluster
from headrace.client.connection import Connection
from headrace.client.coordinators import Coordinators
from headrace.client.errors import GroupHasMembers, Refused, UnknownGroup, UnknownTopic, VersionNotSpoken
from headrace.client.leaders import by_topic
from headrace.model import TopicPartition
from headrace.protocol import codec
from headrace.protocol.api import ApiKey
from headrace.protocol.errors import ErrorCode, ProtocolError
from headrace.protocol.messages.consumer_group_describe import (
    Assignment,
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
)
from headrace.protocol.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from headrace.protocol.messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from headrace.protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from headrace.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from headrace.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
)
from headrace.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchResponse
from headrace.protocol.messages.share_group_describe import Assignment as ShareAssignment
from headrace.protocol.messages.share_group_describe import ShareGroupDescribeRequest, ShareGroupDescribeResponse
from headrace.protocol.messages.streams_group_describe import Assignment as StreamsAssignment
from headrace.protocol.messages.streams_group_describe import StreamsGroupDescribeRequest, StreamsGroupDescribeResponse
from headrace.protocol.schema import INT32, Message, Struct, array, int16, string

# What members of a classic consumer group are assigned, as their leader wrote it.
#
# To the broker the bytes are opaque; consumers of all kinds agree on Kafka's ConsumerProtocolAssignment, of which
# every version starts in the same way.


class AssignedTopic(Struct):
    topic: str = string()
    partitions: list[int] = array(INT32)


class AssignmentPrefix(Message, versions=range(1)):
    version: int = int16()
    topics: list[AssignedTopic] = array(AssignedTopic)


def assigned_partitions(data: bytes) -> tuple[TopicPartition, ...]:
    """The partitions in an assignment, in order; none if it is empty, or is not one."""
    try:
        prefix, _ = codec.decode_prefix(AssignmentPrefix, 0, data)
    except ProtocolError:
        return ()
    return tuple(sorted(TopicPartition(topic.topic, index) for topic in prefix.topics for index in topic.partitions))


CLASSIC, CONSUMER, STREAMS, SHARE = "classic", "consumer", "streams", "share"

_LAST_VERSION_BY_NAME = 9  # of OffsetCommit and OffsetFetch
_GROUPS_SINCE = 8  # OffsetFetch for several groups (KIP-709)
_CONSUMER_PROTOCOL = "consumer"
_DEAD = "Dead"
_NO_GENERATION = -1
# How a coordinator says that somebody outside may not commit now.
_OCCUPIED = (
    ErrorCode.UNKNOWN_MEMBER_ID,
    ErrorCode.ILLEGAL_GENERATION,
    ErrorCode.REBALANCE_IN_PROGRESS,
    ErrorCode.STALE_MEMBER_EPOCH,
    ErrorCode.NON_EMPTY_GROUP,
)


class GroupListing(NamedTuple):
    """A group in a list; `state` and `kind` are empty where the broker is too old to tell."""

    name: str
    state: str
    kind: str
    protocol_type: str


@dataclass(frozen=True, slots=True)
class GroupMember:
    id: str
    instance_id: str | None
    client_id: str
    host: str
    partitions: tuple[TopicPartition, ...]

    def __str__(self) -> str:
        return f"{self.client_id or self.id} at {self.host}"


@dataclass(frozen=True, slots=True)
class Group:
    name: str
    kind: str
    state: str
    protocol_type: str
    assignor: str  # empty while there is none
    coordinator: int
    address: Address
    members: tuple[GroupMember, ...]

    def check_empty(self) -> None:
        if self.members:
            raise GroupHasMembers(self.name, [str(member) for member in self.members])


class Committed(NamedTuple):
    """The next offset that a group will read, and the text that was stored beside it."""

    offset: int
    metadata: str


# --- looking


def list_groups(cluster: Cluster, states: Collection[str] = ()) -> list[GroupListing]:
    request = ListGroupsRequest(states_filter=list(states))

    def ask(node: int) -> list[GroupListing]:
        response = cluster.broker(node).request(request, ListGroupsResponse)
        if response.error_code:
            raise Refused(f"cannot list the groups of broker {node}", ErrorCode.of(response.error_code))
        return [
            GroupListing(group.group_id, group.group_state, group.group_type, group.protocol_type)
            for group in response.groups
        ]

    nodes = list(cluster.brokers(refresh=True).addresses)
    return sorted(group for node in nodes for group in cluster.run_with_retries(lambda node=node: ask(node)))  # type: ignore[misc]


def describe_group(coordinators: Coordinators, name: str) -> Group:
    def ask(connection: Connection) -> Group | None:
        node = coordinators.node_of(name)
        return (
            _describe_consumer(connection, node, name)
            or _describe_streams(coordinators.cluster, connection, node, name)
            or _describe_share(connection, node, name)
            or _describe_classic(connection, node, name)
        )

    group = coordinators.ask(name, ask)
    if group is None:
        raise UnknownGroup(name, str(coordinators.cluster))
    return group


def _ask_for(connection: Connection, request: Message, expected: type[Any], name: str) -> Any:
    """What the broker says of the group; None if that is of another kind, or the broker does not know this kind."""
    try:
        response = connection.request(request, expected)
    except VersionNotSpoken:
        return None
    (found,) = response.groups
    if found.error_code in (ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.UNSUPPORTED_VERSION):
        return None
    _check(f"cannot describe group {name!r}", found.error_code, found.error_message)
    return found


def _members(found: Any, partitions_of: Callable[[Any], tuple[TopicPartition, ...]]) -> tuple[GroupMember, ...]:
    return tuple(
        GroupMember(
            member.member_id,
            getattr(member, "instance_id", None),  # members of share groups have none
            member.client_id,
            member.client_host.removeprefix("/"),
            partitions_of(member.assignment),
        )
        for member in found.members
    )


def _describe_consumer(connection: Connection, node: int, name: str) -> Group | None:
    request = ConsumerGroupDescribeRequest(group_ids=[name])
    found = _ask_for(connection, request, ConsumerGroupDescribeResponse, name)
    if found is None:
        return None
    members = _members(found, _partitions)
    return Group(
        name, CONSUMER, found.group_state, _CONSUMER_PROTOCOL, found.assignor_name, node, connection.address, members
    )


def _describe_share(connection: Connection, node: int, name: str) -> Group | None:
    """A group whose members share the records of each partition (KIP-932)."""
    found = _ask_for(connection, ShareGroupDescribeRequest(group_ids=[name]), ShareGroupDescribeResponse, name)
    if found is None:
        return None
    members = _members(found, _partitions)
    return Group(name, SHARE, found.group_state, SHARE, found.assignor_name, node, connection.address, members)


def _partitions(assignment: Assignment | ShareAssignment) -> tuple[TopicPartition, ...]:
    return tuple(
        sorted(
            TopicPartition(topic.topic_name, index)
            for topic in assignment.topic_partitions
            for index in topic.partitions
        )
    )


def _describe_streams(cluster: Cluster, connection: Connection, node: int, name: str) -> Group | None:
    """A group of Kafka Streams (KIP-1071); what its members have are the partitions that their active tasks read."""
    found = _ask_for(connection, StreamsGroupDescribeRequest(group_ids=[name]), StreamsGroupDescribeResponse, name)
    if found is None:
        return None
    partitions: dict[str, list[TopicPartition]] = {}  # by subtopology
    for each in (found.topology.subtopologies if found.topology else None) or ():
        partitions[each.subtopology_id] = []
        for topic in (*each.source_topics, *(made.name for made in each.repartition_source_topics)):
            with suppress(UnknownTopic):
                partitions[each.subtopology_id] += cluster.partitions(topic)

    def read_by(assignment: StreamsAssignment) -> tuple[TopicPartition, ...]:
        return tuple(
            sorted(
                partition
                for tasks in assignment.active_tasks
                for partition in partitions.get(tasks.subtopology_id, ())
                if partition.partition in tasks.partitions
            )
        )

    return Group(name, STREAMS, found.group_state, STREAMS, "", node, connection.address, _members(found, read_by))


def _describe_classic(connection: Connection, node: int, name: str) -> Group | None:
    response = connection.request(DescribeGroupsRequest(groups=[name]), DescribeGroupsResponse)
    (found,) = response.groups
    if found.error_code == ErrorCode.GROUP_ID_NOT_FOUND or found.group_state == _DEAD:
        return None
    _check(f"cannot describe group {name!r}", found.error_code, found.error_message)
    speaks_consumer = found.protocol_type == _CONSUMER_PROTOCOL
    return Group(
        name,
        CLASSIC,
        found.group_state,
        found.protocol_type,
        found.protocol_data,
        node,
        connection.address,
        tuple(
            GroupMember(
                member.member_id,
                member.group_instance_id,
                member.client_id,
                member.client_host.removeprefix("/"),
                assigned_partitions(bytes(member.member_assignment)) if speaks_consumer else (),
            )
            for member in found.members
        ),
    )


# --- offsets


def committed_offsets(coordinators: Coordinators, name: str) -> dict[TopicPartition, Committed]:
    def ask(connection: Connection) -> dict[TopicPartition, Committed]:
        is_new = connection.version_of(ApiKey.OFFSET_FETCH, _LAST_VERSION_BY_NAME) >= _GROUPS_SINCE
        request = (
            OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=name, topics=None)])
            if is_new
            else OffsetFetchRequest(group_id=name, topics=None)
        )
        response = connection.request(request, OffsetFetchResponse, highest=_LAST_VERSION_BY_NAME)
        answer = response.groups[0] if is_new else response
        _check(f"cannot read the offsets of group {name!r}", answer.error_code)
        found = {}
        for topic in answer.topics:
            for partition in topic.partitions:
                where = TopicPartition(topic.name, partition.partition_index)
                _check(f"cannot read the offset of group {name!r} for {where}", partition.error_code)
                if partition.committed_offset >= 0:
                    found[where] = Committed(partition.committed_offset, partition.metadata or "")
        return dict(sorted(found.items()))

    return coordinators.ask(name, ask)


def alter_offsets(coordinators: Coordinators, name: str, offsets: Mapping[TopicPartition, int]) -> None:
    """Set where a group goes on reading; it must have no members."""
    request = OffsetCommitRequest(
        group_id=name,
        generation_id_or_member_epoch=_NO_GENERATION,
        topics=[
            OffsetCommitRequestTopic(
                name=topic,
                partitions=[
                    OffsetCommitRequestPartition(
                        partition_index=index,
                        committed_offset=offsets[TopicPartition(topic, index)],
                        committed_metadata="",
                    )
                    for index in indexes
                ],
            )
            for topic, indexes in by_topic(offsets).items()
        ],
    )

    def ask(connection: Connection) -> None:
        response = connection.request(request, OffsetCommitResponse, highest=_LAST_VERSION_BY_NAME)
        for topic in response.topics:
            for partition in topic.partitions:
                if partition.error_code in _OCCUPIED:
                    raise GroupHasMembers(name, [])
                where = TopicPartition(topic.name, partition.partition_index)
                _check(f"cannot set the offset of group {name!r} for {where}", partition.error_code)

    coordinators.ask(name, ask)


def delete_offsets(coordinators: Coordinators, name: str, partitions: Iterable[TopicPartition]) -> None:
    """Forget how far a group has read in some partitions; no member may be subscribed to their topics."""
    request = OffsetDeleteRequest(
        group_id=name,
        topics=[
            OffsetDeleteRequestTopic(
                name=topic, partitions=[OffsetDeleteRequestPartition(partition_index=index) for index in indexes]
            )
            for topic, indexes in by_topic(partitions).items()
        ],
    )

    def ask(connection: Connection) -> None:
        response = connection.request(request, OffsetDeleteResponse)
        if response.error_code == ErrorCode.GROUP_ID_NOT_FOUND:
            raise UnknownGroup(name, str(coordinators.cluster))
        _check(f"cannot delete offsets of group {name!r}", response.error_code)
        for topic in response.topics:
            for partition in topic.partitions:
                where = TopicPartition(topic.name, partition.partition_index)
                _check(f"cannot delete the offset of group {name!r} for {where}", partition.error_code)

    coordinators.ask(name, ask)


# --- taking away


def delete_groups(coordinators: Coordinators, names: Collection[str]) -> None:
    """Delete groups with their offsets; if one does not exist or has members none is deleted."""
    for name in names:
        describe_group(coordinators, name).check_empty()
    for name in names:
        _delete_group(coordinators, name)


_UNFINISHED: Final[Mapping[int, str]] = {  # why a share group cannot be deleted yet
    ErrorCode.CONCURRENT_TRANSACTIONS: "a transaction in which records of it are acknowledged is open",
    ErrorCode.UNSTABLE_OFFSET_COMMIT: (
        "dead letters of it are not written yet: mend their topic, or take errors.deadletterqueue.topic.name from the "
        "group if nobody needs them"
    ),
}


def _delete_group(coordinators: Coordinators, name: str) -> None:
    def ask(connection: Connection) -> None:
        response = connection.request(DeleteGroupsRequest(groups_names=[name]), DeleteGroupsResponse)
        for result in response.results:
            if result.error_code == ErrorCode.GROUP_ID_NOT_FOUND:
                raise UnknownGroup(name, str(coordinators.cluster))
            if result.error_code == ErrorCode.NON_EMPTY_GROUP:
                raise GroupHasMembers(name, [])
            _check(f"cannot delete group {name!r}", result.error_code, _UNFINISHED.get(result.error_code))

    coordinators.ask(name, ask, may_repeat=False)


def _check(doing: str, code: int, message: str | None = None) -> None:
    if code:
        raise Refused(doing, ErrorCode.of(code), message)
