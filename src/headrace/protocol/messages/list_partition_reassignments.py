"""ListPartitionReassignments (API 46): which partitions are being moved (KIP-455). There is one version."""

from headrace.protocol.messages.shared import TopicIndexes
from headrace.protocol.schema import (
    INT32,
    Message,
    Struct,
    array,
    int16,
    int32,
    nullable_array,
    nullable_string,
    string,
)


class ListPartitionReassignmentsRequest(Message, api_key=46, versions=range(1), flexible_since=0):
    """The partitions to look at, null for all."""

    timeout_ms: int = int32(default=60_000)
    topics: list[TopicIndexes] | None = nullable_array(TopicIndexes, default=None)


class OngoingPartitionReassignment(Struct):
    partition_index: int = int32()
    replicas: list[int] = array(INT32)
    adding_replicas: list[int] = array(INT32)
    removing_replicas: list[int] = array(INT32)


class OngoingTopicReassignment(Struct):
    name: str = string()
    partitions: list[OngoingPartitionReassignment] = array(OngoingPartitionReassignment)


class ListPartitionReassignmentsResponse(Message, api_key=46, versions=range(1), flexible_since=0):
    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = nullable_string()
    topics: list[OngoingTopicReassignment] = array(OngoingTopicReassignment)
