"""Structs that several APIs declare alike: how single partitions and topics came out, where brokers are, and what
a quota is for.

An API whose struct differs in a single field or version declares its own.
"""

from headrace.protocol import schema as wire


class TopicIndexes(wire.Struct):
    name: str = wire.string()
    partition_indexes: list[int] = wire.array(wire.INT32)


class TopicPartitions(wire.Struct):
    topic: str = wire.string()
    partitions: list[int] = wire.array(wire.INT32)


class PartitionOutcome(wire.Struct):
    partition_index: int = wire.int32()
    error_code: int = wire.int16()


class TopicOutcome(wire.Struct):
    name: str = wire.string()
    partitions: list[PartitionOutcome] = wire.array(PartitionOutcome)


class ResourceOutcome(wire.Struct):
    error_code: int = wire.int16()
    error_message: str | None = wire.nullable_string()
    resource_type: int = wire.int8()
    resource_name: str = wire.string()


class LeaderIdAndEpoch(wire.Struct):
    """Who leads the partition now, for a client that asked the wrong broker."""

    leader_id: int = wire.int32(default=-1)
    leader_epoch: int = wire.int32(default=-1)


class NodeEndpoint(wire.Struct):
    """Where a broker that was named as a leader can be reached."""

    node_id: int = wire.int32()
    host: str = wire.string()
    port: int = wire.int32()
    rack: str | None = wire.nullable_string(default=None)


class Listener(wire.Struct):
    """A listener of a node that keeps the metadata log."""

    name: str = wire.string()
    host: str = wire.string()
    port: int = wire.uint16()


class EntityPart(wire.Struct):
    """A part of what a quota is set for; null instead of a name is the default of its type."""

    entity_type: str = wire.string()
    entity_name: str | None = wire.nullable_string()


# What the APIs of streams groups (KIP-1071) have in common.


class Endpoint(wire.Struct):
    """Where an instance of a streams application answers queries of its state."""

    host: str = wire.string()
    port: int = wire.uint16()


class KeyValue(wire.Struct):
    key: str = wire.string()
    value: str = wire.string()


class TopicInfo(wire.Struct):
    """A topic that is made for a streams application; 0 partitions or replicas leave it to the broker."""

    name: str = wire.string()
    partitions: int = wire.int32()
    replication_factor: int = wire.int16()
    topic_configs: list[KeyValue] = wire.array(KeyValue)


class TaskIds(wire.Struct):
    """Tasks of a subtopology, by the number of the partition that each reads."""

    subtopology_id: str = wire.string()
    partitions: list[int] = wire.array(wire.INT32)


class TaskOffset(wire.Struct):
    """How far a task's changelogs go, all of them together."""

    subtopology_id: str = wire.string()
    partition: int = wire.int32()
    offset: int = wire.int64()
