"""JoinGroup: who is let in, as whom, and what that starts."""

from dataclasses import replace

from headrace.coordinator.group.classic import rebalance
from headrace.coordinator.group.classic.rebalance import Draft
from headrace.coordinator.group.classic.state import ClassicGroup, Member, Phase, SessionTimer, Supported
from headrace.coordinator.group.events import Request
from headrace.coordinator.group.settings import GroupSettings
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse

NEW_MEMBER_TIMEOUT_MS = 5 * 60 * 1000  # Kafka's; it cannot be set

_MEMBER_ID_REQUIRED_SINCE = 4  # KIP-394
_NULLABLE_PROTOCOL_NAME_SINCE = 7
_SKIP_ASSIGNMENT_SINCE = 9  # KIP-814


def refusal(asked: JoinGroupRequest, error: ErrorCode, member_id: str | None = None) -> JoinGroupResponse:
    """An answer that lets nobody in."""
    return JoinGroupResponse(error_code=error, member_id=asked.member_id if member_id is None else member_id)


def check_request(asked: JoinGroupRequest, settings: GroupSettings) -> ErrorCode:
    if not asked.group_id:
        return ErrorCode.INVALID_GROUP_ID
    shortest, longest = settings.group_min_session_timeout_ms, settings.group_max_session_timeout_ms
    if not shortest <= asked.session_timeout_ms <= longest:
        return ErrorCode.INVALID_SESSION_TIMEOUT
    return ErrorCode.NONE


def join(draft: Draft, request: Request, asked: JoinGroupRequest) -> None:
    group = draft.group
    if not _has_room(group, asked.member_id, draft.settings.group_max_size):
        if asked.member_id:
            draft.remove([asked.member_id])
        draft.answer(request.token, refusal(asked, ErrorCode.GROUP_MAX_SIZE_REACHED, ""))
    elif not group.supports(asked.protocol_type, {protocol.name for protocol in asked.protocols}):
        draft.answer(request.token, refusal(asked, ErrorCode.INCONSISTENT_GROUP_PROTOCOL))
    elif not asked.member_id:
        _join_as_new(draft, request, asked)
    elif asked.member_id in group.pending_joins:
        if asked.group_instance_id is not None:  # ids are given out to dynamic members alone
            draft.answer(request.token, refusal(asked, ErrorCode.UNKNOWN_SERVER_ERROR))
        else:
            _add(draft, request, asked, asked.member_id)
    elif error := group.check_member(asked.member_id, asked.group_instance_id):
        response = refusal(asked, error)
        response.protocol_name = None if request.version >= _NULLABLE_PROTOCOL_NAME_SINCE else ""
        draft.answer(request.token, response)
    else:
        _join_again(draft, request, asked, group.members[asked.member_id])


def _has_room(group: ClassicGroup, member_id: str, max_size: int) -> bool:
    """Whether there is room for this one.

    While members join, those count who have, so that a group that has become too large loses the last to come back.
    """
    member = group.members.get(member_id)
    if group.phase is Phase.EMPTY:
        return True
    if group.phase is Phase.PREPARING_REBALANCE:
        joined = sum(other.joining is not None for other in group.members.values())
        return (member is not None and member.joining is not None) or joined < max_size
    return member is not None or len(group.members) < max_size


def _join_as_new(draft: Draft, request: Request, asked: JoinGroupRequest) -> None:
    group, instance_id = draft.group, asked.group_instance_id
    new_id = f"{request.client_id if instance_id is None else instance_id}-{request.fresh_id}"
    former = group.static_member(instance_id)
    if former is not None:
        _replace_static(draft, request, asked, former, new_id)
    elif instance_id is None and request.version >= _MEMBER_ID_REQUIRED_SINCE:
        # Whoever does not come back with the id was never a member, and holds nobody up for long (KIP-394).
        draft.group = replace(group, pending_joins=group.pending_joins | {new_id})
        draft.set_timer(SessionTimer(group.group_id, new_id), asked.session_timeout_ms)
        draft.answer(request.token, refusal(asked, ErrorCode.MEMBER_ID_REQUIRED, new_id))
    else:
        _add(draft, request, asked, new_id)


