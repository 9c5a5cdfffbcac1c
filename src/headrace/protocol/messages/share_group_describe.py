"""ShareGroupDescribe (API 77): share groups with their epochs, their members and what each is assigned (KIP-932)."""

from headrace.protocol import schema as wire


class ShareGroupDescribeRequest(wire.Message, api_key=77, versions=range(1, 2), flexible_since=1):
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
    rack_id: str | None = wire.nullable_string(default=None)
    member_epoch: int = wire.int32()
    client_id: str = wire.string()
    client_host: str = wire.string()
    subscribed_topic_names: list[str] = wire.array(wire.STRING)
    assignment: Assignment = wire.struct(Assignment)


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


class ShareGroupDescribeResponse(wire.Message, api_key=77, versions=range(1, 2), flexible_since=1):
    throttle_time_ms: int = wire.int32()
    groups: list[DescribedGroup] = wire.array(DescribedGroup)
