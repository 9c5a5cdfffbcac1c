"""DescribeTopicPartitions (API 75): the partitions of topics, page by page (KIP-966).

It tells what Metadata tells, and who may become leader besides. There is one version.
"""

from headrace.protocol import schema as wire


class TopicRequest(wire.Struct):
    name: str = wire.string()


class Cursor(wire.Struct):
    topic_name: str = wire.string()
    partition_index: int = wire.int32()


class DescribeTopicPartitionsRequest(wire.Message, api_key=75, versions=range(1), flexible_since=0):
    topics: list[TopicRequest] = wire.array(TopicRequest)
    response_partition_limit: int = wire.int32(default=2000)
    cursor: Cursor | None = wire.nullable_struct(Cursor)


class DescribeTopicPartitionsResponsePartition(wire.Struct):
    error_code: int = wire.int16()
    partition_index: int = wire.int32()
    leader_id: int = wire.int32()
    leader_epoch: int = wire.int32(default=-1)
    replica_nodes: list[int] = wire.array(wire.INT32)
    isr_nodes: list[int] = wire.array(wire.INT32)
    eligible_leader_replicas: list[int] | None = wire.nullable_array(wire.INT32, default=None)
    last_known_elr: list[int] | None = wire.nullable_array(wire.INT32, default=None)
    offline_replicas: list[int] = wire.array(wire.INT32)


class DescribeTopicPartitionsResponseTopic(wire.Struct):
    error_code: int = wire.int16()
    name: str | None = wire.nullable_string()
    topic_id: wire.Uuid = wire.uuid()
    is_internal: bool = wire.boolean()
    partitions: list[DescribeTopicPartitionsResponsePartition] = wire.array(DescribeTopicPartitionsResponsePartition)
    topic_authorized_operations: int = wire.int32(default=-(2**31))


class DescribeTopicPartitionsResponse(wire.Message, api_key=75, versions=range(1), flexible_since=0):
    throttle_time_ms: int = wire.int32()
    topics: list[DescribeTopicPartitionsResponseTopic] = wire.array(DescribeTopicPartitionsResponseTopic)
    next_cursor: Cursor | None = wire.nullable_struct(Cursor)
