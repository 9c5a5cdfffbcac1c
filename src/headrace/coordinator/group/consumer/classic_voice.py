"""Members of a consumer group that still speak the classic protocol: JoinGroup, SyncGroup, Heartbeat, LeaveGroup.

Nobody waits for anybody here either. JoinGroup says what the member wants and has, and is its step towards the target;
SyncGroup fetches what it may have now; a heartbeat is told REBALANCE_IN_PROGRESS whenever the member could take another
step, and the member's generation is its epoch.
"""

from dataclasses import replace

from headrace.coordinator.decision import CoordinatorRecord
from headrace.coordinator.group.classic import join as classic_join
from headrace.coordinator.group.classic import session as classic_session
from headrace.coordinator.group.consumer import membership, timers
from headrace.coordinator.group.consumer.embedded import (
    CONSUMER_PROTOCOL_TYPE,
    Subscription,
    read_subscription,
    write_assignment,
)
from headrace.coordinator.group.consumer.heartbeat import settle
from headrace.coordinator.group.consumer.member import ClassicVoice, Member, Profile
from headrace.coordinator.group.consumer.membership import difference
from headrace.coordinator.group.consumer.state import ConsumerGroup, RejoinDeadline
from headrace.coordinator.group.consumer.subscription import update_epoch
from headrace.coordinator.group.events import Request
from headrace.coordinator.group.heartbeats import Draft, MemberState, Refusal
from headrace.coordinator.group.settings import GroupSettings
from headrace.coordinator.group.topics import Topics
from headrace.protocol.errors import ErrorCode, ProtocolError
from headrace.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from headrace.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from headrace.protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity, MemberResponse
from headrace.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse

_MEMBER_ID_REQUIRED_SINCE = 4  # KIP-394
_MANY_LEAVE_SINCE = 3  # KIP-345


def join(
    draft: Draft[ConsumerGroup],
    request: Request,
    asked: JoinGroupRequest,
    topics: Topics,
    settings: GroupSettings,
    now_ms: int,
) -> JoinGroupResponse:
    if error := classic_join.check_request(asked, settings):
        raise Refusal(error, error.meaning)
    member_id = asked.member_id or request.fresh_id
    _check_protocols(draft.group, asked, member_id)
    instance_id = asked.group_instance_id
    if not asked.member_id and instance_id is None and request.version >= _MEMBER_ID_REQUIRED_SINCE:
        return JoinGroupResponse(error_code=ErrorCode.MEMBER_ID_REQUIRED, member_id=member_id)
    if asked.member_id and instance_id is not None:
        member = membership.known_member(draft.group, member_id, instance_id)
    else:
        max_size = settings.group_consumer_max_size
        member = membership.joining_member(draft, member_id, instance_id, max_size, is_classic=True)
    subscription = _subscription(asked, topics)
    profile = _profile(member.profile, request, asked, subscription)
    member = settle(draft, member, profile, subscription.owned, topics, now_ms)
    timers.renew_session(draft, member, settings, now_ms)
    timers.await_sync(draft, member, now_ms)
    _forget_rejoin(draft, member)
    return JoinGroupResponse(
        member_id=member_id,
        generation_id=member.holding.epoch,
        protocol_type=CONSUMER_PROTOCOL_TYPE,
        protocol_name=asked.protocols[0].name,
    )


def sync(
    draft: Draft[ConsumerGroup],
    request: Request,
    asked: SyncGroupRequest,
    topics: Topics,
    settings: GroupSettings,
    now_ms: int,
) -> SyncGroupResponse:
    if error := classic_session.check_sync(asked, request.version):
        raise Refusal(error, error.meaning)
    member, voice = _classic_member(draft.group, asked.member_id, asked.group_instance_id, asked.generation_id)
    name, metadata = voice.protocols[0]
    if asked.protocol_type not in (None, CONSUMER_PROTOCOL_TYPE) or asked.protocol_name not in (None, name):
        raise Refusal(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, f"the member's protocol is {name!r}")
    holding = member.holding
    if draft.group.epoch > holding.epoch and holding.state is not MemberState.UNREVOKED:
        raise Refusal(ErrorCode.REBALANCE_IN_PROGRESS, "the group has changed: join again")
    draft.cancel_timers([timers.MemberSyncTimer(draft.group.group_id, member.member_id)])
    timers.renew_session(draft, member, settings, now_ms)
    return SyncGroupResponse(
        protocol_type=asked.protocol_type,
        protocol_name=asked.protocol_name,
        assignment=write_assignment(holding.assigned, topics, read_subscription(metadata, topics).version),
    )


def heartbeat(
    draft: Draft[ConsumerGroup], asked: HeartbeatRequest, topics: Topics, settings: GroupSettings, now_ms: int
) -> HeartbeatResponse:
    """Hear that a classic member is alive, and have it join again if that would bring it a step further.

    Topics may have changed, and if all members are classic nobody else would notice: there is no leader among them.
    """
    member, _ = _classic_member(draft.group, asked.member_id, asked.group_instance_id, asked.generation_id)
    update_epoch(draft, topics, now_ms, has_changed=False)
    timers.renew_session(draft, member, settings, now_ms)
    if not _should_rejoin(draft.group, member):
        return HeartbeatResponse()
    if member.member_id not in draft.group.rejoin_deadlines:
        deadline_ms = now_ms + member.profile.rebalance_timeout_ms
        key = RejoinDeadline(draft.group.group_id, member.member_id)
        draft.write(CoordinatorRecord(key, deadline_ms, is_kept=False))
        draft.set_timer(timers.MemberRejoinTimer(draft.group.group_id, member.member_id), deadline_ms)
    return HeartbeatResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS)


