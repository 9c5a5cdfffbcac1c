"""AlterPartitionReassignments (API 45): move partitions to other brokers, or take that back (KIP-455).

Version 1 may refuse to change the replication factor (KIP-860).
"""

from headrace.protocol import schema as wire


class ReassignablePartition(wire.Struct):
    """The brokers that a partition is to be on; null takes a move back."""

    partition_index: int = wire.int32()
    replicas: list[int] | None = wire.nullable_array(wire.INT32, default=None)


class ReassignableTopic(wire.Struct):
    name: str = wire.string()
    partitions: list[ReassignablePartition] = wire.array(ReassignablePartition)


class AlterPartitionReassignmentsRequest(wire.Message, api_key=45, versions=range(2), flexible_since=0):
    timeout_ms: int = wire.int32(default=60_000)
    allow_replication_factor_change: bool = wire.boolean(since=1, default=True)
    topics: list[ReassignableTopic] = wire.array(ReassignableTopic)


class ReassignablePartitionResponse(wire.Struct):
    partition_index: int = wire.int32()
    error_code: int = wire.int16()
    error_message: str | None = wire.nullable_string()


class ReassignableTopicResponse(wire.Struct):
    name: str = wire.string()
    partitions: list[ReassignablePartitionResponse] = wire.array(ReassignablePartitionResponse)


class AlterPartitionReassignmentsResponse(wire.Message, api_key=45, versions=range(2), flexible_since=0):
    throttle_time_ms: int = wire.int32()
    allow_replication_factor_change: bool = wire.boolean(since=1, default=True, ignorable=True)
    error_code: int = wire.int16()
    error_message: str | None = wire.nullable_string()
    responses: list[ReassignableTopicResponse] = wire.array(ReassignableTopicResponse)
