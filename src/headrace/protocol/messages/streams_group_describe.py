"""StreamsGroupDescribe (API 89): the state, the topology and the members of streams groups (KIP-1071)."""

from headrace.protocol import schema as wire
from headrace.protocol.messages.shared import Endpoint, KeyValue, TaskIds, TaskOffset, TopicInfo


class StreamsGroupDescribeRequest(wire.Message, api_key=89, versions=range(1), flexible_since=0):
    group_ids: list[str] = wire.array(wire.STRING)
    include_authorized_operations: bool = wire.boolean()


class Subtopology(wire.Struct):
    """A subtopology as it is configured: topics that are made for it with their numbers of partitions."""

    subtopology_id: str = wire.string()
    source_topics: list[str] = wire.array(wire.STRING)
    repartition_sink_topics: list[str] = wire.array(wire.STRING)
    state_changelog_topics: list[TopicInfo] = wire.array(TopicInfo)
    repartition_source_topics: list[TopicInfo] = wire.array(TopicInfo)


class Topology(wire.Struct):
    epoch: int = wire.int32()
    subtopologies: list[Subtopology] | None = wire.nullable_array(Subtopology, default=None)


class Assignment(wire.Struct):
    active_tasks: list[TaskIds] = wire.array(TaskIds)
    standby_tasks: list[TaskIds] = wire.array(TaskIds)
    warmup_tasks: list[TaskIds] = wire.array(TaskIds)


class Member(wire.Struct):
    member_id: str = wire.string()
    member_epoch: int = wire.int32()
    instance_id: str | None = wire.nullable_string(default=None)
    rack_id: str | None = wire.nullable_string(default=None)
    client_id: str = wire.string()
    client_host: str = wire.string()
    topology_epoch: int = wire.int32()
    process_id: str = wire.string()
    user_endpoint: Endpoint | None = wire.nullable_struct(Endpoint)
    client_tags: list[KeyValue] = wire.array(KeyValue)
    task_offsets: list[TaskOffset] = wire.array(TaskOffset)
    task_end_offsets: list[TaskOffset] = wire.array(TaskOffset)
    assignment: Assignment = wire.struct(Assignment)
    target_assignment: Assignment = wire.struct(Assignment)
    is_classic: bool = wire.boolean()


class DescribedGroup(wire.Struct):
    error_code: int = wire.int16()
    error_message: str | None = wire.nullable_string(default=None)
    group_id: str = wire.string()
    group_state: str = wire.string()
    group_epoch: int = wire.int32()
    assignment_epoch: int = wire.int32()
    topology: Topology | None = wire.nullable_struct(Topology)
    members: list[Member] = wire.array(Member)
    authorized_operations: int = wire.int32(default=-(2**31))


class StreamsGroupDescribeResponse(wire.Message, api_key=89, versions=range(1), flexible_since=0):
    throttle_time_ms: int = wire.int32()
    groups: list[DescribedGroup] = wire.array(DescribedGroup)
