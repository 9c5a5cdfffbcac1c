"""TxnOffsetCommit (API 28): commit a group's offsets as a part of a transaction.

The offsets count once the transaction is committed. Since 2 with the leader epoch of the last record read; 3 says who
the member is, so that a zombie can be fenced (KIP-447); 4 may answer TRANSACTION_ABORTABLE, and 5 adds the group to the
transaction by itself (KIP-890).
"""

from headrace.protocol import schema as wire
from headrace.protocol.messages.shared import TopicOutcome


class TxnOffsetCommitRequestPartition(wire.Struct):
    partition_index: int = wire.int32()
    committed_offset: int = wire.int64()
    committed_leader_epoch: int = wire.int32(since=2, default=-1, ignorable=True)
    committed_metadata: str | None = wire.nullable_string()


class TxnOffsetCommitRequestTopic(wire.Struct):
    name: str = wire.string()
    partitions: list[TxnOffsetCommitRequestPartition] = wire.array(TxnOffsetCommitRequestPartition)


class TxnOffsetCommitRequest(wire.Message, api_key=28, versions=range(6), flexible_since=3):
    transactional_id: str = wire.string()
    group_id: str = wire.string()
    producer_id: int = wire.int64()
    producer_epoch: int = wire.int16()
    generation_id: int = wire.int32(since=3, default=-1)
    member_id: str = wire.string(since=3)
    group_instance_id: str | None = wire.nullable_string(since=3, default=None)
    topics: list[TxnOffsetCommitRequestTopic] = wire.array(TxnOffsetCommitRequestTopic)


class TxnOffsetCommitResponse(wire.Message, api_key=28, versions=range(6), flexible_since=3):
    throttle_time_ms: int = wire.int32()
    topics: list[TopicOutcome] = wire.array(TopicOutcome)
