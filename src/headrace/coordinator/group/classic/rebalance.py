"""The first half of a rebalance: members join until all are there or time is up, and then are a new generation."""

from dataclasses import replace

from headrace.coordinator.group.classic.draft import Draft
from headrace.coordinator.group.classic.state import JoinTimer, Member, Phase, SyncTimer
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.join_group import JoinGroupResponse, JoinGroupResponseMember


def rebalance_or_complete(draft: Draft) -> None:
    """Somebody has come, gone or changed: start a rebalance, or see whether that ends the one that is going on."""
    if draft.group.phase is Phase.PREPARING_REBALANCE:
        complete_if_all_joined(draft)
    else:
        prepare(draft)


def complete_if_all_joined(draft: Draft) -> None:
    """End the joining early if there is nobody left to wait for; a first rebalance takes its time all the same."""
    group = draft.group
    if group.phase is Phase.PREPARING_REBALANCE and not group.is_initial and group.has_everybody_joined:
        complete_join(draft)


def prepare(draft: Draft) -> None:
    """Start a rebalance: all members have to join again."""
    if draft.group.phase is Phase.COMPLETING_REBALANCE:
        members = {member_id: replace(member, assignment=b"") for member_id, member in draft.group.members.items()}
        draft.group = replace(draft.group, members=members)
        draft.end_syncs(ErrorCode.REBALANCE_IN_PROGRESS)
    if draft.group.pending_syncs:
        draft.cancel_timer(SyncTimer(draft.group.group_id, draft.group.generation))
    is_initial = draft.group.phase is Phase.EMPTY
    draft.group = replace(
        draft.group.enter(Phase.PREPARING_REBALANCE, draft.now_ms), pending_syncs=frozenset(), is_initial=is_initial
    )
    if is_initial:
        delay_ms = draft.settings.group_initial_rebalance_delay_ms
        remaining_ms = max(draft.group.rebalance_timeout_ms - delay_ms, 0)
        _wait_for_more(draft, delay_ms, remaining_ms)
    elif draft.group.has_everybody_joined:
        complete_join(draft)
    else:
        draft.set_timer(JoinTimer(draft.group.group_id), draft.group.rebalance_timeout_ms)


def _wait_for_more(draft: Draft, delay_ms: int, remaining_ms: int) -> None:
    draft.group = replace(draft.group, has_newcomer=False, delay_ms=delay_ms, remaining_ms=remaining_ms)
    draft.set_timer(JoinTimer(draft.group.group_id), delay_ms)


def end_waiting(draft: Draft) -> None:
    """The time to join is up; in a first rebalance it is prolonged as long as members come (KIP-134)."""
    group = draft.group
    if group.phase is not Phase.PREPARING_REBALANCE:
        return
    if group.is_initial and group.has_newcomer and group.remaining_ms:
        delay_ms = min(draft.settings.group_initial_rebalance_delay_ms, group.remaining_ms)
        _wait_for_more(draft, delay_ms, max(group.remaining_ms - group.delay_ms, 0))
    else:
        complete_join(draft)


def complete_join(draft: Draft) -> None:
    """Make a generation of those who have joined.

    Members that have not are removed, but for static ones: those may be away for their whole session.
    """
    group_id = draft.group.group_id
    draft.cancel_timer(JoinTimer(group_id))
    draft.remove(
        [
            member.member_id
            for member in draft.group.members.values()
            if member.joining is None and member.instance_id is None
        ]
    )
    if draft.group.members and not _elect_leader(draft):
        # Only static members that are away are left: wait until they come back, or their sessions end.
        draft.set_timer(JoinTimer(group_id), draft.group.rebalance_timeout_ms)
        return
    draft.group = draft.group.next_generation(draft.now_ms)
    if not draft.group.members:
        draft.is_stored = True
        return
    members = {}
    for member in draft.group.members.values():
        draft.answer(member.joining, join_response(draft, member))
        draft.renew_session(member)
        members[member.member_id] = replace(member, joining=None, is_new=False)
    draft.group = replace(draft.group, members=members)
    draft.set_timer(SyncTimer(group_id, draft.group.generation), draft.group.rebalance_timeout_ms)


def _elect_leader(draft: Draft) -> bool:
    """Make sure that the leader is somebody who has joined; False if nobody has."""
    members = draft.group.members
    joined = [member.member_id for member in members.values() if member.joining is not None]
    if not joined:
        return False
    if draft.group.leader not in joined:
        draft.group = replace(draft.group, leader=joined[0])
    return True


def join_response(draft: Draft, member: Member, *, leader: str | None = None, skip: bool = False) -> JoinGroupResponse:
    """The generation as a member learns of it; the leader learns of all members, too."""
    group = draft.group
    leader = leader or group.leader or ""
    members = group.members.values() if leader == member.member_id else ()
    return JoinGroupResponse(
        generation_id=group.generation,
        protocol_type=group.protocol_type,
        protocol_name=group.protocol,
        leader=leader,
        skip_assignment=skip,
        member_id=member.member_id,
        members=[
            JoinGroupResponseMember(
                member_id=other.member_id,
                group_instance_id=other.instance_id,
                metadata=other.metadata(group.protocol),
            )
            for other in members
        ],
    )
