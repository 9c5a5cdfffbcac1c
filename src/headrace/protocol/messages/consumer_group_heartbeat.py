"""ConsumerGroupHeartbeat (API 68): join, stay in, change and leave a consumer group, all in one (KIP-848).

The member's epoch says which: 0 joins, -1 leaves, -2 leaves for a while as a static member. A field that has not
changed since the last heartbeat is null or -1. Since 1 topics may be given by a regular expression, and the client
makes its member id itself (KIP-1082).
"""

from headrace.protocol.schema import (
    INT32,
    STRING,
    Message,
    Struct,
    Uuid,
    array,
    int16,
    int32,
    nullable_array,
    nullable_string,
    nullable_struct,
    string,
    uuid,
)


class TopicPartitions(Struct):
    topic_id: Uuid = uuid()
    partitions: list[int] = array(INT32)


class ConsumerGroupHeartbeatRequest(Message, api_key=68, versions=range(2), flexible_since=0):
    group_id: str = string()
    member_id: str = string()
    member_epoch: int = int32()
    instance_id: str | None = nullable_string(default=None)
    rack_id: str | None = nullable_string(default=None)
    rebalance_timeout_ms: int = int32(default=-1)
    subscribed_topic_names: list[str] | None = nullable_array(STRING, default=None)
    subscribed_topic_regex: str | None = nullable_string(since=1, default=None)
    server_assignor: str | None = nullable_string(default=None)
    topic_partitions: list[TopicPartitions] | None = nullable_array(TopicPartitions, default=None)


class Assignment(Struct):
    topic_partitions: list[TopicPartitions] = array(TopicPartitions)


class ConsumerGroupHeartbeatResponse(Message, api_key=68, versions=range(2), flexible_since=0):
    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = nullable_string(default=None)
    member_id: str | None = nullable_string(default=None)
    member_epoch: int = int32()
    heartbeat_interval_ms: int = int32()
    assignment: Assignment | None = nullable_struct(Assignment)
