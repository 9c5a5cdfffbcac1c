"""The records of `__consumer_offsets` as Kafka declares them: committed offsets, classic groups, consumer groups.

An offset has a record for each group and partition. A group of the classic protocol is one record, with its members
and their assignments; one of KIP-848 has a record for each fact about the group and its members.
"""

from headrace.protocol import schema as wire


class OffsetCommitKey(wire.Message, versions=range(1)):
    group: str = wire.string()
    topic: str = wire.string()
    partition: int = wire.int32()


class OffsetCommitValue(wire.Message, versions=range(5), flexible_since=4):
    """The next offset to read; only version 1 can say when it expires, which old clients may ask for."""

    offset: int = wire.int64()
    leader_epoch: int = wire.int32(since=3, default=-1, ignorable=True)
    metadata: str = wire.string()
    commit_timestamp: int = wire.int64()
    expire_timestamp: int = wire.int64(since=1, until=1, default=-1, ignorable=True)
    topic_id: wire.Uuid = wire.uuid(since=4, tag=0, ignorable=True)


class GroupMetadataKey(wire.Message, versions=range(1)):
    group: str = wire.string()


class MemberMetadata(wire.Struct):
    """A member, in the words of the one protocol that the group has chosen."""

    member_id: str = wire.string()
    group_instance_id: str | None = wire.nullable_string(since=3, nullable_since=3, default=None, ignorable=True)
    client_id: str = wire.string()
    client_host: str = wire.string()
    rebalance_timeout: int = wire.int32(since=1, default=-1, ignorable=True)
    session_timeout: int = wire.int32()
    subscription: bytes = wire.blob()
    assignment: bytes = wire.blob()


class GroupMetadataValue(wire.Message, versions=range(5), flexible_since=4):
    """A generation of the group; one without members says since when the group has been empty."""

    protocol_type: str = wire.string()
    generation: int = wire.int32()
    protocol: str | None = wire.nullable_string()
    leader: str | None = wire.nullable_string()
    current_state_timestamp: int = wire.int64(since=2, default=-1, ignorable=True)
    members: list[MemberMetadata] = wire.array(MemberMetadata)


class ConsumerGroupMetadataKey(wire.Message, versions=range(1)):
    group_id: str = wire.string()


class ConsumerGroupMetadataValue(wire.Message, versions=range(1), flexible_since=0):
    """The group's epoch, and a hash of the topics that it was made for (KIP-1101)."""

    epoch: int = wire.int32()
    metadata_hash: int = wire.int64(tag=0)


class ConsumerGroupPartitionMetadataKey(wire.Message, versions=range(1)):
    """The group; the record is read and removed, and no longer written since the hash is in the group's own record."""

    group_id: str = wire.string()


class PartitionMetadata(wire.Struct):
    partition: int = wire.int32()
    racks: list[str] = wire.array(wire.STRING)


class TopicMetadata(wire.Struct):
    """One topic, as the group's epoch has seen it."""

    topic_id: wire.Uuid = wire.uuid()
    topic_name: str = wire.string()
    num_partitions: int = wire.int32()
    partition_metadata: list[PartitionMetadata] = wire.array(PartitionMetadata)


class ConsumerGroupPartitionMetadataValue(wire.Message, versions=range(1), flexible_since=0):
    topics: list[TopicMetadata] = wire.array(TopicMetadata)


class ConsumerGroupMemberMetadataKey(wire.Message, versions=range(1)):
    group_id: str = wire.string()
    member_id: str = wire.string()


class ClassicProtocol(wire.Struct):
    name: str = wire.string()
    metadata: bytes = wire.blob()


class ClassicMemberMetadata(wire.Struct):
    """What a member of a consumer group that still speaks the classic protocol has said in JoinGroup."""

    session_timeout_ms: int = wire.int32()
    supported_protocols: list[ClassicProtocol] = wire.array(ClassicProtocol)


class ConsumerGroupMemberMetadataValue(wire.Message, versions=range(1), flexible_since=0):
    instance_id: str | None = wire.nullable_string()
    rack_id: str | None = wire.nullable_string()
    client_id: str = wire.string()
    client_host: str = wire.string()
    subscribed_topic_names: list[str] = wire.array(wire.STRING)
    subscribed_topic_regex: str | None = wire.nullable_string()
    rebalance_timeout_ms: int = wire.int32(default=-1)
    server_assignor: str | None = wire.nullable_string()
    classic_member_metadata: ClassicMemberMetadata | None = wire.nullable_struct(ClassicMemberMetadata, tag=0)


class ConsumerGroupTargetAssignmentMetadataKey(wire.Message, versions=range(1)):
    group_id: str = wire.string()


class ConsumerGroupTargetAssignmentMetadataValue(wire.Message, versions=range(1), flexible_since=0):
    """The group's epoch for which the target assignment was computed, and when."""

    assignment_epoch: int = wire.int32()
    assignment_timestamp: int = wire.int64(tag=0, ignorable=True)


class ConsumerGroupTargetAssignmentMemberKey(wire.Message, versions=range(1)):
    group_id: str = wire.string()
    member_id: str = wire.string()


class TopicPartition(wire.Struct):
    topic_id: wire.Uuid = wire.uuid()
    partitions: list[int] = wire.array(wire.INT32)


class ConsumerGroupTargetAssignmentMemberValue(wire.Message, versions=range(1), flexible_since=0):
    """What the member is to have once everybody has given up what it has to."""

    topic_partitions: list[TopicPartition] = wire.array(TopicPartition)


class ConsumerGroupCurrentMemberAssignmentKey(wire.Message, versions=range(1)):
    group_id: str = wire.string()
    member_id: str = wire.string()


class TopicPartitions(wire.Struct):
    topic_id: wire.Uuid = wire.uuid()
    partitions: list[int] = wire.array(wire.INT32)
    assignment_epochs: list[int] | None = wire.nullable_array(wire.INT32, tag=0)


class ConsumerGroupCurrentMemberAssignmentValue(wire.Message, versions=range(1), flexible_since=0):
    """What the member has, and what it is giving up."""

    member_epoch: int = wire.int32()
    previous_member_epoch: int = wire.int32()
    state: int = wire.int8()
    assigned_partitions: list[TopicPartitions] = wire.array(TopicPartitions)
    partitions_pending_revocation: list[TopicPartitions] = wire.array(TopicPartitions)


class ConsumerGroupRegularExpressionKey(wire.Message, versions=range(1)):
    group_id: str = wire.string()
    regular_expression: str = wire.string()


class ConsumerGroupRegularExpressionValue(wire.Message, versions=range(1), flexible_since=0):
    """The topics that the expression matched, at which version of the cluster's metadata, and when."""

    topics: list[str] = wire.array(wire.STRING)
    version: int = wire.int64()
    timestamp: int = wire.int64()
