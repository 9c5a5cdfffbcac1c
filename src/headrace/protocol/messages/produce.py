"""Produce (API 0): append record batches to partitions.

With `acks=0` there is no response at all. Versions 0 to 2 went with Kafka 4.0: what is declared here carries message
format 2 only. Since 7 zstd may be used (KIP-110); 8 tells which records were refused (KIP-467); 10 names the new leader
in the error itself (KIP-951); 11 may answer TRANSACTION_ABORTABLE, and 12 adds the partition to the transaction by
itself (KIP-890); 13 names topics by id (KIP-516).
"""

from headrace.protocol import schema as wire
from headrace.protocol.messages.shared import LeaderIdAndEpoch, NodeEndpoint


class PartitionProduceData(wire.Struct):
    index: int = wire.int32()
    records: wire.Buffer | None = wire.record_batches()


class TopicProduceData(wire.Struct):
    name: str = wire.string(until=12, ignorable=True)
    topic_id: wire.Uuid = wire.uuid(since=13, ignorable=True)
    partition_data: list[PartitionProduceData] = wire.array(PartitionProduceData)


class ProduceRequest(wire.Message, api_key=0, versions=range(3, 14), flexible_since=9):
    transactional_id: str | None = wire.nullable_string(default=None)
    acks: int = wire.int16()
    timeout_ms: int = wire.int32()
    topic_data: list[TopicProduceData] = wire.array(TopicProduceData)


class BatchIndexAndErrorMessage(wire.Struct):
    """One record that was refused, by its place in the batch."""

    batch_index: int = wire.int32()
    batch_index_error_message: str | None = wire.nullable_string(default=None)


class PartitionProduceResponse(wire.Struct):
    index: int = wire.int32()
    error_code: int = wire.int16()
    base_offset: int = wire.int64()
    log_append_time_ms: int = wire.int64(default=-1)
    log_start_offset: int = wire.int64(since=5, default=-1, ignorable=True)
    record_errors: list[BatchIndexAndErrorMessage] = wire.array(BatchIndexAndErrorMessage, since=8, ignorable=True)
    error_message: str | None = wire.nullable_string(since=8, default=None, ignorable=True)
    current_leader: LeaderIdAndEpoch = wire.struct(LeaderIdAndEpoch, since=10, tag=0)
    # Ours, of a topic that keeps events: the command was appended before, and nothing was written now.
    is_repeat: bool = wire.boolean(since=9, ignorable=True, tag=10_000)


class TopicProduceResponse(wire.Struct):
    name: str = wire.string(until=12, ignorable=True)
    topic_id: wire.Uuid = wire.uuid(since=13, ignorable=True)
    partition_responses: list[PartitionProduceResponse] = wire.array(PartitionProduceResponse)


class ProduceResponse(wire.Message, api_key=0, versions=range(3, 14), flexible_since=9):
    responses: list[TopicProduceResponse] = wire.array(TopicProduceResponse)
    throttle_time_ms: int = wire.int32()
    node_endpoints: list[NodeEndpoint] = wire.array(NodeEndpoint, since=10, tag=0)
