"""Produce (API 0): append record batches to partitions.

With `acks=0` there is no response at all. Versions 0 to 2 went with Kafka 4.0: what is declared here carries message
format 2 only. Since 7 zstd may be used (KIP-110); 8 tells which records were refused (KIP-467); 10 names the new leader
in the error itself (KIP-951); 11 may answer TRANSACTION_ABORTABLE, and 12 adds the partition to the transaction by
itself (KIP-890); 13 names topics by id (KIP-516).
"""

from headrace.protocol.messages.shared import LeaderIdAndEpoch, NodeEndpoint
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
    index: int = int32()
    records: Buffer | None = record_batches()


class TopicProduceData(Struct):
    name: str = string(until=12, ignorable=True)
    topic_id: Uuid = uuid(since=13, ignorable=True)
    partition_data: list[PartitionProduceData] = array(PartitionProduceData)


class ProduceRequest(Message, api_key=0, versions=range(3, 14), flexible_since=9):
    transactional_id: str | None = nullable_string(default=None)
    acks: int = int16()
    timeout_ms: int = int32()
    topic_data: list[TopicProduceData] = array(TopicProduceData)


class BatchIndexAndErrorMessage(Struct):
    """One record that was refused, by its place in the batch."""

    batch_index: int = int32()
    batch_index_error_message: str | None = nullable_string(default=None)


class PartitionProduceResponse(Struct):
    index: int = int32()
    error_code: int = int16()
    base_offset: int = int64()
    log_append_time_ms: int = int64(default=-1)
    log_start_offset: int = int64(since=5, default=-1, ignorable=True)
    record_errors: list[BatchIndexAndErrorMessage] = array(BatchIndexAndErrorMessage, since=8, ignorable=True)
    error_message: str | None = nullable_string(since=8, default=None, ignorable=True)
    current_leader: LeaderIdAndEpoch = struct(LeaderIdAndEpoch, since=10, tag=0)


class TopicProduceResponse(Struct):
    name: str = string(until=12, ignorable=True)
    topic_id: Uuid = uuid(since=13, ignorable=True)
    partition_responses: list[PartitionProduceResponse] = array(PartitionProduceResponse)


class ProduceResponse(Message, api_key=0, versions=range(3, 14), flexible_since=9):
    responses: list[TopicProduceResponse] = array(TopicProduceResponse)
    throttle_time_ms: int = int32()
    node_endpoints: list[NodeEndpoint] = array(NodeEndpoint, since=10, tag=0)
