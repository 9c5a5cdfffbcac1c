"""DescribeProducers (API 61): the producers that a partition's leader knows of (KIP-664).

It is how hanging transactions are found. There is one version.
"""

from headrace.protocol import schema as wire
from headrace.protocol.messages.shared import TopicIndexes


class DescribeProducersRequest(wire.Message, api_key=61, versions=range(1), flexible_since=0):
    topics: list[TopicIndexes] = wire.array(TopicIndexes)


class ProducerState(wire.Struct):
    producer_id: int = wire.int64()
    producer_epoch: int = wire.int32()
    last_sequence: int = wire.int32(default=-1)
    last_timestamp: int = wire.int64(default=-1)
    coordinator_epoch: int = wire.int32()
    current_txn_start_offset: int = wire.int64(default=-1)


class PartitionResponse(wire.Struct):
    partition_index: int = wire.int32()
    error_code: int = wire.int16()
    error_message: str | None = wire.nullable_string(default=None)
    active_producers: list[ProducerState] = wire.array(ProducerState)


class TopicResponse(wire.Struct):
    name: str = wire.string()
    partitions: list[PartitionResponse] = wire.array(PartitionResponse)


class DescribeProducersResponse(wire.Message, api_key=61, versions=range(1), flexible_since=0):
    throttle_time_ms: int = wire.int32()
    topics: list[TopicResponse] = wire.array(TopicResponse)
