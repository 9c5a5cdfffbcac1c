"""Staying a member and leaving: Heartbeat, LeaveGroup, and the end of a session."""

from headrace.coordinator.group.classic import rebalance
from headrace.coordinator.group.classic.draft import Draft
from headrace.coordinator.group.classic.state import ClassicGroup, Phase, SessionTimer
from headrace.coordinator.group.events import Request
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from headrace.protocol.messages.leave_group import (
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberIdentity,
    MemberResponse,
)

_MANY_MEMBERS_SINCE = 3  # KIP-345


def heartbeat(draft: Draft, request: Request, asked: HeartbeatRequest) -> None:
    """Renew a session, and tell of a rebalance."""
    group = draft.group
    error = group.check_member(asked.member_id, asked.group_instance_id)
    if not error and asked.generation_id != group.generation:
        error = ErrorCode.ILLEGAL_GENERATION
    if not error:
        draft.renew_session(group.members[asked.member_id])
        if group.phase is Phase.PREPARING_REBALANCE:
            error = ErrorCode.REBALANCE_IN_PROGRESS
    draft.answer(request.token, HeartbeatResponse(error_code=error))


def leaving(request: Request, asked: LeaveGroupRequest) -> list[MemberIdentity]:
    """Who leaves; in old versions a member can only leave by itself."""
    if request.version < _MANY_MEMBERS_SINCE:
        return [MemberIdentity(member_id=asked.member_id)]
    return asked.members


def leave_response(request: Request, members: list[MemberResponse]) -> LeaveGroupResponse:
    """The outcome for all who leave."""
    if request.version < _MANY_MEMBERS_SINCE:
        return LeaveGroupResponse(error_code=members[0].error_code)
    return LeaveGroupResponse(members=members)


def leave(draft: Draft, request: Request, asked: LeaveGroupRequest) -> None:
    """Remove members that leave, or that an administrator removes."""
    before = draft.group.members
    outcomes = []
    for identity in leaving(request, asked):
        error, member_id = _find(draft.group, identity)
        if not error:
            draft.remove([member_id])
        outcomes.append(leave_outcome(identity, error))
    if len(draft.group.members) < len(before):
        rebalance.rebalance_or_complete(draft)
    else:  # an id that was given out is not waited for any more
        rebalance.complete_if_all_joined(draft)
    draft.answer(request.token, leave_response(request, outcomes))


def leave_outcome(identity: MemberIdentity, error: ErrorCode) -> MemberResponse:
    """The outcome for one."""
    return MemberResponse(member_id=identity.member_id, group_instance_id=identity.group_instance_id, error_code=error)


def _find(group: ClassicGroup, identity: MemberIdentity) -> tuple[ErrorCode, str]:
    if not identity.member_id:  # an administrator knows a static member by its instance id
        known = group.static_member(identity.group_instance_id)
        return (ErrorCode.UNKNOWN_MEMBER_ID, "") if known is None else (ErrorCode.NONE, known.member_id)
    if identity.member_id in group.pending_joins:
        return ErrorCode.NONE, identity.member_id
    return group.check_member(identity.member_id, identity.group_instance_id), identity.member_id


def expire_member(draft: Draft, key: SessionTimer) -> None:
    """A member, or an id that was given out, has not been heard of for its session timeout."""
    group, member_id = draft.group, key.member_id
    if member_id in group.pending_joins:
        draft.remove([member_id])
        if draft.group.phase is Phase.PREPARING_REBALANCE and draft.group.has_everybody_joined:
            rebalance.complete_join(draft)
        return
    member = group.members.get(member_id)
    if member is None or member.is_excused:
        return
    draft.remove([member_id])
    if group.phase is not Phase.PREPARING_REBALANCE:
        rebalance.prepare(draft)
    elif draft.group.has_everybody_joined:
        rebalance.complete_join(draft)
