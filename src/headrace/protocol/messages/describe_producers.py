"""DescribeProducers (API 61): the producers that a partition's leader knows of (KIP-664).

It is how hanging transactions are found. There is one version.
"""

from headrace.protocol.messages.shared import TopicIndexes
from headrace.protocol.schema import Message, Struct, array, int16, int32, int64, nullable_string, string


class DescribeProducersRequest(Message, api_key=61, versions=range(1), flexible_since=0):
    topics: list[TopicIndexes] = array(TopicIndexes)


class ProducerState(Struct):
    producer_id: int = int64()
    producer_epoch: int = int32()
    last_sequence: int = int32(default=-1)
    last_timestamp: int = int64(default=-1)
    coordinator_epoch: int = int32()
    current_txn_start_offset: int = int64(default=-1)


class PartitionResponse(Struct):
    partition_index: int = int32()
    error_code: int = int16()
    error_message: str | None = nullable_string(default=None)
    active_producers: list[ProducerState] = array(ProducerState)


class TopicResponse(Struct):
    name: str = string()
    partitions: list[PartitionResponse] = array(PartitionResponse)


class DescribeProducersResponse(Message, api_key=61, versions=range(1), flexible_since=0):
    throttle_time_ms: int = int32()
    topics: list[TopicResponse] = array(TopicResponse)
