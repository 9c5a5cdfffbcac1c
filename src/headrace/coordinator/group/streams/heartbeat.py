"""StreamsGroupHeartbeat: join, stay in and leave a streams group, in one request.

A heartbeat goes through five steps, each of which may change nothing: the member is found or made, and its profile
brought up to date; the group gets its topology; the topology is held against the topics; the group's epoch and target
assignment follow; and the member takes its next step.

As in consumer groups, and other than in Kafka, a member that joins again under its own id is taken back at once.
"""

from dataclasses import dataclass

from headrace.coordinator.decision import CoordinatorRecord
from headrace.coordinator.group.events import Request
from headrace.coordinator.group.heartbeats import (
    JOIN_EPOCH,
    LEAVE_FOR_A_WHILE_EPOCH,
    Draft,
    MemberState,
    Refusal,
    fenced,
    invalid,
)
from headrace.coordinator.group.settings import GroupSettings
from headrace.coordinator.group.streams import facts
from headrace.coordinator.group.streams.group import Passing, StreamsGroup
from headrace.coordinator.group.streams.member import Holding, Member, Profile, reconcile
from headrace.coordinator.group.streams.tasks import (
    NO_TASKS,
    Task,
    Tasks,
    Worker,
    assign_tasks,
    by_subtopology,
    list_tasks,
    read_tasks,
)
from headrace.coordinator.group.streams.topology import (
    Configured,
    StatusCode,
    check_topology,
    configure,
    normalize,
    source_topics,
)
from headrace.coordinator.group.topics import Topics
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.shared import Endpoint, TopicPartitions
from headrace.protocol.messages.streams_group_heartbeat import (
    EndpointToPartitions,
    Status,
    StreamsGroupHeartbeatRequest,
    StreamsGroupHeartbeatResponse,
)

_FIRST_EPOCH = 2  # 1 is the epoch of members that wait for the first assignment
_WAITING_EPOCH = 1


@dataclass(frozen=True, slots=True)
class StreamsSessionTimer:
    group_id: str
    member_id: str


@dataclass(frozen=True, slots=True)
class StreamsRebalanceTimer:
    """When a member is removed that was told to give up tasks, and has not said that it did."""

    group_id: str
    member_id: str


@dataclass(frozen=True, slots=True)
class StreamsDelayTimer:
    """When a group that has just begun gets its first assignment."""

    group_id: str


def check_request(asked: StreamsGroupHeartbeatRequest) -> None:
    """Refuse what makes no sense, whatever the group's state is."""
    for name, value in (("MemberId", asked.member_id), ("GroupId", asked.group_id), ("RackId", asked.rack_id)):
        if value is not None and not value.strip():
            raise invalid(f"{name} must not be empty")
    if asked.member_epoch < LEAVE_FOR_A_WHILE_EPOCH:
        raise invalid(f"MemberEpoch {asked.member_epoch} means nothing")
    if asked.instance_id is not None or asked.member_epoch == LEAVE_FOR_A_WHILE_EPOCH:
        raise invalid("static members of streams groups are unsupported: leave out group.instance.id")
    tasks = (asked.active_tasks, asked.standby_tasks, asked.warmup_tasks)
    if any(each is None for each in tasks) and any(each is not None for each in tasks):
        raise invalid("ActiveTasks, StandbyTasks and WarmupTasks must be given together, or none of them")
    if asked.member_epoch == JOIN_EPOCH:
        if asked.rebalance_timeout_ms == -1:
            raise invalid("RebalanceTimeoutMs must be given when joining")
        if tasks != ([], [], []):
            raise invalid("ActiveTasks, StandbyTasks and WarmupTasks must be empty when joining")
        if asked.topology is None:
            raise invalid("Topology must be given when joining")
        check_topology(asked.topology)
    elif asked.topology is not None:
        raise invalid("Topology must be given only when joining")


# --- leaving


def leave(draft: Draft[StreamsGroup], asked: StreamsGroupHeartbeatRequest) -> StreamsGroupHeartbeatResponse:
    member = _known_member(draft.group, asked.member_id)
    if asked.shutdown_application:
        draft.write(
            CoordinatorRecord(Passing(asked.group_id, "shutdown_requested_by"), member.member_id, is_kept=False)
        )
    remove(draft, member.member_id)
    return StreamsGroupHeartbeatResponse(member_id=asked.member_id, member_epoch=asked.member_epoch)


