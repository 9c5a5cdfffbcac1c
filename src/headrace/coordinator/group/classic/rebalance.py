"""The first half of a rebalance: members join until all are there or time is up, and then are a new generation."""

from collections.abc import Collection, Hashable
from dataclasses import replace

from headrace.coordinator.decision import Answer, CoordinatorRecord, Decision, RequestToken, Timer
from headrace.coordinator.group.classic.state import (
    ClassicGroup,
    ClassicGroupKey,
    JoinTimer,
    Member,
    Phase,
    SessionTimer,
    SyncTimer,
    group_record,
)
from headrace.coordinator.group.settings import GroupSettings
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.join_group import JoinGroupResponse, JoinGroupResponseMember
from headrace.protocol.messages.sync_group import SyncGroupResponse
from headrace.protocol.schema import Message

# A decision about one classic group in the making.
#
# The phases work on a draft: its group is a value of its own, so nothing that they do to it changes the coordinator.
# In the end the draft becomes a decision, whose records bring about what was drafted.


class Draft:
    def __init__(self, group: ClassicGroup, settings: GroupSettings, now_ms: int) -> None:
        self.group = group
        self.settings = settings
        self.now_ms = now_ms
        self.is_stored = False
        self._before: ClassicGroup | None = group
        self._answers: list[Answer] = []
        self._records: list[CoordinatorRecord] = []
        self._timers: dict[Hashable, Timer] = {}

    @classmethod
    def of_new_group(cls, group_id: str, settings: GroupSettings, now_ms: int) -> "Draft":
        """A draft of a group that comes into being; it is stored at once, before its first generation."""
        draft = cls(ClassicGroup(group_id, since_ms=now_ms), settings, now_ms)
        draft._before = None
        draft._records.append(group_record(draft.group))
        return draft

    def answer(self, token: RequestToken | None, response: Message) -> None:
        if token is not None:
            self._answers.append(Answer(token, response))

    def set_timer(self, key: Hashable, delay_ms: int) -> None:
        """Be asked again after a while."""
        self._timers[key] = Timer(key, self.now_ms + delay_ms)

    def cancel_timer(self, key: Hashable) -> None:
        self._timers[key] = Timer(key, None)

    def renew_session(self, member: Member) -> None:
        """Expect the next sign of life within the member's session timeout."""
        self.set_timer(SessionTimer(self.group.group_id, member.member_id), member.session_timeout_ms)

    def update(self, member: Member) -> None:
        self.group = self.group.with_member(member)

    def remove(self, member_ids: Collection[str]) -> None:
        """Remove members, or ids that were given out. Whoever waits for an answer has to join as somebody new."""
        for member_id in member_ids:
            self.cancel_timer(SessionTimer(self.group.group_id, member_id))
            if member_id in self.group.members:
                self.release(self.group.members[member_id], ErrorCode.UNKNOWN_MEMBER_ID)
        self.group = self.group.without(member_ids)

    def release(self, member: Member, error: ErrorCode, member_id: str = "") -> None:
        """Answer the requests with which a member waits, since there is nothing to wait for any more."""
        self.answer(member.joining, JoinGroupResponse(error_code=error, member_id=member_id))
        self.answer(member.syncing, SyncGroupResponse(error_code=error))

    def end_syncs(self, error: ErrorCode) -> None:
        """Answer everybody who waits for the assignment: with it, or with an error."""
        members = {}
        for member_id, member in self.group.members.items():
            if member.syncing is not None:
                self.answer(member.syncing, self.sync_response(member, error))
                # Its session was not watched while it waited, and is again from here on.
                self.renew_session(member)
            members[member_id] = replace(member, syncing=None) if member.syncing is not None else member
        self.group = replace(self.group, members=members)

    def sync_response(self, member: Member, error: ErrorCode = ErrorCode.NONE) -> SyncGroupResponse:
        if error:
            return SyncGroupResponse(error_code=error)
        group = self.group
        return SyncGroupResponse(
            protocol_type=group.protocol_type, protocol_name=group.protocol, assignment=member.assignment
        )

    def decision(self) -> Decision:
        records = list(self._records)
        if self.is_stored:
            records.append(group_record(self.group))
        if self.group is not self._before:
            records.append(CoordinatorRecord(ClassicGroupKey(self.group.group_id), self.group, is_kept=False))
        return Decision(tuple(self._answers), tuple(records), tuple(self._timers.values()))


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
                member_id=other.member_id, group_instance_id=other.instance_id, metadata=other.metadata(group.protocol)
            )
            for other in members
        ],
    )
