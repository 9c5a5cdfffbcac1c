"""OffsetCommit (API 8): store how far a group has read.

Versions 0 and 1 went with Kafka 4.0. Until 4 the client could say how long to keep the offsets; 6 adds the leader
epoch of the last record read (KIP-320); 7 adds static membership (KIP-345); since 9 members of the new consumer groups
use it too, with their epoch as the generation (KIP-848); 10 names topics by id.
"""

from headrace.protocol.messages.shared import PartitionOutcome
from headrace.protocol.schema import Message, Struct, Uuid, array, int32, int64, nullable_string, string, uuid


class OffsetCommitRequestPartition(Struct):
    partition_index: int = int32()
    committed_offset: int = int64()
    committed_leader_epoch: int = int32(since=6, default=-1, ignorable=True)
    committed_metadata: str | None = nullable_string()


class OffsetCommitRequestTopic(Struct):
    name: str = string(until=9, ignorable=True)
    topic_id: Uuid = uuid(since=10, ignorable=True)
    partitions: list[OffsetCommitRequestPartition] = array(OffsetCommitRequestPartition)


class OffsetCommitRequest(Message, api_key=8, versions=range(2, 11), flexible_since=8):
    group_id: str = string()
    generation_id_or_member_epoch: int = int32(default=-1)
    member_id: str = string()
    group_instance_id: str | None = nullable_string(since=7, default=None)
    retention_time_ms: int = int64(until=4, default=-1, ignorable=True)
    topics: list[OffsetCommitRequestTopic] = array(OffsetCommitRequestTopic)


class OffsetCommitResponseTopic(Struct):
    name: str = string(until=9, ignorable=True)
    topic_id: Uuid = uuid(since=10, ignorable=True)
    partitions: list[PartitionOutcome] = array(PartitionOutcome)


class OffsetCommitResponse(Message, api_key=8, versions=range(2, 11), flexible_since=8):
    throttle_time_ms: int = int32(since=3, ignorable=True)
    topics: list[OffsetCommitResponseTopic] = array(OffsetCommitResponseTopic)
