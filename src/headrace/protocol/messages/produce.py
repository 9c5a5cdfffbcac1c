"""Produce (API 0): append record batches to partitions.

With `acks=0` there is no response at all. Versions 0 to 2 went with Kafka 4.0: what is declared here carries message
format 2 only. Since 7 zstd may be used (KIP-110); 8 tells which records were refused (KIP-467); 10 names the new leader
in the error itself (KIP-951); 11 may answer TRANSACTION_ABORTABLE, and 12 adds the partition to the transaction by
itself (KIP-890); 13 names topics by id (KIP-516).
"""

from headrace.protocol.schema import (
    Buffer,
    Message,
    Struct,
    Uuid,
    array,
    int16,
    int32,
    int64,
    nullable_string,
    record_batches,
    string,
    struct,
    uuid,
)


class PartitionProduceData(Struct):
    """The batches for one partition, as they will stand in the log."""

    index: int = int32()
    records: Buffer | None = record_batches()


class TopicProduceData(Struct):
    """The batches for one topic."""

    name: str = string(until=12, ignorable=True)
    topic_id: Uuid = uuid(since=13, ignorable=True)
    partition_data: list[PartitionProduceData] = array(PartitionProduceData)


class ProduceRequest(Message, api_key=0, versions=range(3, 14), flexible_since=9):
    """Batches for any number of partitions, all under one acks and one timeout."""

    transactional_id: str | None = nullable_string(default=None)
    acks: int = int16()
    timeout_ms: int = int32()
    topic_data: list[TopicProduceData] = array(TopicProduceData)


class BatchIndexAndErrorMessage(Struct):
    """One record that was refused, by its place in the batch."""

    batch_index: int = int32()
    batch_index_error_message: str | None = nullable_string(default=None)


class LeaderIdAndEpoch(Struct):
    """Who leads the partition now, for a producer that asked the wrong broker."""

    leader_id: int = int32(default=-1)
    leader_epoch: int = int32(default=-1)


class PartitionProduceResponse(Struct):
    """The outcome for one partition: an error, or where its first record now is."""

    index: int = int32()
    error_code: int = int16()
    base_offset: int = int64()
    log_append_time_ms: int = int64(default=-1)
    log_start_offset: int = int64(since=5, default=-1, ignorable=True)
    record_errors: list[BatchIndexAndErrorMessage] = array(BatchIndexAndErrorMessage, since=8, ignorable=True)
    error_message: str | None = nullable_string(since=8, default=None, ignorable=True)
    current_leader: LeaderIdAndEpoch = struct(LeaderIdAndEpoch, since=10, tag=0)


class TopicProduceResponse(Struct):
    """The outcome for one topic."""

    name: str = string(until=12, ignorable=True)
    topic_id: Uuid = uuid(since=13, ignorable=True)
    partition_responses: list[PartitionProduceResponse] = array(PartitionProduceResponse)


class NodeEndpoint(Struct):
    """Where a broker named as a leader can be reached."""

    node_id: int = int32()
    host: str = string()
    port: int = int32()
    rack: str | None = nullable_string(default=None)


class ProduceResponse(Message, api_key=0, versions=range(3, 14), flexible_since=9):
    """What became of each partition's batches."""

    responses: list[TopicProduceResponse] = array(TopicProduceResponse)
    throttle_time_ms: int = int32()
    node_endpoints: list[NodeEndpoint] = array(NodeEndpoint, since=10, tag=0)