def leave(
    draft: Draft[ConsumerGroup], request: Request, asked: LeaveGroupRequest, topics: Topics | None, now_ms: int
) -> LeaveGroupResponse:
    """Let classic members go; those who speak the new protocol leave by a heartbeat of their own."""
    has_many = request.version >= _MANY_LEAVE_SINCE
    identities = asked.members if has_many else [MemberIdentity(member_id=asked.member_id)]
    gone: list[str] = []
    outcomes = []
    for identity in identities:
        code = ErrorCode.NONE
        member_id = identity.member_id
        try:
            member = _leaver(draft.group, identity)
            member_id = member.member_id
            if member_id not in gone:
                gone.append(member_id)
        except Refusal as refusal:
            code = refusal.code
        outcomes.append(
            MemberResponse(member_id=member_id, group_instance_id=identity.group_instance_id, error_code=code)
        )
    if gone:
        membership.remove(draft, gone, topics, now_ms)
    return LeaveGroupResponse(members=outcomes) if has_many else LeaveGroupResponse(error_code=outcomes[0].error_code)


def _leaver(group: ConsumerGroup, identity: MemberIdentity) -> Member:
    instance_id, member_id = identity.group_instance_id, identity.member_id
    if instance_id is not None and not member_id:  # an administrator knows a static member by its instance id alone
        member_id = group.instances.get(instance_id, "")
    member = membership.known_member(group, member_id, instance_id)
    if not member.is_classic:
        raise Refusal(ErrorCode.UNKNOWN_MEMBER_ID, f"member {member_id!r} does not speak the classic protocol")
    return member


def _classic_member(
    group: ConsumerGroup, member_id: str, instance_id: str | None, generation: int
) -> tuple[Member, ClassicVoice]:
    member = membership.known_member(group, member_id, instance_id)
    voice = member.profile.classic
    if voice is None:
        raise Refusal(ErrorCode.UNKNOWN_MEMBER_ID, f"member {member_id!r} does not speak the classic protocol")
    if generation != member.holding.epoch:
        raise Refusal(ErrorCode.ILLEGAL_GENERATION, f"the member's epoch is {member.holding.epoch}, not {generation}")
    return member, voice


def _check_protocols(group: ConsumerGroup, asked: JoinGroupRequest, member_id: str) -> None:
    """Whether the member shares a protocol with all others who speak the classic one, should they be left alone."""
    common = {protocol.name for protocol in asked.protocols}
    for other in group.members.values():
        is_replaced = other.member_id == member_id or (
            asked.group_instance_id is not None and other.profile.instance_id == asked.group_instance_id
        )
        if other.profile.classic is not None and not is_replaced:
            common &= {name for name, _ in other.profile.classic.protocols}
    if asked.protocol_type != CONSUMER_PROTOCOL_TYPE or not common:
        raise Refusal(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, "the member shares no protocol with the group")


def _subscription(asked: JoinGroupRequest, topics: Topics) -> Subscription:
    try:
        return read_subscription(asked.protocols[0].metadata, topics)
    except ProtocolError:
        raise Refusal(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, "the member's subscription cannot be read") from None


def _profile(profile: Profile, request: Request, asked: JoinGroupRequest, subscription: Subscription) -> Profile:
    protocols = tuple((protocol.name, protocol.metadata) for protocol in asked.protocols)
    has_rebalance_timeout = request.version > 0
    return replace(
        profile,
        instance_id=asked.group_instance_id,
        rack_id=subscription.rack_id,
        client_id=request.client_id,
        client_host=request.client_host,
        topic_names=subscription.topic_names,
        topic_regex=None,
        rebalance_timeout_ms=asked.rebalance_timeout_ms if has_rebalance_timeout else asked.session_timeout_ms,
        assignor=None,
        classic=ClassicVoice(asked.session_timeout_ms, protocols),
    )


def _should_rejoin(group: ConsumerGroup, member: Member) -> bool:
    """Whether joining again would bring the member further: to another epoch, to give up or to get partitions."""
    holding = member.holding
    if holding.epoch < group.epoch or holding.state is MemberState.UNREVOKED:
        return True
    missing = difference(group.target(member.member_id), holding.assigned)
    return holding.state is MemberState.UNRELEASED and all(
        group.is_free(topic_id, partition, member.member_id)
        for topic_id, partitions in missing.items()
        for partition in partitions
    )


def _forget_rejoin(draft: Draft[ConsumerGroup], member: Member) -> None:
    draft.cancel_timers([timers.MemberRejoinTimer(draft.group.group_id, member.member_id)])
    if member.member_id in draft.group.rejoin_deadlines:
        draft.write(CoordinatorRecord(RejoinDeadline(draft.group.group_id, member.member_id), None, is_kept=False))
