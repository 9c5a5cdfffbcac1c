"""ConsumerGroupDescribe (API 69): the state and the members of consumer groups (KIP-848).

Since 1 it tells which protocol a member speaks, the classic or the new one (KIP-1099).
"""

from headrace.protocol.schema import (
    INT32,
    STRING,
    Message,
    Struct,
    Uuid,
    array,
    boolean,
    int8,
    int16,
    int32,
    nullable_string,
    string,
    struct,
    uuid,
)


class ConsumerGroupDescribeRequest(Message, api_key=69, versions=range(2), flexible_since=0):
    group_ids: list[str] = array(STRING)
    include_authorized_operations: bool = boolean()


class TopicPartitions(Struct):
    topic_id: Uuid = uuid()
    topic_name: str = string()
    partitions: list[int] = array(INT32)


class Assignment(Struct):
    topic_partitions: list[TopicPartitions] = array(TopicPartitions)


class Member(Struct):
    member_id: str = string()
    instance_id: str | None = nullable_string(default=None)
    rack_id: str | None = nullable_string(default=None)
    member_epoch: int = int32()
    client_id: str = string()
    client_host: str = string()
    subscribed_topic_names: list[str] = array(STRING)
    subscribed_topic_regex: str | None = nullable_string(default=None)
    assignment: Assignment = struct(Assignment)
    target_assignment: Assignment = struct(Assignment)
    member_type: int = int8(since=1, default=-1, ignorable=True)


class DescribedGroup(Struct):
    error_code: int = int16()
    error_message: str | None = nullable_string(default=None)
    group_id: str = string()
    group_state: str = string()
    group_epoch: int = int32()
    assignment_epoch: int = int32()
    assignor_name: str = string()
    members: list[Member] = array(Member)
    authorized_operations: int = int32(default=-(2**31))


class ConsumerGroupDescribeResponse(Message, api_key=69, versions=range(2), flexible_since=0):
    throttle_time_ms: int = int32()
    groups: list[DescribedGroup] = array(DescribedGroup)
