"""ConsumerGroupHeartbeat (API 68): join, stay in, change and leave a consumer group, all in one (KIP-848).

The member's epoch says which: 0 joins, -1 leaves, -2 leaves for a while as a static member. A field that has not
changed since the last heartbeat is null or -1. Since 1 topics may be given by a regular expression, and the client
makes its member id itself (KIP-1082).
"""

from headrace.protocol import schema as wire


class TopicPartitions(wire.Struct):
    topic_id: wire.Uuid = wire.uuid()
    partitions: list[int] = wire.array(wire.INT32)


class ConsumerGroupHeartbeatRequest(wire.Message, api_key=68, versions=range(2), flexible_since=0):
    group_id: str = wire.string()
    member_id: str = wire.string()
    member_epoch: int = wire.int32()
    instance_id: str | None = wire.nullable_string(default=None)
    rack_id: str | None = wire.nullable_string(default=None)
    rebalance_timeout_ms: int = wire.int32(default=-1)
    subscribed_topic_names: list[str] | None = wire.nullable_array(wire.STRING, default=None)
    subscribed_topic_regex: str | None = wire.nullable_string(since=1, default=None)
    server_assignor: str | None = wire.nullable_string(default=None)
    topic_partitions: list[TopicPartitions] | None = wire.nullable_array(TopicPartitions, default=None)


class Assignment(wire.Struct):
    topic_partitions: list[TopicPartitions] = wire.array(TopicPartitions)


class ConsumerGroupHeartbeatResponse(wire.Message, api_key=68, versions=range(2), flexible_since=0):
    throttle_time_ms: int = wire.int32()
    error_code: int = wire.int16()
    error_message: str | None = wire.nullable_string(default=None)
    member_id: str | None = wire.nullable_string(default=None)
    member_epoch: int = wire.int32()
    heartbeat_interval_ms: int = wire.int32()
    assignment: Assignment | None = wire.nullable_struct(Assignment)
