"""A decision about one classic group in the making.

The phases work on a draft: its group is a value of its own, so nothing that they do to it changes the coordinator. In
the end the draft becomes a decision, whose records bring about what was drafted.
"""

from collections.abc import Collection, Hashable
from dataclasses import replace

from headrace.coordinator.decision import Answer, CoordinatorRecord, Decision, RequestToken, Timer
from headrace.coordinator.group.classic.state import ClassicGroup, ClassicGroupKey, Member, SessionTimer, group_record
from headrace.coordinator.group.settings import GroupSettings
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.join_group import JoinGroupResponse
from headrace.protocol.messages.sync_group import SyncGroupResponse
from headrace.protocol.schema import Message


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
