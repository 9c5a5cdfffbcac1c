"""CreatePartitions (API 37): give topics more partitions (KIP-195).

Version 2 is flexible; 3 may be throttled (KIP-599).
"""

from headrace.protocol import schema as wire


class CreatePartitionsAssignment(wire.Struct):
    broker_ids: list[int] = wire.array(wire.INT32)


class CreatePartitionsTopic(wire.Struct):
    name: str = wire.string()
    count: int = wire.int32()
    assignments: list[CreatePartitionsAssignment] | None = wire.nullable_array(CreatePartitionsAssignment)


class CreatePartitionsRequest(wire.Message, api_key=37, versions=range(4), flexible_since=2):
    topics: list[CreatePartitionsTopic] = wire.array(CreatePartitionsTopic)
    timeout_ms: int = wire.int32()
    validate_only: bool = wire.boolean()


class CreatePartitionsTopicResult(wire.Struct):
    name: str = wire.string()
    error_code: int = wire.int16()
    error_message: str | None = wire.nullable_string(default=None)


class CreatePartitionsResponse(wire.Message, api_key=37, versions=range(4), flexible_since=2):
    throttle_time_ms: int = wire.int32()
    results: list[CreatePartitionsTopicResult] = wire.array(CreatePartitionsTopicResult)
