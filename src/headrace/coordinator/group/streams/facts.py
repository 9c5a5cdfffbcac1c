"""The facts about a streams group, as records of its log: made from our nouns here, and read back to them."""

from collections.abc import Iterable, Mapping

from headrace.coordinator.decision import CoordinatorRecord
from headrace.coordinator.group.heartbeats import MemberState
from headrace.coordinator.group.streams import formats as log
from headrace.coordinator.group.streams.member import Holding, Profile
from headrace.coordinator.group.streams.tasks import Task, Tasks, by_subtopology, list_tasks, read_tasks
from headrace.protocol.messages.shared import Endpoint, KeyValue
from headrace.protocol.messages.streams_group_heartbeat import Topology

_FIRST_STATE = 1  # Kafka counts the states of these members from one, those of others from zero


def group_epoch(
    group_id: str,
    epoch: int,
    metadata_hash: int,
    validated_topology_epoch: int,
    assignment_configs: tuple[tuple[str, str], ...],
) -> CoordinatorRecord:
    value = log.StreamsGroupMetadataValue(
        epoch=epoch,
        metadata_hash=metadata_hash,
        validated_topology_epoch=validated_topology_epoch,
        last_assignment_configs=[KeyValue(key=name, value=text) for name, text in assignment_configs],
    )
    return CoordinatorRecord(log.StreamsGroupMetadataKey(group_id=group_id), value)


def group_topology(group_id: str, topology: Topology) -> CoordinatorRecord:
    value = log.StreamsGroupTopologyValue(epoch=topology.epoch, subtopologies=topology.subtopologies)
    return CoordinatorRecord(log.StreamsGroupTopologyKey(group_id=group_id), value)


def assignment_epoch(group_id: str, epoch: int, now_ms: int) -> CoordinatorRecord:
    value = log.StreamsGroupTargetAssignmentMetadataValue(assignment_epoch=epoch, assignment_timestamp=now_ms)
    return CoordinatorRecord(log.StreamsGroupTargetAssignmentMetadataKey(group_id=group_id), value)


def target_assignment(group_id: str, member_id: str, target: Tasks) -> CoordinatorRecord:
    value = log.StreamsGroupTargetAssignmentMemberValue(
        active_tasks=list_tasks(target.active),
        standby_tasks=list_tasks(target.standby),
        warmup_tasks=list_tasks(target.warmup),
    )
    return CoordinatorRecord(log.StreamsGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id), value)


def member_profile(group_id: str, member_id: str, profile: Profile) -> CoordinatorRecord:
    value = log.StreamsGroupMemberMetadataValue(
        rack_id=profile.rack_id,
        client_id=profile.client_id,
        client_host=profile.client_host,
        rebalance_timeout_ms=profile.rebalance_timeout_ms,
        topology_epoch=profile.topology_epoch,
        process_id=profile.process_id,
        user_endpoint=None
        if profile.endpoint is None
        else Endpoint(host=profile.endpoint[0], port=profile.endpoint[1]),
        client_tags=[KeyValue(key=key, value=text) for key, text in profile.client_tags],
    )
    return CoordinatorRecord(log.StreamsGroupMemberMetadataKey(group_id=group_id, member_id=member_id), value)


def member_holding(group_id: str, member_id: str, holding: Holding) -> CoordinatorRecord:
    assigned, revoking = holding.assigned, holding.revoking
    value = log.StreamsGroupCurrentMemberAssignmentValue(
        member_epoch=holding.epoch,
        previous_member_epoch=holding.previous_epoch,
        state=_FIRST_STATE + holding.state,
        active_tasks=_list_held(assigned.active, holding.since),
        standby_tasks=_list_held(assigned.standby),
        warmup_tasks=_list_held(assigned.warmup),
        active_tasks_pending_revocation=_list_held(revoking.active, holding.since),
        standby_tasks_pending_revocation=_list_held(revoking.standby),
        warmup_tasks_pending_revocation=_list_held(revoking.warmup),
    )
    return CoordinatorRecord(log.StreamsGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member_id), value)


def _list_held(tasks: Iterable[Task], since: Mapping[Task, int] | None = None) -> list[log.HeldTaskIds]:
    return [
        log.HeldTaskIds(
            subtopology_id=name,
            partitions=numbers,
            assignment_epochs=None if since is None else [since[Task(name, number)] for number in numbers],
        )
        for name, numbers in by_subtopology(tasks).items()
    ]


def no_member(group_id: str, member_id: str) -> tuple[CoordinatorRecord, ...]:
    """The member is gone; Kafka wants the tombstones in this order."""
    return (
        CoordinatorRecord(log.StreamsGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member_id), None),
        CoordinatorRecord(log.StreamsGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id), None),
        CoordinatorRecord(log.StreamsGroupMemberMetadataKey(group_id=group_id, member_id=member_id), None),
    )


def no_group(group_id: str, member_ids: Iterable[str]) -> tuple[CoordinatorRecord, ...]:
    """The group is gone, with its members; the group's own record last, for with it goes all that is known of it."""
    members = [no_member(group_id, member_id) for member_id in member_ids]
    return (
        *(record for records in zip(*members, strict=True) for record in records),
        CoordinatorRecord(log.StreamsGroupTargetAssignmentMetadataKey(group_id=group_id), None),
        CoordinatorRecord(log.StreamsGroupTopologyKey(group_id=group_id), None),
        CoordinatorRecord(log.StreamsGroupMetadataKey(group_id=group_id), None),
    )


def read_profile(value: log.StreamsGroupMemberMetadataValue) -> Profile:
    endpoint = value.user_endpoint
    return Profile(
        rack_id=value.rack_id,
        client_id=value.client_id,
        client_host=value.client_host,
        rebalance_timeout_ms=value.rebalance_timeout_ms,
        topology_epoch=value.topology_epoch,
        process_id=value.process_id,
        endpoint=None if endpoint is None else (endpoint.host, endpoint.port),
        client_tags=tuple((tag.key, tag.value) for tag in value.client_tags),
    )


def read_target(value: log.StreamsGroupTargetAssignmentMemberValue) -> Tasks:
    return Tasks(read_tasks(value.active_tasks), read_tasks(value.standby_tasks), read_tasks(value.warmup_tasks))


def read_holding(value: log.StreamsGroupCurrentMemberAssignmentValue) -> Holding:
    return Holding(
        value.member_epoch,
        value.previous_member_epoch,
        MemberState(value.state - _FIRST_STATE),
        Tasks(read_tasks(value.active_tasks), read_tasks(value.standby_tasks), read_tasks(value.warmup_tasks)),
        Tasks(
            read_tasks(value.active_tasks_pending_revocation),
            read_tasks(value.standby_tasks_pending_revocation),
            read_tasks(value.warmup_tasks_pending_revocation),
        ),
        {**_read_epochs(value.active_tasks_pending_revocation), **_read_epochs(value.active_tasks)},
    )


def _read_epochs(listed: Iterable[log.HeldTaskIds]) -> dict[Task, int]:
    """The epochs that a record tells; one that does not tell one for each task tells none."""
    return {
        Task(each.subtopology_id, number): epoch
        for each in listed
        if each.assignment_epochs is not None and len(each.assignment_epochs) == len(each.partitions)
        for number, epoch in zip(each.partitions, each.assignment_epochs, strict=True)
    }
