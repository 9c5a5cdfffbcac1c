"""StreamsGroupHeartbeat (API 88): join, stay in and leave a streams group, with its topology and its tasks (KIP-1071).

The member's epoch says which: 0 joins, -1 leaves, -2 leaves for a while as a static member. A field that has not
changed since the last heartbeat is null or -1, and so it is in the answer.
"""

from headrace.protocol import schema as wire
from headrace.protocol.messages.shared import Endpoint, KeyValue, TaskIds, TaskOffset, TopicInfo, TopicPartitions


class CopartitionGroup(wire.Struct):
    """Sources that must have the same number of partitions, by their numbers in the subtopology's lists."""

    source_topics: list[int] = wire.array(wire.INT16)
    source_topic_regex: list[int] = wire.array(wire.INT16)
    repartition_source_topics: list[int] = wire.array(wire.INT16)


class Subtopology(wire.Struct):
    subtopology_id: str = wire.string()
    source_topics: list[str] = wire.array(wire.STRING)
    source_topic_regex: list[str] = wire.array(wire.STRING)
    state_changelog_topics: list[TopicInfo] = wire.array(TopicInfo)
    repartition_sink_topics: list[str] = wire.array(wire.STRING)
    repartition_source_topics: list[TopicInfo] = wire.array(TopicInfo)
    copartition_groups: list[CopartitionGroup] = wire.array(CopartitionGroup)


class Topology(wire.Struct):
    epoch: int = wire.int32()
    subtopologies: list[Subtopology] = wire.array(Subtopology)


class StreamsGroupHeartbeatRequest(wire.Message, api_key=88, versions=range(1), flexible_since=0):
    group_id: str = wire.string()
    member_id: str = wire.string()
    member_epoch: int = wire.int32()
    endpoint_information_epoch: int = wire.int32()
    instance_id: str | None = wire.nullable_string(default=None)
    rack_id: str | None = wire.nullable_string(default=None)
    rebalance_timeout_ms: int = wire.int32(default=-1)
    topology: Topology | None = wire.nullable_struct(Topology)
    active_tasks: list[TaskIds] | None = wire.nullable_array(TaskIds, default=None)
    standby_tasks: list[TaskIds] | None = wire.nullable_array(TaskIds, default=None)
    warmup_tasks: list[TaskIds] | None = wire.nullable_array(TaskIds, default=None)
    process_id: str | None = wire.nullable_string(default=None)
    user_endpoint: Endpoint | None = wire.nullable_struct(Endpoint)
    client_tags: list[KeyValue] | None = wire.nullable_array(KeyValue, default=None)
    task_offsets: list[TaskOffset] | None = wire.nullable_array(TaskOffset, default=None)
    task_end_offsets: list[TaskOffset] | None = wire.nullable_array(TaskOffset, default=None)
    shutdown_application: bool = wire.boolean()


class Status(wire.Struct):
    """What keeps the group from its work, or its members from theirs: a code, and a sentence."""

    status_code: int = wire.int8()
    status_detail: str = wire.string()


class EndpointToPartitions(wire.Struct):
    """The partitions whose state an instance has, and where it answers queries."""

    user_endpoint: Endpoint = wire.struct(Endpoint)
    active_partitions: list[TopicPartitions] = wire.array(TopicPartitions)
    standby_partitions: list[TopicPartitions] = wire.array(TopicPartitions)


class StreamsGroupHeartbeatResponse(wire.Message, api_key=88, versions=range(1), flexible_since=0):
    throttle_time_ms: int = wire.int32()
    error_code: int = wire.int16()
    error_message: str | None = wire.nullable_string(default=None)
    member_id: str = wire.string()
    member_epoch: int = wire.int32()
    heartbeat_interval_ms: int = wire.int32()
    acceptable_recovery_lag: int = wire.int32()
    task_offset_interval_ms: int = wire.int32()
    status: list[Status] | None = wire.nullable_array(Status)
    active_tasks: list[TaskIds] | None = wire.nullable_array(TaskIds, default=None)
    standby_tasks: list[TaskIds] | None = wire.nullable_array(TaskIds, default=None)
    warmup_tasks: list[TaskIds] | None = wire.nullable_array(TaskIds, default=None)
    endpoint_information_epoch: int = wire.int32()
    partitions_by_user_endpoint: list[EndpointToPartitions] | None = wire.nullable_array(
        EndpointToPartitions, default=None
    )
