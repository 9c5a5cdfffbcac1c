"""Fetch (API 1): read record batches from partitions, waiting for more if there are too few.

The batches come as they are in the log, so the first may begin before the offset asked for and the last may be cut.
Versions 0 to 3 went with Kafka 4.0. Since 5 the log's start is told; 7 brings sessions, in which a client names only
what changed (KIP-227); 9 fences by leader epoch (KIP-320); 10 may carry zstd (KIP-110); 11 reads from the closest
replica (KIP-392); 12 is flexible and finds diverging logs; 13 names topics by id (KIP-516); 15 to 18 add what only
followers use (KIP-903, KIP-853, KIP-1166), and 16 names the new leader in the error itself (KIP-951).
"""

from headrace.protocol.messages.shared import LeaderIdAndEpoch, NodeEndpoint
from headrace.protocol.schema import (
    INT32,
    Buffer,
    Message,
    Struct,
    Uuid,
    array,
    int8,
    int16,
    int32,
    int64,
    nullable_array,
    nullable_string,
    record_batches,
    string,
    struct,
    uuid,
)


class ReplicaState(Struct):
    """Which follower is asking; a consumer leaves it as it is."""

    replica_id: int = int32(default=-1)
    replica_epoch: int = int64(default=-1)


class FetchPartition(Struct):
    partition: int = int32()
    current_leader_epoch: int = int32(since=9, default=-1, ignorable=True)
    fetch_offset: int = int64()
    last_fetched_epoch: int = int32(since=12, default=-1)
    log_start_offset: int = int64(since=5, default=-1, ignorable=True)
    partition_max_bytes: int = int32()
    replica_directory_id: Uuid = uuid(since=17, ignorable=True, tag=0)
    high_watermark: int = int64(since=18, default=2**63 - 1, ignorable=True, tag=1)


class FetchTopic(Struct):
    topic: str = string(until=12, ignorable=True)
    topic_id: Uuid = uuid(since=13, ignorable=True)
    partitions: list[FetchPartition] = array(FetchPartition)


class ForgottenTopic(Struct):
    topic: str = string(until=12, ignorable=True)
    topic_id: Uuid = uuid(since=13, ignorable=True)
    partitions: list[int] = array(INT32)


class FetchRequest(Message, api_key=1, versions=range(4, 19), flexible_since=12):
    cluster_id: str | None = nullable_string(since=12, default=None, ignorable=True, tag=0)
    replica_id: int = int32(until=14, default=-1)
    replica_state: ReplicaState = struct(ReplicaState, since=15, tag=1)
    max_wait_ms: int = int32()
    min_bytes: int = int32()
    max_bytes: int = int32(default=2**31 - 1)
    isolation_level: int = int8()
    session_id: int = int32(since=7, ignorable=True)
    session_epoch: int = int32(since=7, default=-1, ignorable=True)
    topics: list[FetchTopic] = array(FetchTopic)
    forgotten_topics_data: list[ForgottenTopic] = array(ForgottenTopic, since=7)
    rack_id: str = string(since=11, ignorable=True)


class EpochEndOffset(Struct):
    epoch: int = int32(default=-1)
    end_offset: int = int64(default=-1)


class SnapshotId(Struct):
    end_offset: int = int64(default=-1)
    epoch: int = int32(default=-1)


class AbortedTransaction(Struct):
    """A transaction whose records from this offset on a read-committed consumer must skip."""

    producer_id: int = int64()
    first_offset: int = int64()


class PartitionData(Struct):
    partition_index: int = int32()
    error_code: int = int16()
    high_watermark: int = int64()
    last_stable_offset: int = int64(default=-1)
    log_start_offset: int = int64(since=5, default=-1, ignorable=True)
    diverging_epoch: EpochEndOffset = struct(EpochEndOffset, since=12, tag=0)
    current_leader: LeaderIdAndEpoch = struct(LeaderIdAndEpoch, since=12, tag=1)
    snapshot_id: SnapshotId = struct(SnapshotId, since=12, tag=2)
    aborted_transactions: list[AbortedTransaction] | None = nullable_array(AbortedTransaction)
    preferred_read_replica: int = int32(since=11, default=-1)
    records: Buffer | None = record_batches()


class FetchableTopicResponse(Struct):
    topic: str = string(until=12, ignorable=True)
    topic_id: Uuid = uuid(since=13, ignorable=True)
    partitions: list[PartitionData] = array(PartitionData)


class FetchResponse(Message, api_key=1, versions=range(4, 19), flexible_since=12):
    throttle_time_ms: int = int32()
    error_code: int = int16(since=7, ignorable=True)
    session_id: int = int32(since=7)
    responses: list[FetchableTopicResponse] = array(FetchableTopicResponse)
    node_endpoints: list[NodeEndpoint] = array(NodeEndpoint, since=16, tag=0)
