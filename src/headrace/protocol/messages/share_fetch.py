"""ShareFetch (API 78): acquire records for a member of a share group, and acknowledge those it had (KIP-932).

Requests of a member are a session: epoch 0 opens it, -1 closes it, and every request in between has the next number.
Since 2 a client may have exactly so many records (KIP-1206), and renew the locks of those that it has (KIP-1222).
"""

from headrace.protocol import schema as wire
from headrace.protocol.messages.shared import NodeEndpoint


class AcknowledgementBatch(wire.Struct):
    """Records from first to last: one type for all of them, or one for each.

    The types are 0 gap, 1 accept, 2 release, 3 reject, 4 renew. The tagged fields are ours: a Kafka skips them, and a
    broker that knows them has the feature `headrace.queue`.
    """

    first_offset: int = wire.int64()
    last_offset: int = wire.int64()
    acknowledge_types: list[int] = wire.array(wire.INT8)
    retry_after_ms: int = wire.int32(default=-1, tag=10_000)  # of what is released
    reason: str = wire.string(tag=10_001)  # why it is released or rejected
    is_unseen: bool = wire.boolean(tag=10_005)  # it is released, and nobody has seen it: that delivery does not count


class FetchPartition(wire.Struct):
    partition_index: int = wire.int32()
    acknowledgement_batches: list[AcknowledgementBatch] = wire.array(AcknowledgementBatch)


class FetchTopic(wire.Struct):
    topic_id: wire.Uuid = wire.uuid()
    partitions: list[FetchPartition] = wire.array(FetchPartition)


class ForgottenTopic(wire.Struct):
    topic_id: wire.Uuid = wire.uuid()
    partitions: list[int] = wire.array(wire.INT32)


class ShareFetchRequest(wire.Message, api_key=78, versions=range(1, 3), flexible_since=1):
    group_id: str | None = wire.nullable_string(default=None)
    member_id: str | None = wire.nullable_string()
    share_session_epoch: int = wire.int32()
    max_wait_ms: int = wire.int32()
    min_bytes: int = wire.int32()
    max_bytes: int = wire.int32(default=0x7FFFFFFF)
    max_records: int = wire.int32()
    batch_size: int = wire.int32()
    share_acquire_mode: int = wire.int8(since=2, ignorable=True)
    is_renew_ack: bool = wire.boolean(since=2)
    topics: list[FetchTopic] = wire.array(FetchTopic)
    forgotten_topics_data: list[ForgottenTopic] = wire.array(ForgottenTopic)


class ShareLeader(wire.Struct):
    """Who leads the partition; zeros where nobody asks, unlike in a fetch."""

    leader_id: int = wire.int32()
    leader_epoch: int = wire.int32()


class AcquiredRecords(wire.Struct):
    """Records that the member has from now on, each delivered so often."""

    first_offset: int = wire.int64()
    last_offset: int = wire.int64()
    delivery_count: int = wire.int16()


class PartitionData(wire.Struct):
    partition_index: int = wire.int32()
    error_code: int = wire.int16()
    error_message: str | None = wire.nullable_string(default=None)
    acknowledge_error_code: int = wire.int16()
    acknowledge_error_message: str | None = wire.nullable_string(default=None)
    current_leader: ShareLeader = wire.struct(ShareLeader)
    records: wire.Buffer | None = wire.record_batches(nullable_since=None)
    acquired_records: list[AcquiredRecords] = wire.array(AcquiredRecords)


class ShareFetchableTopicResponse(wire.Struct):
    topic_id: wire.Uuid = wire.uuid()
    partitions: list[PartitionData] = wire.array(PartitionData)


class ShareFetchResponse(wire.Message, api_key=78, versions=range(1, 3), flexible_since=1):
    throttle_time_ms: int = wire.int32()
    error_code: int = wire.int16()
    error_message: str | None = wire.nullable_string(default=None)
    acquisition_lock_timeout_ms: int = wire.int32()
    responses: list[ShareFetchableTopicResponse] = wire.array(ShareFetchableTopicResponse)
    node_endpoints: list[NodeEndpoint] = wire.array(NodeEndpoint)
