"""Fetch (API 1): read record batches from partitions, waiting for more if there are too few.

The batches come as they are in the log, so the first may begin before the offset asked for and the last may be cut.
Versions 0 to 3 went with Kafka 4.0. Since 5 the log's start is told; 7 brings sessions, in which a client names only
what changed (KIP-227); 9 fences by leader epoch (KIP-320); 10 may carry zstd (KIP-110); 11 reads from the closest
replica (KIP-392); 12 is flexible and finds diverging logs; 13 names topics by id (KIP-516); 15 to 18 add what only
followers use (KIP-903, KIP-853, KIP-1166), and 16 names the new leader in the error itself (KIP-951).
"""

from headrace.protocol import schema as wire
from headrace.protocol.messages.shared import LeaderIdAndEpoch, NodeEndpoint


class ReplicaState(wire.Struct):
    """Which follower is asking; a consumer leaves it as it is."""

    replica_id: int = wire.int32(default=-1)
    replica_epoch: int = wire.int64(default=-1)


class FetchPartition(wire.Struct):
    partition: int = wire.int32()
    current_leader_epoch: int = wire.int32(since=9, default=-1, ignorable=True)
    fetch_offset: int = wire.int64()
    last_fetched_epoch: int = wire.int32(since=12, default=-1)
    log_start_offset: int = wire.int64(since=5, default=-1, ignorable=True)
    partition_max_bytes: int = wire.int32()
    replica_directory_id: wire.Uuid = wire.uuid(since=17, ignorable=True, tag=0)
    high_watermark: int = wire.int64(since=18, default=2**63 - 1, ignorable=True, tag=1)
    # Ours: which events alone are wanted of a topic that keeps them, as `delivery/events.py` writes it.
    select: str = wire.string(since=12, tag=10_000)


class FetchTopic(wire.Struct):
    topic: str = wire.string(until=12, ignorable=True)
    topic_id: wire.Uuid = wire.uuid(since=13, ignorable=True)
    partitions: list[FetchPartition] = wire.array(FetchPartition)


class ForgottenTopic(wire.Struct):
    topic: str = wire.string(until=12, ignorable=True)
    topic_id: wire.Uuid = wire.uuid(since=13, ignorable=True)
    partitions: list[int] = wire.array(wire.INT32)


class FetchRequest(wire.Message, api_key=1, versions=range(4, 19), flexible_since=12):
    cluster_id: str | None = wire.nullable_string(since=12, default=None, ignorable=True, tag=0)
    replica_id: int = wire.int32(until=14, default=-1)
    replica_state: ReplicaState = wire.struct(ReplicaState, since=15, tag=1)
    max_wait_ms: int = wire.int32()
    min_bytes: int = wire.int32()
    max_bytes: int = wire.int32(default=2**31 - 1)
    isolation_level: int = wire.int8()
    session_id: int = wire.int32(since=7, ignorable=True)
    session_epoch: int = wire.int32(since=7, default=-1, ignorable=True)
    topics: list[FetchTopic] = wire.array(FetchTopic)
    forgotten_topics_data: list[ForgottenTopic] = wire.array(ForgottenTopic, since=7)
    rack_id: str = wire.string(since=11, ignorable=True)


class EpochEndOffset(wire.Struct):
    epoch: int = wire.int32(default=-1)
    end_offset: int = wire.int64(default=-1)


class SnapshotId(wire.Struct):
    end_offset: int = wire.int64(default=-1)
    epoch: int = wire.int32(default=-1)


class AbortedTransaction(wire.Struct):
    """A transaction whose records from this offset on a read-committed consumer must skip."""

    producer_id: int = wire.int64()
    first_offset: int = wire.int64()


class PartitionData(wire.Struct):
    partition_index: int = wire.int32()
    error_code: int = wire.int16()
    high_watermark: int = wire.int64()
    last_stable_offset: int = wire.int64(default=-1)
    log_start_offset: int = wire.int64(since=5, default=-1, ignorable=True)
    diverging_epoch: EpochEndOffset = wire.struct(EpochEndOffset, since=12, tag=0)
    current_leader: LeaderIdAndEpoch = wire.struct(LeaderIdAndEpoch, since=12, tag=1)
    snapshot_id: SnapshotId = wire.struct(SnapshotId, since=12, tag=2)
    aborted_transactions: list[AbortedTransaction] | None = wire.nullable_array(AbortedTransaction)
    preferred_read_replica: int = wire.int32(since=11, default=-1)
    # Ours, of events that were selected: where to go on, and the last version of the stream that was asked for.
    next_offset: int = wire.int64(since=12, default=-1, tag=10_000)
    stream_version: int = wire.int64(since=12, default=-1, tag=10_001)
    records: wire.Buffer | None = wire.record_batches()


class FetchableTopicResponse(wire.Struct):
    topic: str = wire.string(until=12, ignorable=True)
    topic_id: wire.Uuid = wire.uuid(since=13, ignorable=True)
    partitions: list[PartitionData] = wire.array(PartitionData)


class FetchResponse(wire.Message, api_key=1, versions=range(4, 19), flexible_since=12):
    throttle_time_ms: int = wire.int32()
    error_code: int = wire.int16(since=7, ignorable=True)
    session_id: int = wire.int32(since=7)
    responses: list[FetchableTopicResponse] = wire.array(FetchableTopicResponse)
    node_endpoints: list[NodeEndpoint] = wire.array(NodeEndpoint, since=16, tag=0)
