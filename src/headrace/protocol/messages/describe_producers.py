"""DescribeProducers (API 61): the producers that a partition's leader knows of (KIP-664).

It is how hanging transactions are found. There is one version.
"""

from headrace.protocol.schema import INT32, Message, Struct, array, int16, int32, int64, nullable_string, string


class TopicRequest(Struct):
    """The partitions of one topic."""

    name: str = string()
    partition_indexes: list[int] = array(INT32)


class DescribeProducersRequest(Message, api_key=61, versions=range(1), flexible_since=0):
    """The partitions."""

    topics: list[TopicRequest] = array(TopicRequest)


class ProducerState(Struct):
    """What the partition remembers of one producer."""

    producer_id: int = int64()
    producer_epoch: int = int32()
    last_sequence: int = int32(default=-1)
    last_timestamp: int = int64(default=-1)
    coordinator_epoch: int = int32()
    current_txn_start_offset: int = int64(default=-1)


class PartitionResponse(Struct):
    """One partition's producers, or why they cannot be told."""

    partition_index: int = int32()
    error_code: int = int16()
    error_message: str | None = nullable_string(default=None)
    active_producers: list[ProducerState] = array(ProducerState)


class TopicResponse(Struct):
    """The answers about one topic."""

    name: str = string()
    partitions: list[PartitionResponse] = array(PartitionResponse)


class DescribeProducersResponse(Message, api_key=61, versions=range(1), flexible_since=0):
    """Their producers."""

    throttle_time_ms: int = int32()
    topics: list[TopicResponse] = array(TopicResponse)
