"""ConsumerGroupDescribe (API 69): the state and the members of consumer groups (KIP-848).

Since 1 it tells which protocol a member speaks, the classic or the new one (KIP-1099).
"""

from headrace.protocol import schema as wire


class ConsumerGroupDescribeRequest(wire.Message, api_key=69, versions=range(2), flexible_since=0):
    group_ids: list[str] = wire.array(wire.STRING)
    include_authorized_operations: bool = wire.boolean()


class TopicPartitions(wire.Struct):
    topic_id: wire.Uuid = wire.uuid()
    topic_name: str = wire.string()
    partitions: list[int] = wire.array(wire.INT32)


class Assignment(wire.Struct):
    topic_partitions: list[TopicPartitions] = wire.array(TopicPartitions)


class Member(wire.Struct):
    member_id: str = wire.string()
    instance_id: str | None = wire.nullable_string(default=None)
    rack_id: str | None = wire.nullable_string(default=None)
    member_epoch: int = wire.int32()
    client_id: str = wire.string()
    client_host: str = wire.string()
    subscribed_topic_names: list[str] = wire.array(wire.STRING)
    subscribed_topic_regex: str | None = wire.nullable_string(default=None)
    assignment: Assignment = wire.struct(Assignment)
    target_assignment: Assignment = wire.struct(Assignment)
    member_type: int = wire.int8(since=1, default=-1, ignorable=True)


class DescribedGroup(wire.Struct):
    error_code: int = wire.int16()
    error_message: str | None = wire.nullable_string(default=None)
    group_id: str = wire.string()
    group_state: str = wire.string()
    group_epoch: int = wire.int32()
    assignment_epoch: int = wire.int32()
    assignor_name: str = wire.string()
    members: list[Member] = wire.array(Member)
    authorized_operations: int = wire.int32(default=-(2**31))


class ConsumerGroupDescribeResponse(wire.Message, api_key=69, versions=range(2), flexible_since=0):
    throttle_time_ms: int = wire.int32()
    groups: list[DescribedGroup] = wire.array(DescribedGroup)
