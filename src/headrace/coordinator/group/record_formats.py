"""The records of `__consumer_offsets` as Kafka declares them: committed offsets, classic groups, consumer groups.

An offset has a record for each group and partition. A group of the classic protocol is one record, with its members
and their assignments; one of KIP-848 has a record for each fact about the group and its members.
"""

from headrace.protocol.schema import (
    INT32,
    STRING,
    Message,
    Struct,
    Uuid,
    array,
    blob,
    int8,
    int32,
    int64,
    nullable_array,
    nullable_string,
    nullable_struct,
    string,
    uuid,
)


class OffsetCommitKey(Message, versions=range(1)):
    group: str = string()
    topic: str = string()
    partition: int = int32()


class OffsetCommitValue(Message, versions=range(5), flexible_since=4):
    """The next offset to read; only version 1 can say when it expires, which old clients may ask for."""

    offset: int = int64()
    leader_epoch: int = int32(since=3, default=-1, ignorable=True)
    metadata: str = string()
    commit_timestamp: int = int64()
    expire_timestamp: int = int64(since=1, until=1, default=-1, ignorable=True)
    topic_id: Uuid = uuid(since=4, tag=0, ignorable=True)


class GroupMetadataKey(Message, versions=range(1)):
    group: str = string()


class MemberMetadata(Struct):
    """A member, in the words of the one protocol that the group has chosen."""

    member_id: str = string()
    group_instance_id: str | None = nullable_string(since=3, nullable_since=3, default=None, ignorable=True)
    client_id: str = string()
    client_host: str = string()
    rebalance_timeout: int = int32(since=1, default=-1, ignorable=True)
    session_timeout: int = int32()
    subscription: bytes = blob()
    assignment: bytes = blob()


class GroupMetadataValue(Message, versions=range(5), flexible_since=4):
    """A generation of the group; one without members says since when the group has been empty."""

    protocol_type: str = string()
    generation: int = int32()
    protocol: str | None = nullable_string()
    leader: str | None = nullable_string()
    current_state_timestamp: int = int64(since=2, default=-1, ignorable=True)
    members: list[MemberMetadata] = array(MemberMetadata)


class ConsumerGroupMetadataKey(Message, versions=range(1)):
    group_id: str = string()


class ConsumerGroupMetadataValue(Message, versions=range(1), flexible_since=0):
    """The group's epoch, and a hash of the topics that it was made for (KIP-1101)."""

    epoch: int = int32()
    metadata_hash: int = int64(tag=0)


class ConsumerGroupPartitionMetadataKey(Message, versions=range(1)):
    """The group; the record is read and removed, and no longer written since the hash is in the group's own record."""

    group_id: str = string()


class PartitionMetadata(Struct):
    partition: int = int32()
    racks: list[str] = array(STRING)


class TopicMetadata(Struct):
    """One topic, as the group's epoch has seen it."""

    topic_id: Uuid = uuid()
    topic_name: str = string()
    num_partitions: int = int32()
    partition_metadata: list[PartitionMetadata] = array(PartitionMetadata)


class ConsumerGroupPartitionMetadataValue(Message, versions=range(1), flexible_since=0):
    topics: list[TopicMetadata] = array(TopicMetadata)


class ConsumerGroupMemberMetadataKey(Message, versions=range(1)):
    group_id: str = string()
    member_id: str = string()


class ClassicProtocol(Struct):
    name: str = string()
    metadata: bytes = blob()


class ClassicMemberMetadata(Struct):
    """What a member of a consumer group that still speaks the classic protocol has said in JoinGroup."""

    session_timeout_ms: int = int32()
    supported_protocols: list[ClassicProtocol] = array(ClassicProtocol)


class ConsumerGroupMemberMetadataValue(Message, versions=range(1), flexible_since=0):
    instance_id: str | None = nullable_string()
    rack_id: str | None = nullable_string()
    client_id: str = string()
    client_host: str = string()
    subscribed_topic_names: list[str] = array(STRING)
    subscribed_topic_regex: str | None = nullable_string()
    rebalance_timeout_ms: int = int32(default=-1)
    server_assignor: str | None = nullable_string()
    classic_member_metadata: ClassicMemberMetadata | None = nullable_struct(ClassicMemberMetadata, tag=0)


class ConsumerGroupTargetAssignmentMetadataKey(Message, versions=range(1)):
    group_id: str = string()


class ConsumerGroupTargetAssignmentMetadataValue(Message, versions=range(1), flexible_since=0):
    """The group's epoch for which the target assignment was computed, and when."""

    assignment_epoch: int = int32()
    assignment_timestamp: int = int64(tag=0, ignorable=True)


class ConsumerGroupTargetAssignmentMemberKey(Message, versions=range(1)):
    group_id: str = string()
    member_id: str = string()


class TopicPartition(Struct):
    topic_id: Uuid = uuid()
    partitions: list[int] = array(INT32)


class ConsumerGroupTargetAssignmentMemberValue(Message, versions=range(1), flexible_since=0):
    """What the member is to have once everybody has given up what it has to."""

    topic_partitions: list[TopicPartition] = array(TopicPartition)


class ConsumerGroupCurrentMemberAssignmentKey(Message, versions=range(1)):
    group_id: str = string()
    member_id: str = string()


class TopicPartitions(Struct):
    topic_id: Uuid = uuid()
    partitions: list[int] = array(INT32)
    assignment_epochs: list[int] | None = nullable_array(INT32, tag=0)


class ConsumerGroupCurrentMemberAssignmentValue(Message, versions=range(1), flexible_since=0):
    """What the member has, and what it is giving up."""

    member_epoch: int = int32()
    previous_member_epoch: int = int32()
    state: int = int8()
    assigned_partitions: list[TopicPartitions] = array(TopicPartitions)
    partitions_pending_revocation: list[TopicPartitions] = array(TopicPartitions)


class ConsumerGroupRegularExpressionKey(Message, versions=range(1)):
    group_id: str = string()
    regular_expression: str = string()


class ConsumerGroupRegularExpressionValue(Message, versions=range(1), flexible_since=0):
    """The topics that the expression matched, at which version of the cluster's metadata, and when."""

    topics: list[str] = array(STRING)
    version: int = int64()
    timestamp: int = int64()
