"""OffsetFetch (API 9): read how far groups have read.

Version 0 went with Kafka 4.0. Since 2 null topics mean all that the group has offsets for; 7 can wait until open
transactions are settled (KIP-447); 8 asks for several groups at once (KIP-709), in fields of their own; 9 carries the
member's epoch for the new consumer groups (KIP-848); 10 names topics by id.
"""

from headrace.protocol import schema as wire
from headrace.protocol.messages.shared import TopicIndexes


class OffsetFetchRequestTopics(wire.Struct):
    """The partitions of one topic, since version 8."""

    name: str = wire.string(until=9, ignorable=True)
    topic_id: wire.Uuid = wire.uuid(since=10, ignorable=True)
    partition_indexes: list[int] = wire.array(wire.INT32)


class OffsetFetchRequestGroup(wire.Struct):
    group_id: str = wire.string()
    member_id: str | None = wire.nullable_string(since=9, default=None, ignorable=True)
    member_epoch: int = wire.int32(since=9, default=-1, ignorable=True)
    topics: list[OffsetFetchRequestTopics] | None = wire.nullable_array(OffsetFetchRequestTopics)


class OffsetFetchRequest(wire.Message, api_key=9, versions=range(1, 11), flexible_since=6):
    group_id: str = wire.string(until=7)
    topics: list[TopicIndexes] | None = wire.nullable_array(TopicIndexes, until=7, nullable_since=2)
    groups: list[OffsetFetchRequestGroup] = wire.array(OffsetFetchRequestGroup, since=8)
    require_stable: bool = wire.boolean(since=7)


class OffsetFetchResponsePartition(wire.Struct):
    partition_index: int = wire.int32()
    committed_offset: int = wire.int64()
    committed_leader_epoch: int = wire.int32(since=5, default=-1, ignorable=True)
    metadata: str | None = wire.nullable_string()
    error_code: int = wire.int16()


class OffsetFetchResponseTopic(wire.Struct):
    name: str = wire.string()
    partitions: list[OffsetFetchResponsePartition] = wire.array(OffsetFetchResponsePartition)


class OffsetFetchResponsePartitions(wire.Struct):
    partition_index: int = wire.int32()
    committed_offset: int = wire.int64()
    committed_leader_epoch: int = wire.int32(default=-1)
    metadata: str | None = wire.nullable_string()
    error_code: int = wire.int16()


class OffsetFetchResponseTopics(wire.Struct):
    """One topic's offsets, since version 8."""

    name: str = wire.string(until=9, ignorable=True)
    topic_id: wire.Uuid = wire.uuid(since=10, ignorable=True)
    partitions: list[OffsetFetchResponsePartitions] = wire.array(OffsetFetchResponsePartitions)


class OffsetFetchResponseGroup(wire.Struct):
    group_id: str = wire.string()
    topics: list[OffsetFetchResponseTopics] = wire.array(OffsetFetchResponseTopics)
    error_code: int = wire.int16()


class OffsetFetchResponse(wire.Message, api_key=9, versions=range(1, 11), flexible_since=6):
    """The offsets found; -1 for a partition that has none."""

    throttle_time_ms: int = wire.int32(since=3, ignorable=True)
    topics: list[OffsetFetchResponseTopic] = wire.array(OffsetFetchResponseTopic, until=7)
    error_code: int = wire.int16(since=2, until=7, ignorable=True)
    groups: list[OffsetFetchResponseGroup] = wire.array(OffsetFetchResponseGroup, since=8)
