"""CreatePartitions (API 37): give topics more partitions (KIP-195).

Version 2 is flexible; 3 may be throttled (KIP-599).
"""

from headrace.protocol.schema import (
    INT32,
    Message,
    Struct,
    array,
    boolean,
    int16,
    int32,
    nullable_array,
    nullable_string,
    string,
)


class CreatePartitionsAssignment(Struct):
    broker_ids: list[int] = array(INT32)


class CreatePartitionsTopic(Struct):
    name: str = string()
    count: int = int32()
    assignments: list[CreatePartitionsAssignment] | None = nullable_array(CreatePartitionsAssignment)


class CreatePartitionsRequest(Message, api_key=37, versions=range(4), flexible_since=2):
    """The topics that are to grow, and whether to do it or only to check."""

    topics: list[CreatePartitionsTopic] = array(CreatePartitionsTopic)
    timeout_ms: int = int32()
    validate_only: bool = boolean()


class CreatePartitionsTopicResult(Struct):
    name: str = string()
    error_code: int = int16()
    error_message: str | None = nullable_string(default=None)


class CreatePartitionsResponse(Message, api_key=37, versions=range(4), flexible_since=2):
    throttle_time_ms: int = int32()
    results: list[CreatePartitionsTopicResult] = array(CreatePartitionsTopicResult)
