"""OffsetCommit (API 8): store how far a group has read.

Versions 0 and 1 went with Kafka 4.0. Until 4 the client could say how long to keep the offsets; 6 adds the leader
epoch of the last record read (KIP-320); 7 adds static membership (KIP-345); since 9 members of the new consumer groups
use it too, with their epoch as the generation (KIP-848); 10 names topics by id.
"""

from headrace.protocol import schema as wire
from headrace.protocol.messages.shared import PartitionOutcome


class OffsetCommitRequestPartition(wire.Struct):
    partition_index: int = wire.int32()
    committed_offset: int = wire.int64()
    committed_leader_epoch: int = wire.int32(since=6, default=-1, ignorable=True)
    committed_metadata: str | None = wire.nullable_string()


class OffsetCommitRequestTopic(wire.Struct):
    name: str = wire.string(until=9, ignorable=True)
    topic_id: wire.Uuid = wire.uuid(since=10, ignorable=True)
    partitions: list[OffsetCommitRequestPartition] = wire.array(OffsetCommitRequestPartition)


class OffsetCommitRequest(wire.Message, api_key=8, versions=range(2, 11), flexible_since=8):
    group_id: str = wire.string()
    generation_id_or_member_epoch: int = wire.int32(default=-1)
    member_id: str = wire.string()
    group_instance_id: str | None = wire.nullable_string(since=7, default=None)
    retention_time_ms: int = wire.int64(until=4, default=-1, ignorable=True)
    topics: list[OffsetCommitRequestTopic] = wire.array(OffsetCommitRequestTopic)


class OffsetCommitResponseTopic(wire.Struct):
    name: str = wire.string(until=9, ignorable=True)
    topic_id: wire.Uuid = wire.uuid(since=10, ignorable=True)
    partitions: list[PartitionOutcome] = wire.array(PartitionOutcome)


class OffsetCommitResponse(wire.Message, api_key=8, versions=range(2, 11), flexible_since=8):
    throttle_time_ms: int = wire.int32(since=3, ignorable=True)
    topics: list[OffsetCommitResponseTopic] = wire.array(OffsetCommitResponseTopic)
