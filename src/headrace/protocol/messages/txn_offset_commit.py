"""TxnOffsetCommit (API 28): commit a group's offsets as a part of a transaction.

The offsets count once the transaction is committed. Since 2 with the leader epoch of the last record read; 3 says who
the member is, so that a zombie can be fenced (KIP-447); 4 may answer TRANSACTION_ABORTABLE, and 5 adds the group to the
transaction by itself (KIP-890).
"""

from headrace.protocol.messages.shared import TopicOutcome
from headrace.protocol.schema import Message, Struct, array, int16, int32, int64, nullable_string, string


class TxnOffsetCommitRequestPartition(Struct):
    partition_index: int = int32()
    committed_offset: int = int64()
    committed_leader_epoch: int = int32(since=2, default=-1, ignorable=True)
    committed_metadata: str | None = nullable_string()


class TxnOffsetCommitRequestTopic(Struct):
    name: str = string()
    partitions: list[TxnOffsetCommitRequestPartition] = array(TxnOffsetCommitRequestPartition)


class TxnOffsetCommitRequest(Message, api_key=28, versions=range(6), flexible_since=3):
    transactional_id: str = string()
    group_id: str = string()
    producer_id: int = int64()
    producer_epoch: int = int16()
    generation_id: int = int32(since=3, default=-1)
    member_id: str = string(since=3)
    group_instance_id: str | None = nullable_string(since=3, default=None)
    topics: list[TxnOffsetCommitRequestTopic] = array(TxnOffsetCommitRequestTopic)


class TxnOffsetCommitResponse(Message, api_key=28, versions=range(6), flexible_since=3):
    throttle_time_ms: int = int32()
    topics: list[TopicOutcome] = array(TopicOutcome)
