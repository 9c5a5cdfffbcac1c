"""The second half of a rebalance: the leader hands in the assignment, and everybody gets its part of it."""

from dataclasses import replace

from headrace.coordinator.group.classic import rebalance
from headrace.coordinator.group.classic.draft import Draft
from headrace.coordinator.group.classic.state import ClassicGroup, Phase, SyncTimer
from headrace.coordinator.group.events import Request
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse

_PROTOCOL_REQUIRED_SINCE = 5  # KIP-559


def check_request(asked: SyncGroupRequest, version: int) -> ErrorCode:
    """What is wrong with a request, whatever the group."""
    if not asked.group_id:
        return ErrorCode.INVALID_GROUP_ID
    if version >= _PROTOCOL_REQUIRED_SINCE and (asked.protocol_type is None or asked.protocol_name is None):
        return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    return ErrorCode.NONE


def sync(draft: Draft, request: Request, asked: SyncGroupRequest) -> None:
    """Give a member its assignment, or have it wait for it."""
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
