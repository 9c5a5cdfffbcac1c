"""ConsumerGroupHeartbeat: join, stay in, change and leave a group, in one request.

A heartbeat goes through four steps, each of which may change nothing: the member is found, made or replaced; its
profile is brought up to date; the group's epoch and target assignment follow; and the member takes its next step.
"""

from dataclasses import replace

from headrace.coordinator.group.assignors import ASSIGNORS, Assignment
from headrace.coordinator.group.consumer import facts, membership, timers
from headrace.coordinator.group.consumer.member import Member, Profile
from headrace.coordinator.group.consumer.membership import reconcile
from headrace.coordinator.group.consumer.state import ConsumerGroup
from headrace.coordinator.group.consumer.subscription import check_expression, update_epoch, update_target
from headrace.coordinator.group.events import Request
from headrace.coordinator.group.heartbeats import (
    JOIN_EPOCH,
    LEAVE_EPOCH,
    LEAVE_FOR_A_WHILE_EPOCH,
    Draft,
    MemberState,
    Refusal,
    invalid,
)
from headrace.coordinator.group.settings import GroupSettings
from headrace.coordinator.group.topics import Topics
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.consumer_group_heartbeat import Assignment as AnsweredAssignment
from headrace.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)

_CLIENT_GENERATED_IDS_SINCE = 1  # KIP-1082


def check_request(asked: ConsumerGroupHeartbeatRequest, version: int) -> None:
    """Refuse what makes no sense, whatever the group's state is."""
    for name, value in (("GroupId", asked.group_id), ("InstanceId", asked.instance_id), ("RackId", asked.rack_id)):
        if value is not None and not value.strip():
            raise invalid(f"{name} must not be empty")
    is_joining = asked.member_epoch == JOIN_EPOCH
    if not asked.member_id.strip() and (version >= _CLIENT_GENERATED_IDS_SINCE or not is_joining):
        raise invalid("MemberId must not be empty")
    if asked.member_epoch < LEAVE_FOR_A_WHILE_EPOCH:
        raise invalid(f"MemberEpoch {asked.member_epoch} means nothing")
    if asked.member_epoch == LEAVE_FOR_A_WHILE_EPOCH and asked.instance_id is None:
        raise invalid("only a static member leaves with epoch -2: InstanceId must be given")
    if is_joining:
        if asked.rebalance_timeout_ms == -1:
            raise invalid("RebalanceTimeoutMs must be given when joining")
        if asked.topic_partitions is None or asked.topic_partitions:
            raise invalid("TopicPartitions must be empty when joining")
        # A member without topics is a member all the same, but it has to say so.
        if asked.subscribed_topic_names is None and asked.subscribed_topic_regex is None:
            raise invalid("SubscribedTopicNames or SubscribedTopicRegex must be given when joining")
    if asked.server_assignor is not None and asked.server_assignor not in ASSIGNORS:
        raise Refusal(
            ErrorCode.UNSUPPORTED_ASSIGNOR,
            f"ServerAssignor {asked.server_assignor!r} is not known: choose one of {', '.join(ASSIGNORS)}",
        )
    check_expression(asked.subscribed_topic_regex)


def leave(
    draft: Draft[ConsumerGroup], asked: ConsumerGroupHeartbeatRequest, topics: Topics, now_ms: int
) -> ConsumerGroupHeartbeatResponse:
    """Let a member go: for good, or as a static one for a while."""
    member = membership.known_member(draft.group, asked.member_id, asked.instance_id)
    if asked.member_epoch == LEAVE_EPOCH or asked.instance_id is None:
        membership.remove(draft, [member.member_id], topics, now_ms)
    else:
        membership.leave_for_a_while(draft, member)
    return ConsumerGroupHeartbeatResponse(member_id=asked.member_id, member_epoch=asked.member_epoch)


