"""ListPartitionReassignments (API 46): which partitions are being moved (KIP-455). There is one version."""

from headrace.protocol import schema as wire
from headrace.protocol.messages.shared import TopicIndexes


class ListPartitionReassignmentsRequest(wire.Message, api_key=46, versions=range(1), flexible_since=0):
    timeout_ms: int = wire.int32(default=60_000)
    topics: list[TopicIndexes] | None = wire.nullable_array(TopicIndexes, default=None)


class OngoingPartitionReassignment(wire.Struct):
    partition_index: int = wire.int32()
    replicas: list[int] = wire.array(wire.INT32)
    adding_replicas: list[int] = wire.array(wire.INT32)
    removing_replicas: list[int] = wire.array(wire.INT32)


class OngoingTopicReassignment(wire.Struct):
    name: str = wire.string()
    partitions: list[OngoingPartitionReassignment] = wire.array(OngoingPartitionReassignment)


class ListPartitionReassignmentsResponse(wire.Message, api_key=46, versions=range(1), flexible_since=0):
    throttle_time_ms: int = wire.int32()
    error_code: int = wire.int16()
    error_message: str | None = wire.nullable_string()
    topics: list[OngoingTopicReassignment] = wire.array(OngoingTopicReassignment)
