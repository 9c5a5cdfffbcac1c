"""Structs that several APIs declare alike: how single partitions and topics came out, and where brokers are.

An API whose struct differs in a single field or version declares its own.
"""

from headrace.protocol.schema import INT32, Struct, array, int8, int16, int32, nullable_string, string


class TopicIndexes(Struct):
    name: str = string()
    partition_indexes: list[int] = array(INT32)


class TopicPartitions(Struct):
    topic: str = string()
    partitions: list[int] = array(INT32)


class PartitionOutcome(Struct):
    partition_index: int = int32()
    error_code: int = int16()


class TopicOutcome(Struct):
    name: str = string()
    partitions: list[PartitionOutcome] = array(PartitionOutcome)


class ResourceOutcome(Struct):
    """Whether the settings of one topic or broker were changed."""

    error_code: int = int16()
    error_message: str | None = nullable_string()
    resource_type: int = int8()
    resource_name: str = string()


class LeaderIdAndEpoch(Struct):
    """Who leads the partition now, for a client that asked the wrong broker."""

    leader_id: int = int32(default=-1)
    leader_epoch: int = int32(default=-1)


class NodeEndpoint(Struct):
    """Where a broker that was named as a leader can be reached."""

    node_id: int = int32()
    host: str = string()
    port: int = int32()
    rack: str | None = nullable_string(default=None)
