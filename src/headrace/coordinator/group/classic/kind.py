"""All classic groups of a partition: which group an event is about, and what others may ask about it."""

from collections.abc import Collection, Iterable

from headrace.coordinator.decision import Answer, CoordinatorRecord, Decision, Timer, together
from headrace.coordinator.group.classic import join, rebalance, session
from headrace.coordinator.group.classic.rebalance import Draft
from headrace.coordinator.group.classic.state import (
    ClassicGroup,
    ClassicGroupKey,
    JoinTimer,
    Phase,
    SessionTimer,
    SyncTimer,
    group_tombstone,
    stored_group,
)
from headrace.coordinator.group.events import GroupEvent, Loaded, Request, TimerFired
from headrace.coordinator.group.kinds import CommitClaim, ExpiryRule, GroupListing
from headrace.coordinator.group.record_formats import GroupMetadataKey, GroupMetadataValue
from headrace.coordinator.group.settings import GroupSettings
from headrace.model import TopicPartition
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from headrace.protocol.messages.join_group import JoinGroupRequest
from headrace.protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse
from headrace.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse


class ClassicGroups:
    """The kind `classic`. A group that only ever stored offsets is one of them, without a protocol type."""

    type_name = "classic"
    record_keys: frozenset[type] = frozenset({GroupMetadataKey, ClassicGroupKey})
    timer_keys: frozenset[type] = frozenset({JoinTimer, SyncTimer, SessionTimer})

    def __init__(self, settings: GroupSettings) -> None:
        self._settings = settings
        self._groups: dict[str, ClassicGroup] = {}

    def group_ids(self) -> Collection[str]:
        return self._groups.keys()

    def holds(self, group_id: str) -> bool:
        return group_id in self._groups

    def count_members(self) -> int:
        return sum(len(group.members) + len(group.pending_joins) for group in self._groups.values())

    def knows_member(self, group_id: str, member_id: str) -> bool:
        group = self._groups[group_id]
        return member_id in group.members or member_id in group.pending_joins

    def group(self, group_id: str) -> ClassicGroup:
        return self._groups[group_id]

    # The only mutation:

    def apply(self, record: CoordinatorRecord) -> None:
        """Take over a group: as it was stored, or as it is in the midst of a rebalance."""
        key, value = record.key, record.value
        if isinstance(key, ClassicGroupKey):
            assert isinstance(value, ClassicGroup)
            self._groups[key.group_id] = value
            return
        assert isinstance(key, GroupMetadataKey)
        if value is None:
            self._groups.pop(key.group, None)
        else:
            assert isinstance(value, GroupMetadataValue)
            self._groups[key.group] = stored_group(key.group, value)

    def adopt(self, group_id: str) -> None:
        """Begin a group of which nothing is known but that it has offsets."""
        self._groups[group_id] = ClassicGroup(group_id)

    def give_up(self, group_id: str) -> None:
        """End a group that was begun for its offsets, and turns out to be of another kind."""
        group = self._groups.get(group_id)
        if group is not None and group.protocol_type is None and group.phase is Phase.EMPTY:
            del self._groups[group_id]

    # Decisions:

    def decide(self, event: GroupEvent, now_ms: int) -> Decision:
        """What follows from a request of the classic protocol, or from a timer."""
        match event:
            case Request(message=JoinGroupRequest() as asked):
                return self._join(event, asked, now_ms)
            case Request(message=SyncGroupRequest() as asked):
                return self._sync(event, asked, now_ms)
            case Request(message=HeartbeatRequest() as asked):
                return self._heartbeat(event, asked, now_ms)
            case Request(message=LeaveGroupRequest() as asked):
                return self._leave(event, asked, now_ms)
            case TimerFired(key):
                return self._time_is_up(key, now_ms)
            case Loaded():
                return self._loaded(now_ms)
        return Decision()

    def _draft(self, group_id: str, now_ms: int) -> Draft | None:
        group = self._groups.get(group_id)
        return None if group is None else Draft(group, self._settings, now_ms)

    def _join(self, request: Request, asked: JoinGroupRequest, now_ms: int) -> Decision:
        if error := join.check_request(asked, self._settings):
            return Decision((Answer(request.token, join.refusal(asked, error)),))
        draft = self._draft(asked.group_id, now_ms)
        if draft is None:
            if asked.member_id:
                return Decision((Answer(request.token, join.refusal(asked, ErrorCode.UNKNOWN_MEMBER_ID)),))
            draft = Draft.of_new_group(asked.group_id, self._settings, now_ms)
        join.join(draft, request, asked)
        return draft.decision()

    def _sync(self, request: Request, asked: SyncGroupRequest, now_ms: int) -> Decision:
        error = session.check_sync(asked, request.version)
        draft = self._draft(asked.group_id, now_ms)
        if error or draft is None:
            response = SyncGroupResponse(error_code=error or ErrorCode.UNKNOWN_MEMBER_ID)
            return Decision((Answer(request.token, response),))
        session.sync(draft, request, asked)
        return draft.decision()

    def _heartbeat(self, request: Request, asked: HeartbeatRequest, now_ms: int) -> Decision:
        draft = self._draft(asked.group_id, now_ms)
        if draft is None or not asked.group_id:
            error = ErrorCode.UNKNOWN_MEMBER_ID if asked.group_id else ErrorCode.INVALID_GROUP_ID
            return Decision((Answer(request.token, HeartbeatResponse(error_code=error)),))
        session.heartbeat(draft, request, asked)
        return draft.decision()

    def _leave(self, request: Request, asked: LeaveGroupRequest, now_ms: int) -> Decision:
        draft = self._draft(asked.group_id, now_ms)
        if not asked.group_id:
            response = LeaveGroupResponse(error_code=ErrorCode.INVALID_GROUP_ID)
            return Decision((Answer(request.token, response),))
        if draft is None:
            outcomes = [
                session.leave_outcome(identity, ErrorCode.UNKNOWN_MEMBER_ID)
                for identity in session.leaving(request, asked)
            ]
            return Decision((Answer(request.token, session.leave_response(request, outcomes)),))
        session.leave(draft, request, asked)
        return draft.decision()

    def _time_is_up(self, key: object, now_ms: int) -> Decision:
        assert isinstance(key, JoinTimer | SyncTimer | SessionTimer)
        draft = self._draft(key.group_id, now_ms)
        if draft is None:
            return Decision()
        match key:
            case JoinTimer():
                rebalance.end_waiting(draft)
            case SyncTimer():
                session.expire_syncs(draft, key)
            case SessionTimer():
                session.expire_member(draft, key)
        return draft.decision()

    def _loaded(self, now_ms: int) -> Decision:
        """Every member has its whole session to show up again; a group that is too large now is rebalanced."""
        decisions = []
        for group in self._groups.values():
            draft = Draft(group, self._settings, now_ms)
            for member in group.members.values():
                draft.renew_session(member)
            if len(group.members) > self._settings.group_max_size:
                rebalance.prepare(draft)
            decisions.append(draft.decision())
        return together(*decisions)

    # What others ask:

    def is_empty(self, group_id: str) -> bool:
        return self._groups[group_id].phase is Phase.EMPTY

    def listing(self, group_id: str) -> GroupListing:
        group = self._groups[group_id]
        return GroupListing(group.phase.value, group.protocol_type or "")

    def tombstones(self, group_id: str) -> tuple[CoordinatorRecord, ...]:
        return (group_tombstone(group_id),)

    def check_commit(self, claim: CommitClaim, partitions: Iterable[TopicPartition] = ()) -> ErrorCode:
        """Whether offsets may be committed: by a member of this generation, or by anybody if there are no members."""
        del partitions  # what a member has is its leader's affair
        group = self._groups[claim.group_id]
        if claim.generation < 0 and group.phase is Phase.EMPTY:
            return ErrorCode.NONE
        if claim.generation >= 0 or claim.member_id or claim.instance_id is not None:
            if error := group.check_member(claim.member_id, claim.instance_id):
                return error
            if claim.generation != group.generation:
                return ErrorCode.ILLEGAL_GENERATION
        elif not claim.is_transactional:  # old transactional clients do not say who they are
            return ErrorCode.UNKNOWN_MEMBER_ID
        if not claim.is_transactional and group.phase is Phase.COMPLETING_REBALANCE:
            # The member belongs to the new generation, and commits what it has read in the last one.
            return ErrorCode.REBALANCE_IN_PROGRESS
        return ErrorCode.NONE

    def session_timers(self, claim: CommitClaim, now_ms: int) -> tuple[Timer, ...]:
        """A commit is a sign of life."""
        group = self._groups[claim.group_id]
        member = group.members.get(claim.member_id)
        if member is None or group.phase not in (Phase.STABLE, Phase.PREPARING_REBALANCE):
            return ()
        key = SessionTimer(claim.group_id, claim.member_id)
        return (Timer(key, now_ms + member.session_timeout_ms),)

    def check_fetch(self, group_id: str, member_id: str | None, member_epoch: int) -> ErrorCode:
        """Anybody may read offsets."""
        del group_id, member_id, member_epoch
        return ErrorCode.NONE

    def check_offset_deletion(self, group_id: str) -> ErrorCode:
        """Of members that are not consumers nobody knows what they read."""
        group = self._groups[group_id]
        if group.phase is not Phase.EMPTY and not group.is_consumer:
            return ErrorCode.NON_EMPTY_GROUP
        return ErrorCode.NONE

    def is_subscribed(self, group_id: str, topic: str) -> bool:
        """Whether a member is subscribed to the topic; consumers that cannot be understood may be."""
        group = self._groups[group_id]
        return group.is_consumer if group.topics is None else topic in group.topics

    def expiry(self, group_id: str) -> ExpiryRule | None:
        """Offsets expire once the group is empty; in a stable one, those of topics that it has given up (KIP-211)."""
        group = self._groups[group_id]
        if group.protocol_type is None:
            return ExpiryRule()
        if group.phase is Phase.EMPTY:
            return ExpiryRule(group.since_ms)
        if group.phase is Phase.STABLE and group.is_consumer and group.topics is not None:
            return ExpiryRule()
        return None