def remove(draft: Draft[StreamsGroup], member_id: str) -> None:
    """Remove a member, and have the others share what it had as soon as one of them is heard of."""
    group = draft.group
    draft.cancel_timers(timers_of(group.group_id, member_id))
    draft.write(*facts.no_member(group.group_id, member_id))
    epoch = facts.group_epoch(
        group.group_id,
        group.epoch + 1,
        group.metadata_hash,
        group.validated_topology_epoch,
        group.assignment_configs,
    )
    draft.write(epoch)


def timers_of(group_id: str, member_id: str) -> tuple[StreamsSessionTimer, StreamsRebalanceTimer]:
    return StreamsSessionTimer(group_id, member_id), StreamsRebalanceTimer(group_id, member_id)


# --- joining and staying


def beat(
    draft: Draft[StreamsGroup],
    request: Request,
    asked: StreamsGroupHeartbeatRequest,
    topics: Topics,
    settings: GroupSettings,
    now_ms: int,
) -> StreamsGroupHeartbeatResponse:
    """Let a member join, or hear from it that it is alive and what it has."""
    group_id, member_id = asked.group_id, asked.member_id
    owned = _read_owned(asked)
    if asked.member_epoch == JOIN_EPOCH:
        member = _joining_member(draft.group, member_id, settings.group_streams_max_size)
    else:
        member = _known_member(draft.group, member_id)
        _check_epoch(member.holding, asked.member_epoch, owned)
    was_empty = not draft.group.members
    profile = _update_profile(member.profile, request, asked)
    has_changed = member_id not in draft.group.members or profile != draft.group.members[member_id].profile
    if has_changed:
        draft.write(facts.member_profile(group_id, member_id, profile))
    _settle_topology(draft, asked)
    configured = settle_configuration(draft, topics)
    if owned is not None and configured.status is None:
        _check_tasks(owned, configured)
    _settle_epoch(draft, configured, settings, has_changed=has_changed)
    if was_empty and settings.group_streams_initial_rebalance_delay_ms > 0 and not draft.group.is_delayed:
        draft.write(CoordinatorRecord(Passing(group_id, "is_delayed"), value=True, is_kept=False))
        draft.set_timer(StreamsDelayTimer(group_id), now_ms + settings.group_streams_initial_rebalance_delay_ms)
    is_waiting = draft.group.is_delayed and draft.group.epoch > draft.group.assignment_epoch
    if not is_waiting:
        update_target(draft, configured, settings, now_ms)
    holding = _settle_holding(draft, member, owned, is_waiting=is_waiting, now_ms=now_ms)
    draft.set_timer(StreamsSessionTimer(group_id, member_id), now_ms + settings.group_streams_session_timeout_ms)
    if asked.shutdown_application:
        draft.write(CoordinatorRecord(Passing(group_id, "shutdown_requested_by"), member_id, is_kept=False))
    response = StreamsGroupHeartbeatResponse(
        member_id=member_id,
        member_epoch=holding.epoch,
        heartbeat_interval_ms=settings.group_streams_heartbeat_interval_ms,
        status=_statuses(draft.group, profile, configured, is_waiting=is_waiting),
    )
    if _must_tell_tasks(asked, member.holding, holding):
        response.active_tasks = list_tasks(holding.assigned.active)
        response.standby_tasks = list_tasks(holding.assigned.standby)
        response.warmup_tasks = list_tasks(holding.assigned.warmup)
        if profile.endpoint is not None:
            endpoint_epoch = draft.group.endpoint_epoch + 1
            draft.write(CoordinatorRecord(Passing(group_id, "endpoint_epoch"), endpoint_epoch, is_kept=False))
    response.endpoint_information_epoch = draft.group.endpoint_epoch
    if draft.group.endpoint_epoch != asked.endpoint_information_epoch:
        response.partitions_by_user_endpoint = _list_endpoints(draft.group, topics)
    return response


def _read_owned(asked: StreamsGroupHeartbeatRequest) -> Tasks | None:
    if asked.active_tasks is None:
        return None
    return Tasks(read_tasks(asked.active_tasks), read_tasks(asked.standby_tasks), read_tasks(asked.warmup_tasks))


