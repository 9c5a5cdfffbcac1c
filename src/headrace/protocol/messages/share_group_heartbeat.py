"""ShareGroupHeartbeat (API 76): join, stay in, change and leave a share group, all in one (KIP-932).

The member's epoch says which: 0 joins, -1 leaves. The client makes its member id itself. What has not changed since
the last heartbeat is null. Version 0 was Kafka 4.0's early access, and is gone.
"""

from headrace.protocol import schema as wire


class ShareGroupHeartbeatRequest(wire.Message, api_key=76, versions=range(1, 2), flexible_since=1):
    group_id: str = wire.string()
    member_id: str = wire.string()
    member_epoch: int = wire.int32()
    rack_id: str | None = wire.nullable_string(default=None)
    subscribed_topic_names: list[str] | None = wire.nullable_array(wire.STRING, default=None)


class TopicPartitions(wire.Struct):
    topic_id: wire.Uuid = wire.uuid()
    partitions: list[int] = wire.array(wire.INT32)


class Assignment(wire.Struct):
    topic_partitions: list[TopicPartitions] = wire.array(TopicPartitions)


class ShareGroupHeartbeatResponse(wire.Message, api_key=76, versions=range(1, 2), flexible_since=1):
    throttle_time_ms: int = wire.int32()
    error_code: int = wire.int16()
    error_message: str | None = wire.nullable_string(default=None)
    member_id: str | None = wire.nullable_string(default=None)
    member_epoch: int = wire.int32()
    heartbeat_interval_ms: int = wire.int32()
    assignment: Assignment | None = wire.nullable_struct(Assignment)
