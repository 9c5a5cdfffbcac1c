"""TxnOffsetCommit (API 28): commit a group's offsets as a part of a transaction.

The offsets count once the transaction is committed. Since 2 with the leader epoch of the last record read; 3 says who
the member is, so that a zombie can be fenced (KIP-447); 4 may answer TRANSACTION_ABORTABLE, and 5 adds the group to the
transaction by itself (KIP-890).
"""

from headrace.protocol.schema import Message, Struct, array, int16, int32, int64, nullable_string, string


class TxnOffsetCommitRequestPartition(Struct):
    """The next offset to read of one partition."""

    partition_index: int = int32()
    committed_offset: int = int64()
    committed_leader_epoch: int = int32(since=2, default=-1, ignorable=True)
    committed_metadata: str | None = nullable_string()


class TxnOffsetCommitRequestTopic(Struct):
    """The offsets for one topic."""

    name: str = string()
    partitions: list[TxnOffsetCommitRequestPartition] = array(TxnOffsetCommitRequestPartition)


class TxnOffsetCommitRequest(Message, api_key=28, versions=range(6), flexible_since=3):
    """The transaction, the group, and the offsets."""

    transactional_id: str = string()
    group_id: str = string()
    producer_id: int = int64()
    producer_epoch: int = int16()
    generation_id: int = int32(since=3, default=-1)
    member_id: str = string(since=3)
    group_instance_id: str | None = nullable_string(since=3, default=None)
    topics: list[TxnOffsetCommitRequestTopic] = array(TxnOffsetCommitRequestTopic)


class TxnOffsetCommitResponsePartition(Struct):
    """The outcome for one partition."""

    partition_index: int = int32()
    error_code: int = int16()


class TxnOffsetCommitResponseTopic(Struct):
    """The outcome for one topic."""

    name: str = string()
    partitions: list[TxnOffsetCommitResponsePartition] = array(TxnOffsetCommitResponsePartition)


class TxnOffsetCommitResponse(Message, api_key=28, versions=range(6), flexible_since=3):
    """Whether each offset was taken."""

    throttle_time_ms: int = int32()
    topics: list[TxnOffsetCommitResponseTopic] = array(TxnOffsetCommitResponseTopic)