def _known_member(group: StreamsGroup, member_id: str) -> Member:
    member = group.members.get(member_id)
    if member is None:
        raise Refusal(ErrorCode.UNKNOWN_MEMBER_ID, f"{member_id!r} is not a member of group {group.group_id!r}")
    return member


def _joining_member(group: StreamsGroup, member_id: str, max_size: int) -> Member:
    """The member that joins: a new one, or one that starts over, with nothing in its hands."""
    standing = group.members.get(member_id)
    if standing is None:
        if len(group.members) >= max_size:
            raise Refusal(ErrorCode.GROUP_MAX_SIZE_REACHED, f"the group has {max_size} members, and takes no more")
        return Member(member_id)
    had = standing.holding
    return standing._replace(holding=Holding(JOIN_EPOCH, JOIN_EPOCH, assigned=had.assigned, since=had.since))


def _check_epoch(holding: Holding, epoch: int, owned: Tasks | None) -> None:
    """Fence a member that lives in another epoch; it may be one behind if the last answer was lost."""
    if epoch == holding.epoch:
        return
    has_missed_an_answer = (
        epoch == holding.previous_epoch and owned is not None and owned.without(holding.assigned).is_empty
    )
    if not has_missed_an_answer:
        raise fenced(f"the member's epoch is {holding.epoch}, not {epoch}")


def _update_profile(profile: Profile, request: Request, asked: StreamsGroupHeartbeatRequest) -> Profile:
    """The profile with what the heartbeat says anew."""
    profile = profile._replace(client_id=request.client_id, client_host=request.client_host)
    if asked.rack_id is not None:
        profile = profile._replace(rack_id=asked.rack_id)
    if asked.rebalance_timeout_ms != -1:
        profile = profile._replace(rebalance_timeout_ms=asked.rebalance_timeout_ms)
    if asked.topology is not None:
        profile = profile._replace(topology_epoch=asked.topology.epoch)
    if asked.process_id is not None:
        profile = profile._replace(process_id=asked.process_id)
    if asked.user_endpoint is not None:
        profile = profile._replace(endpoint=(asked.user_endpoint.host, asked.user_endpoint.port))
    if asked.client_tags is not None:
        profile = profile._replace(client_tags=tuple(sorted((tag.key, tag.value) for tag in asked.client_tags)))
    return profile


def _settle_topology(draft: Draft[StreamsGroup], asked: StreamsGroupHeartbeatRequest) -> None:
    """Give a new group its topology; another one is refused, and one of an earlier epoch is stale."""
    current = draft.group.topology
    if asked.topology is None:
        if current is None:
            raise fenced("the group has no topology")
        return
    given = normalize(asked.topology)
    if current is None:
        draft.write(facts.group_topology(asked.group_id, given))
    elif given.epoch >= current.epoch and given != normalize(current):
        raise invalid(
            "the group has another topology, which cannot be changed: give the application another application.id, or "
            "stop it and delete the group"
        )


def settle_configuration(draft: Draft[StreamsGroup], topics: Topics) -> Configured:
    """The topology held against the topics, if they have changed since the last time."""
    group = draft.group
    assert group.topology is not None
    configured = group.configured
    if configured is None or configured.topics_version != topics.version:
        configured = configure(group.topology, topics)
        draft.write(CoordinatorRecord(Passing(group.group_id, "configured"), configured, is_kept=False))
    return configured


def _check_tasks(owned: Tasks, configured: Configured) -> None:
    for task in owned.each():
        if not configured.has_task(task):
            raise invalid(f"task {task.subtopology_id}_{task.partition} is not part of the topology")


def _settle_epoch(
    draft: Draft[StreamsGroup], configured: Configured, settings: GroupSettings, *, has_changed: bool
) -> None:
    """Bump the group's epoch if anything has changed that the target assignment depends on."""
    group = draft.group
    configs = (("num.standby.replicas", str(settings.group_streams_num_standby_replicas)),)
    now = (configured.fingerprint, configured.validated_epoch, configs)
    if has_changed or now != (group.metadata_hash, group.validated_topology_epoch, group.assignment_configs):
        epoch = group.epoch + 1 if group.epoch else _FIRST_EPOCH
        draft.write(facts.group_epoch(group.group_id, epoch, *now))


