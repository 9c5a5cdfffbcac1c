"""The records of streams groups in `__consumer_offsets`, as Kafka declares them.

A group has a record for its epoch, its topology and its target assignment's epoch, and each member one for what it is,
what it is to have, and what it has.
"""

from headrace.protocol import schema as wire
from headrace.protocol.messages.shared import Endpoint, KeyValue, TaskIds
from headrace.protocol.messages.streams_group_heartbeat import Subtopology


class StreamsGroupMetadataKey(wire.Message, versions=range(1)):
    group_id: str = wire.string()


class StreamsGroupMetadataValue(wire.Message, versions=range(1), flexible_since=0):
    """The group's epoch, with a hash of its topics, the topology that they fit, and what it was assigned by."""

    epoch: int = wire.int32()
    metadata_hash: int = wire.int64()
    validated_topology_epoch: int = wire.int32(tag=0, default=-1)
    last_assignment_configs: list[KeyValue] | None = wire.nullable_array(KeyValue, tag=1)


class StreamsGroupTopologyKey(wire.Message, versions=range(1)):
    group_id: str = wire.string()


class StreamsGroupTopologyValue(wire.Message, versions=range(1), flexible_since=0):
    epoch: int = wire.int32()
    subtopologies: list[Subtopology] = wire.array(Subtopology)


class StreamsGroupMemberMetadataKey(wire.Message, versions=range(1)):
    group_id: str = wire.string()
    member_id: str = wire.string()


class StreamsGroupMemberMetadataValue(wire.Message, versions=range(1), flexible_since=0):
    instance_id: str | None = wire.nullable_string()
    rack_id: str | None = wire.nullable_string()
    client_id: str = wire.string()
    client_host: str = wire.string()
    rebalance_timeout_ms: int = wire.int32(default=-1)
    topology_epoch: int = wire.int32()
    process_id: str = wire.string()
    user_endpoint: Endpoint | None = wire.nullable_struct(Endpoint)
    client_tags: list[KeyValue] = wire.array(KeyValue)


class StreamsGroupTargetAssignmentMetadataKey(wire.Message, versions=range(1)):
    group_id: str = wire.string()


class StreamsGroupTargetAssignmentMetadataValue(wire.Message, versions=range(1), flexible_since=0):
    """The group's epoch for which the target assignment was computed, and when."""

    assignment_epoch: int = wire.int32()
    assignment_timestamp: int = wire.int64(tag=0, ignorable=True)


class StreamsGroupTargetAssignmentMemberKey(wire.Message, versions=range(1)):
    group_id: str = wire.string()
    member_id: str = wire.string()


class StreamsGroupTargetAssignmentMemberValue(wire.Message, versions=range(1), flexible_since=0):
    """What the member is to have once everybody has given up what it has to."""

    active_tasks: list[TaskIds] = wire.array(TaskIds)
    standby_tasks: list[TaskIds] = wire.array(TaskIds)
    warmup_tasks: list[TaskIds] = wire.array(TaskIds)


class StreamsGroupCurrentMemberAssignmentKey(wire.Message, versions=range(1)):
    group_id: str = wire.string()
    member_id: str = wire.string()


class HeldTaskIds(wire.Struct):
    """Tasks of a subtopology; of active ones, since which of the member's epochs it has each."""

    subtopology_id: str = wire.string()
    partitions: list[int] = wire.array(wire.INT32)
    assignment_epochs: list[int] | None = wire.nullable_array(wire.INT32, tag=0)


class StreamsGroupCurrentMemberAssignmentValue(wire.Message, versions=range(1), flexible_since=0):
    """What the member has, and what it is giving up."""

    member_epoch: int = wire.int32()
    previous_member_epoch: int = wire.int32()
    state: int = wire.int8()
    active_tasks: list[HeldTaskIds] = wire.array(HeldTaskIds)
    standby_tasks: list[HeldTaskIds] = wire.array(HeldTaskIds)
    warmup_tasks: list[HeldTaskIds] = wire.array(HeldTaskIds)
    active_tasks_pending_revocation: list[HeldTaskIds] = wire.array(HeldTaskIds)
    standby_tasks_pending_revocation: list[HeldTaskIds] = wire.array(HeldTaskIds)
    warmup_tasks_pending_revocation: list[HeldTaskIds] = wire.array(HeldTaskIds)