def beat(
    draft: Draft[ConsumerGroup],
    request: Request,
    asked: ConsumerGroupHeartbeatRequest,
    topics: Topics,
    settings: GroupSettings,
    now_ms: int,
) -> ConsumerGroupHeartbeatResponse:
    """Let a member join, or hear from it that it is alive, what it wants and what it has."""
    owned = None if asked.topic_partitions is None else facts.read_partitions(asked.topic_partitions)
    if asked.member_epoch == JOIN_EPOCH:
        member_id = asked.member_id or request.fresh_id
        member = membership.joining_member(draft, member_id, asked.instance_id, settings.group_consumer_max_size)
    else:
        member = membership.known_member(draft.group, asked.member_id, asked.instance_id)
        membership.check_epoch(member, asked.member_epoch, owned)
    had = member.holding.assigned
    member = settle(draft, member, _update_profile(member.profile, request, asked), owned, topics, now_ms)
    timers.renew_session(draft, member, settings, now_ms)
    response = ConsumerGroupHeartbeatResponse(
        member_id=member.member_id,
        member_epoch=member.holding.epoch,
        heartbeat_interval_ms=settings.group_consumer_heartbeat_interval_ms,
    )
    if _is_full(asked) or member.holding.assigned != had:
        response.assignment = _to_answer(member.holding.assigned)
    return response


def settle(
    draft: Draft[ConsumerGroup], member: Member, profile: Profile, owned: Assignment | None, topics: Topics, now_ms: int
) -> Member:
    """Bring the member's profile, the group's epoch and target, and the member's holding up to date, in this order."""
    group_id, member_id = draft.group.group_id, member.member_id
    is_new = member_id not in draft.group.members
    if is_new or profile != draft.group.members[member_id].profile:
        draft.write(facts.member_profile(group_id, member_id, profile))
    has_changed = is_new or profile.subscription != member.profile.subscription
    update_epoch(draft, topics, now_ms, has_changed=has_changed)
    update_target(draft, topics, now_ms)
    group = draft.group
    holding = reconcile(
        member.holding,
        group.target(member_id),
        group.assignment_epoch,
        owned,
        lambda topic_id, partition: group.is_free(topic_id, partition, member_id),
    )
    written = group.members[member_id].holding
    if holding != written:
        draft.write(facts.member_holding(group_id, member_id, holding))
        is_about_revocation = MemberState.UNREVOKED in (written.state, holding.state)
        if is_about_revocation and profile.classic is None:
            timers.watch_revocation(draft, draft.group.members[member_id], now_ms)
    return draft.group.members[member_id]


def _update_profile(profile: Profile, request: Request, asked: ConsumerGroupHeartbeatRequest) -> Profile:
    """The profile with what the heartbeat says anew; whoever sends one speaks the new protocol from then on."""
    updated = replace(profile, client_id=request.client_id, client_host=request.client_host, classic=None)
    if asked.instance_id is not None:
        updated = replace(updated, instance_id=asked.instance_id)
    if asked.rack_id is not None:
        updated = replace(updated, rack_id=asked.rack_id)
    if asked.rebalance_timeout_ms != -1:
        updated = replace(updated, rebalance_timeout_ms=asked.rebalance_timeout_ms)
    if asked.server_assignor is not None:
        updated = replace(updated, assignor=asked.server_assignor)
    if asked.subscribed_topic_names is not None:
        updated = replace(updated, topic_names=frozenset(asked.subscribed_topic_names))
    if asked.subscribed_topic_regex is not None:
        updated = replace(updated, topic_regex=asked.subscribed_topic_regex or None)
    return updated


def _is_full(asked: ConsumerGroupHeartbeatRequest) -> bool:
    """Whether the member has said everything, as it does when it joins or is not sure that it was heard."""
    has_subscription = asked.subscribed_topic_names is not None or asked.subscribed_topic_regex is not None
    has_all = asked.rebalance_timeout_ms != -1 and has_subscription and asked.topic_partitions is not None
    return asked.member_epoch == JOIN_EPOCH or has_all


def _to_answer(assignment: Assignment) -> AnsweredAssignment:
    return AnsweredAssignment(
        topic_partitions=[
            TopicPartitions(topic_id=topic_id, partitions=sorted(assignment[topic_id]))
            for topic_id in sorted(assignment)
        ]
    )