def update_target(draft: Draft[StreamsGroup], configured: Configured, settings: GroupSettings, now_ms: int) -> None:
    """Compute the target assignment anew if it is older than the group's epoch, and write what has changed."""
    group = draft.group
    if group.epoch <= group.assignment_epoch:
        return
    workers = {
        member_id: Worker(member.profile.process_id, group.target(member_id))
        for member_id, member in group.members.items()
    }
    replicas = settings.group_streams_num_standby_replicas
    # While topics are missing there are no tasks, and everybody gives up what it has.
    targets = assign_tasks(workers, configured.task_counts, configured.stateful, replicas)
    for member_id, target in targets.items():
        if target != group.targets.get(member_id):
            draft.write(facts.target_assignment(group.group_id, member_id, target))
    draft.write(facts.assignment_epoch(group.group_id, group.epoch, now_ms))


def _settle_holding(
    draft: Draft[StreamsGroup], member: Member, owned: Tasks | None, *, is_waiting: bool, now_ms: int
) -> Holding:
    group, member_id = draft.group, member.member_id
    target = NO_TASKS if is_waiting else group.target(member_id)
    target_epoch = max(_WAITING_EPOCH, group.assignment_epoch) if is_waiting else group.assignment_epoch
    known = group.members[member_id]
    profile, written = known.profile, known.holding
    holding = reconcile(
        member.holding,
        target,
        target_epoch,
        owned,
        lambda task, is_active: group.is_free(task, known, is_active=is_active),
    )
    if holding != written:
        draft.write(facts.member_holding(group.group_id, member_id, holding))
    key = StreamsRebalanceTimer(group.group_id, member_id)
    if holding.state is MemberState.UNREVOKED and holding != written:
        draft.set_timer(key, now_ms + profile.rebalance_timeout_ms)
    elif written.state is MemberState.UNREVOKED and holding.state is not MemberState.UNREVOKED:
        draft.cancel_timers([key])
    return holding


def _must_tell_tasks(asked: StreamsGroupHeartbeatRequest, before: Holding, now: Holding) -> bool:
    """Whether the tasks have changed, or the member has said everything, as when it is not sure of an answer."""
    is_full = asked.rebalance_timeout_ms != -1 and asked.active_tasks is not None
    return is_full or asked.member_epoch != before.epoch or now.assigned != before.assigned


def _statuses(group: StreamsGroup, profile: Profile, configured: Configured, *, is_waiting: bool) -> list[Status]:
    statuses = []
    if group.topology is not None and profile.topology_epoch < group.topology.epoch:
        detail = (
            f"The member's topology epoch {profile.topology_epoch} is behind the group's topology epoch "
            f"{group.topology.epoch}."
        )
        statuses.append(StatusCode.STALE_TOPOLOGY.told(detail))
    if is_waiting:
        detail = "Assignment delayed due to the configured initial rebalance delay."
        statuses.append(StatusCode.ASSIGNMENT_DELAYED.told(detail))
    if configured.status is not None:
        statuses.append(configured.status.replaced())  # whoever makes topics says there what came of it
    if group.shutdown_requested_by is not None:
        detail = (
            f"Streams group member {group.shutdown_requested_by} encountered a fatal error and requested a shutdown "
            "for the entire application."
        )
        statuses.append(StatusCode.SHUTDOWN_APPLICATION.told(detail))
    return statuses


def _list_endpoints(group: StreamsGroup, topics: Topics) -> list[EndpointToPartitions]:
    """Where members answer queries, and of which partitions they have the state."""
    assert group.topology is not None
    sources = {each.subtopology_id: list(source_topics(each)) for each in group.topology.subtopologies}

    def partitions(tasks: frozenset[Task]) -> list[TopicPartitions]:
        read: dict[str, set[int]] = {}
        for subtopology_id, numbers in by_subtopology(tasks).items():
            for topic in sources.get(subtopology_id, ()):
                if topic in topics.by_name:
                    count = topics.by_name[topic].partition_count
                    read.setdefault(topic, set()).update(number for number in numbers if number < count)
        return [TopicPartitions(topic=topic, partitions=sorted(numbers)) for topic, numbers in sorted(read.items())]

    return [
        EndpointToPartitions(
            user_endpoint=Endpoint(host=member.profile.endpoint[0], port=member.profile.endpoint[1]),
            active_partitions=partitions(member.holding.assigned.active),
            standby_partitions=partitions(member.holding.assigned.standby),
        )
        for _, member in sorted(group.members.items())
        if member.profile.endpoint is not None
    ]
