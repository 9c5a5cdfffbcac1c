"""DescribeTopicPartitions (API 75): the partitions of topics, page by page (KIP-966).

It tells what Metadata tells, and who may become leader besides. There is one version.
"""

from headrace.protocol.schema import (
    INT32,
    Message,
    Struct,
    Uuid,
    array,
    boolean,
    int16,
    int32,
    nullable_array,
    nullable_string,
    nullable_struct,
    string,
    uuid,
)


class TopicRequest(Struct):
    name: str = string()


class Cursor(Struct):
    topic_name: str = string()
    partition_index: int = int32()


class DescribeTopicPartitionsRequest(Message, api_key=75, versions=range(1), flexible_since=0):
    topics: list[TopicRequest] = array(TopicRequest)
    response_partition_limit: int = int32(default=2000)
    cursor: Cursor | None = nullable_struct(Cursor)


class DescribeTopicPartitionsResponsePartition(Struct):
    error_code: int = int16()
    partition_index: int = int32()
    leader_id: int = int32()
    leader_epoch: int = int32(default=-1)
    replica_nodes: list[int] = array(INT32)
    isr_nodes: list[int] = array(INT32)
    eligible_leader_replicas: list[int] | None = nullable_array(INT32, default=None)
    last_known_elr: list[int] | None = nullable_array(INT32, default=None)
    offline_replicas: list[int] = array(INT32)


class DescribeTopicPartitionsResponseTopic(Struct):
    error_code: int = int16()
    name: str | None = nullable_string()
    topic_id: Uuid = uuid()
    is_internal: bool = boolean()
    partitions: list[DescribeTopicPartitionsResponsePartition] = array(DescribeTopicPartitionsResponsePartition)
    topic_authorized_operations: int = int32(default=-(2**31))


class DescribeTopicPartitionsResponse(Message, api_key=75, versions=range(1), flexible_since=0):
    throttle_time_ms: int = int32()
    topics: list[DescribeTopicPartitionsResponseTopic] = array(DescribeTopicPartitionsResponseTopic)
    next_cursor: Cursor | None = nullable_struct(Cursor)
