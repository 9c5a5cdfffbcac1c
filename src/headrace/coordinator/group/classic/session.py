"""SyncGroup, Heartbeat, LeaveGroup: what members of a classic group ask once they have joined."""

from dataclasses import replace

from headrace.coordinator.group.classic import rebalance
from headrace.coordinator.group.classic.rebalance import Draft
from headrace.coordinator.group.classic.state import ClassicGroup, Phase, SessionTimer, SyncTimer
from headrace.coordinator.group.events import Request
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from headrace.protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity, MemberResponse
from headrace.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse

_PROTOCOL_REQUIRED_SINCE = 5  # KIP-559


def check_sync(asked: SyncGroupRequest, version: int) -> ErrorCode:
    if not asked.group_id:
        return ErrorCode.INVALID_GROUP_ID
    if version >= _PROTOCOL_REQUIRED_SINCE and (asked.protocol_type is None or asked.protocol_name is None):
        return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    return ErrorCode.NONE


def sync(draft: Draft, request: Request, asked: SyncGroupRequest) -> None:
    if error := _check(draft.group, asked):
        draft.answer(request.token, SyncGroupResponse(error_code=error))
        return
    member = draft.group.members[asked.member_id]
    _strike_off(draft, asked.member_id)
    if draft.group.phase is Phase.STABLE:
        draft.answer(request.token, draft.sync_response(member))
        return
    # A request that it has been waiting with is most likely lost with its connection.
    draft.answer(member.syncing, SyncGroupResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS))
    draft.update(replace(member, syncing=request.token))
    if draft.group.leader == asked.member_id:
        _assign(draft, asked)


def _check(group: ClassicGroup, asked: SyncGroupRequest) -> ErrorCode:
    if error := group.check_member(asked.member_id, asked.group_instance_id):
        return error
    if asked.generation_id != group.generation:
        return ErrorCode.ILLEGAL_GENERATION
    if _differs(asked.protocol_type, group.protocol_type) or _differs(asked.protocol_name, group.protocol):
        return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    if group.phase is Phase.PREPARING_REBALANCE:
        return ErrorCode.REBALANCE_IN_PROGRESS
    return ErrorCode.NONE


def _differs(told: str | None, known: str | None) -> bool:
    return told is not None and known is not None and told != known


def _strike_off(draft: Draft, member_id: str) -> None:
    """The member has asked for its assignment; once all have, nobody need be removed for not asking."""
    group = draft.group
    if member_id not in group.pending_syncs:
        return
    draft.group = replace(group, pending_syncs=group.pending_syncs - {member_id})
    if not draft.group.pending_syncs:
        draft.cancel_timer(SyncTimer(group.group_id, group.generation))


def _assign(draft: Draft, asked: SyncGroupRequest) -> None:
    """Store the leader's assignment, and give everybody its part once that is done."""
    assignments = {assigned.member_id: assigned.assignment for assigned in asked.assignments}
    members = {
        member_id: replace(member, assignment=assignments.get(member_id, b""))
        for member_id, member in draft.group.members.items()
    }
    draft.group = replace(draft.group, members=members).enter(Phase.STABLE, draft.now_ms)
    draft.end_syncs(ErrorCode.NONE)
    draft.is_stored = True


def expire_syncs(draft: Draft, key: SyncTimer) -> None:
    """Remove the members that have not asked for their assignment, the leader among them perhaps."""
    group = draft.group
    if group.generation != key.generation or group.phase not in (Phase.COMPLETING_REBALANCE, Phase.STABLE):
        return
    if group.pending_syncs:
        draft.remove(group.pending_syncs)
        rebalance.prepare(draft)


_MANY_MEMBERS_SINCE = 3  # KIP-345


def heartbeat(draft: Draft, request: Request, asked: HeartbeatRequest) -> None:
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
    if request.version < _MANY_MEMBERS_SINCE:
        return LeaveGroupResponse(error_code=members[0].error_code)
    return LeaveGroupResponse(members=members)


def leave(draft: Draft, request: Request, asked: LeaveGroupRequest) -> None:
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
