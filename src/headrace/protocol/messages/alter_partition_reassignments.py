"""AlterPartitionReassignments (API 45): move partitions to other brokers, or take that back (KIP-455).

Version 1 may refuse to change the replication factor (KIP-860).
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


class ReassignablePartition(Struct):
    """The brokers that a partition is to be on; null takes a move back."""

    partition_index: int = int32()
    replicas: list[int] | None = nullable_array(INT32, default=None)


class ReassignableTopic(Struct):
    name: str = string()
    partitions: list[ReassignablePartition] = array(ReassignablePartition)


class AlterPartitionReassignmentsRequest(Message, api_key=45, versions=range(2), flexible_since=0):
    timeout_ms: int = int32(default=60_000)
    allow_replication_factor_change: bool = boolean(since=1, default=True)
    topics: list[ReassignableTopic] = array(ReassignableTopic)


class ReassignablePartitionResponse(Struct):
    partition_index: int = int32()
    error_code: int = int16()
    error_message: str | None = nullable_string()


class ReassignableTopicResponse(Struct):
    name: str = string()
    partitions: list[ReassignablePartitionResponse] = array(ReassignablePartitionResponse)


class AlterPartitionReassignmentsResponse(Message, api_key=45, versions=range(2), flexible_since=0):
    throttle_time_ms: int = int32()
    allow_replication_factor_change: bool = boolean(since=1, default=True, ignorable=True)
    error_code: int = int16()
    error_message: str | None = nullable_string()
    responses: list[ReassignableTopicResponse] = array(ReassignableTopicResponse)
