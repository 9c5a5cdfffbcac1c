"""OffsetFetch (API 9): read how far groups have read.

Version 0 went with Kafka 4.0. Since 2 null topics mean all that the group has offsets for; 7 can wait until open
transactions are settled (KIP-447); 8 asks for several groups at once (KIP-709), in fields of their own; 9 carries the
member's epoch for the new consumer groups (KIP-848); 10 names topics by id.
"""

from headrace.protocol.messages.shared import TopicIndexes
from headrace.protocol.schema import (
    INT32,
    Message,
    Struct,
    Uuid,
    array,
    boolean,
    int16,
    int32,
    int64,
    nullable_array,
    nullable_string,
    string,
    uuid,
)


class OffsetFetchRequestTopics(Struct):
    """The partitions of one topic, since version 8."""

    name: str = string(until=9, ignorable=True)
    topic_id: Uuid = uuid(since=10, ignorable=True)
    partition_indexes: list[int] = array(INT32)


class OffsetFetchRequestGroup(Struct):
    group_id: str = string()
    member_id: str | None = nullable_string(since=9, default=None, ignorable=True)
    member_epoch: int = int32(since=9, default=-1, ignorable=True)
    topics: list[OffsetFetchRequestTopics] | None = nullable_array(OffsetFetchRequestTopics)


class OffsetFetchRequest(Message, api_key=9, versions=range(1, 11), flexible_since=6):
    group_id: str = string(until=7)
    topics: list[TopicIndexes] | None = nullable_array(TopicIndexes, until=7, nullable_since=2)
    groups: list[OffsetFetchRequestGroup] = array(OffsetFetchRequestGroup, since=8)
    require_stable: bool = boolean(since=7)


class OffsetFetchResponsePartition(Struct):
    """One partition's offset, until version 7."""

    partition_index: int = int32()
    committed_offset: int = int64()
    committed_leader_epoch: int = int32(since=5, default=-1, ignorable=True)
    metadata: str | None = nullable_string()
    error_code: int = int16()


class OffsetFetchResponseTopic(Struct):
    """One topic's offsets, until version 7."""

    name: str = string()
    partitions: list[OffsetFetchResponsePartition] = array(OffsetFetchResponsePartition)


class OffsetFetchResponsePartitions(Struct):
    """One partition's offset, since version 8."""

    partition_index: int = int32()
    committed_offset: int = int64()
    committed_leader_epoch: int = int32(default=-1)
    metadata: str | None = nullable_string()
    error_code: int = int16()


class OffsetFetchResponseTopics(Struct):
    """One topic's offsets, since version 8."""

    name: str = string(until=9, ignorable=True)
    topic_id: Uuid = uuid(since=10, ignorable=True)
    partitions: list[OffsetFetchResponsePartitions] = array(OffsetFetchResponsePartitions)


class OffsetFetchResponseGroup(Struct):
    """One group's offsets, since version 8."""

    group_id: str = string()
    topics: list[OffsetFetchResponseTopics] = array(OffsetFetchResponseTopics)
    error_code: int = int16()


class OffsetFetchResponse(Message, api_key=9, versions=range(1, 11), flexible_since=6):
    """The offsets found; -1 for a partition that has none."""

    throttle_time_ms: int = int32(since=3, ignorable=True)
    topics: list[OffsetFetchResponseTopic] = array(OffsetFetchResponseTopic, until=7)
    error_code: int = int16(since=2, until=7, ignorable=True)
    groups: list[OffsetFetchResponseGroup] = array(OffsetFetchResponseGroup, since=8)