def _add(draft: Draft, request: Request, asked: JoinGroupRequest, member_id: str) -> None:
    member = Member(
        member_id=member_id,
        instance_id=asked.group_instance_id,
        client_id=request.client_id,
        client_host=request.client_host,
        rebalance_timeout_ms=_rebalance_timeout_ms(request, asked),
        session_timeout_ms=asked.session_timeout_ms,
        protocols=_protocols(asked),
        joining=request.token,
        is_new=True,
    )
    group = draft.group
    if not group.members:
        group = replace(group, protocol_type=asked.protocol_type)
    if group.phase is Phase.PREPARING_REBALANCE and group.is_initial:
        group = replace(group, has_newcomer=True)
    draft.group = group.with_member(member)
    # It cannot send heartbeats before it has been in a generation. If its client is gone it would stay for ever, so it
    # has to ask again after a while.
    draft.set_timer(SessionTimer(group.group_id, member_id), NEW_MEMBER_TIMEOUT_MS)
    rebalance.rebalance_or_complete(draft)


def _join_again(draft: Draft, request: Request, asked: JoinGroupRequest, member: Member) -> None:
    group = draft.group
    has_changed = member.protocols != _protocols(asked)
    if group.phase is Phase.COMPLETING_REBALANCE and not has_changed:
        # It may have missed the answer: it gets it again.
        draft.answer(request.token, rebalance.join_response(draft, member))
    elif group.phase is Phase.STABLE and not has_changed and group.leader != member.member_id:
        draft.answer(request.token, rebalance.join_response(draft, member))
    else:
        # A leader that joins a stable group wants a rebalance: it has seen the topics change, perhaps.
        draft.update(_rejoin(draft, request, asked, member))
        rebalance.rebalance_or_complete(draft)


def _rejoin(draft: Draft, request: Request, asked: JoinGroupRequest, member: Member) -> Member:
    if member.joining is not None:
        # Its client has asked again, most likely on another connection: the first request need not wait any longer.
        draft.answer(member.joining, refusal(asked, ErrorCode.REBALANCE_IN_PROGRESS, member.member_id))
    return replace(
        member,
        rebalance_timeout_ms=_rebalance_timeout_ms(request, asked),
        session_timeout_ms=asked.session_timeout_ms,
        protocols=_protocols(asked),
        joining=request.token,
    )


def _replace_static(draft: Draft, request: Request, asked: JoinGroupRequest, former: Member, new_id: str) -> None:
    """A static member has come back under a new id; whoever used the former one is fenced (KIP-345)."""
    draft.release(former, ErrorCode.FENCED_INSTANCE_ID, former.member_id)
    draft.cancel_timer(SessionTimer(draft.group.group_id, former.member_id))
    member = replace(former, member_id=new_id, joining=None, syncing=None, is_new=False)
    member = _rejoin(draft, request, asked, member)
    former_leader = draft.group.leader
    draft.group = _replace_member(draft.group, former.member_id, member)
    draft.renew_session(member)
    if draft.group.phase is Phase.COMPLETING_REBALANCE:
        # The leader may be assigning to the former id just now.
        rebalance.prepare(draft)
    elif draft.group.phase is Phase.STABLE and draft.group.selected_protocol() == draft.group.protocol:
        _welcome_back(draft, request, member, former_leader)
    else:
        rebalance.rebalance_or_complete(draft)


def _welcome_back(draft: Draft, request: Request, member: Member, former_leader: str | None) -> None:
    """Give a static member its place again, without a rebalance."""
    draft.is_stored = True
    is_leader = draft.group.leader == member.member_id
    if request.version >= _SKIP_ASSIGNMENT_SINCE:
        response = rebalance.join_response(draft, member, skip=is_leader)
    else:
        # A leader would assign again. It is told of its former self as the leader, and believes to be a follower.
        response = rebalance.join_response(draft, member, leader=former_leader)
    draft.answer(request.token, response)
    draft.update(replace(member, joining=None))


def _replace_member(group: ClassicGroup, former_id: str, member: Member) -> ClassicGroup:
    members = {known: other for known, other in group.members.items() if known != former_id}
    members[member.member_id] = member
    return replace(
        group,
        members=members,
        leader=member.member_id if group.leader == former_id else group.leader,
        pending_syncs=frozenset(member.member_id if known == former_id else known for known in group.pending_syncs),
    )


def _protocols(asked: JoinGroupRequest) -> tuple[Supported, ...]:
    return tuple(Supported(protocol.name, protocol.metadata) for protocol in asked.protocols)


def _rebalance_timeout_ms(request: Request, asked: JoinGroupRequest) -> int:
    return asked.session_timeout_ms if request.version == 0 else asked.rebalance_timeout_ms
