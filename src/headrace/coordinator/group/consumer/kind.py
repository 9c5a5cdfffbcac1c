"""All consumer groups of a partition: which group an event is about, and what others may ask about it."""

from collections.abc import Iterable

from headrace.coordinator.decision import Answer, CoordinatorRecord, Decision, together
from headrace.coordinator.group import record_formats as log
from headrace.coordinator.group.assignors import Assignment
from headrace.coordinator.group.classic.state import ClassicGroup
from headrace.coordinator.group.consumer import classic_voice, facts, heartbeat, membership, migration, timers
from headrace.coordinator.group.consumer.member import Holding, Member
from headrace.coordinator.group.consumer.state import ConsumerGroup, RejoinDeadline, TopicsSeen
from headrace.coordinator.group.consumer.subscription import preferred_assignor
from headrace.coordinator.group.consumer.timers import (
    MemberRebalanceTimer,
    MemberRejoinTimer,
    MemberSessionTimer,
    MemberSyncTimer,
)
from headrace.coordinator.group.events import GroupEvent, Loaded, Request, TimerFired
from headrace.coordinator.group.heartbeats import (
    EPOCHS_IN_COMMITS_SINCE,
    JOIN_EPOCH,
    LEAVE_EPOCH,
    LEAVE_FOR_A_WHILE_EPOCH,
    Draft,
    HeartbeatGroups,
    MemberState,
    Refusal,
    take_news,
)
from headrace.coordinator.group.kinds import CommitClaim, ExpiryRule, GroupListing
from headrace.coordinator.group.settings import GroupSettings, SettingsChanged
from headrace.coordinator.group.topics import Topics, TopicsChanged
from headrace.model import TopicPartition
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.consumer_group_describe import Assignment as DescribedAssignment
from headrace.protocol.messages.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    DescribedGroup,
    TopicPartitions,
)
from headrace.protocol.messages.consumer_group_describe import Member as DescribedMember
from headrace.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from headrace.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from headrace.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from headrace.protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse
from headrace.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from headrace.protocol.schema import Message

_SPEAKS_CLASSIC = 0
_SPEAKS_CONSUMER = 1


def describe(group: ConsumerGroup, topics: Topics | None) -> DescribedGroup:
    """The group, its epochs and its members; partitions of topics that are gone are left out."""
    return DescribedGroup(
        group_id=group.group_id,
        group_state=group.state.value,
        group_epoch=group.epoch,
        assignment_epoch=group.assignment_epoch,
        assignor_name=preferred_assignor(group),
        members=[_describe_member(group, group.members[member_id], topics) for member_id in sorted(group.members)],
    )


def not_found(group_id: str) -> DescribedGroup:
    return DescribedGroup(
        group_id=group_id,
        error_code=ErrorCode.GROUP_ID_NOT_FOUND,
        error_message=f"there is no consumer group {group_id!r}",
    )


def _describe_member(group: ConsumerGroup, member: Member, topics: Topics | None) -> DescribedMember:
    profile = member.profile
    return DescribedMember(
        member_id=member.member_id,
        instance_id=profile.instance_id,
        rack_id=profile.rack_id,
        member_epoch=member.holding.epoch,
        client_id=profile.client_id,
        client_host=profile.client_host,
        subscribed_topic_names=sorted(profile.topic_names),
        subscribed_topic_regex=profile.topic_regex or "",
        assignment=_name_partitions(member.holding.assigned, topics),
        target_assignment=_name_partitions(group.target(member.member_id), topics),
        member_type=_SPEAKS_CLASSIC if member.is_classic else _SPEAKS_CONSUMER,
    )


def _name_partitions(assignment: Assignment, topics: Topics | None) -> DescribedAssignment:
    names = {} if topics is None else topics.names_by_id
    return DescribedAssignment(
        topic_partitions=[
            TopicPartitions(topic_id=topic_id, topic_name=names[topic_id], partitions=sorted(assignment[topic_id]))
            for topic_id in sorted(assignment)
            if topic_id in names
        ]
    )


ClassicRequest = JoinGroupRequest | SyncGroupRequest | HeartbeatRequest | LeaveGroupRequest

_PROTOCOL_TYPE = "consumer"


class ConsumerGroups(HeartbeatGroups[ConsumerGroup]):
    """The kind `consumer`."""

    type_name = "consumer"
    record_keys: frozenset[type] = frozenset(
        {
            log.ConsumerGroupMetadataKey,
            log.ConsumerGroupPartitionMetadataKey,
            log.ConsumerGroupMemberMetadataKey,
            log.ConsumerGroupTargetAssignmentMetadataKey,
            log.ConsumerGroupTargetAssignmentMemberKey,
            log.ConsumerGroupCurrentMemberAssignmentKey,
            log.ConsumerGroupRegularExpressionKey,
            TopicsSeen,
            RejoinDeadline,
        }
    )
    timer_keys: frozenset[type] = frozenset(
        {MemberSessionTimer, MemberRebalanceTimer, MemberRejoinTimer, MemberSyncTimer}
    )

    def __init__(self, settings: GroupSettings) -> None:
        super().__init__(settings, ConsumerGroup)

    # Decisions:

    def decide(self, event: GroupEvent, now_ms: int) -> Decision:
        """What follows from a request to a consumer group, from a timer, or from news about topics."""
        match event:
            case Request(message=JoinGroupRequest() | SyncGroupRequest() | HeartbeatRequest() | LeaveGroupRequest()):
                return self._classic_request(event, now_ms)
            case Request(message=ConsumerGroupHeartbeatRequest() as asked):
                return self._heartbeat(event, asked, now_ms)
            case Request(message=ConsumerGroupDescribeRequest() as asked):
                return Decision((Answer(event.token, self._describe(asked)),))
            case TimerFired(key):
                return self._time_is_up(key, now_ms)
            case Loaded():
                return self._loaded(now_ms)
            case TopicsChanged() | SettingsChanged():
                return take_news(event)
        return Decision()

    def _heartbeat(self, request: Request, asked: ConsumerGroupHeartbeatRequest, now_ms: int) -> Decision:
        try:
            heartbeat.check_request(asked, request.version)
            topics = self._known_topics()
            draft = Draft(self._group_to_join(asked.group_id, asked.member_epoch), request.sees)
            if asked.member_epoch in (LEAVE_EPOCH, LEAVE_FOR_A_WHILE_EPOCH):
                response = heartbeat.leave(draft, asked, topics, now_ms)
                return self._without_leavers(draft, now_ms, Answer(request.token, response))
            response = heartbeat.beat(draft, request, asked, topics, self._settings_of(asked.group_id), now_ms)
        except Refusal as refusal:
            answer = ConsumerGroupHeartbeatResponse(error_code=refusal.code, error_message=refusal.message)
            return Decision((Answer(request.token, answer),))
        return draft.decision(Answer(request.token, response))

    def _without_leavers(self, draft: Draft[ConsumerGroup], now_ms: int, *answers: Answer) -> Decision:
        """What follows when somebody has left: perhaps those who stay all speak the classic protocol."""
        before = self._groups[draft.group.group_id]
        if len(draft.group.members) < len(before.members):
            downgraded = migration.downgrade(before, draft.group, self._topics, self._settings, now_ms)
            if downgraded is not None:
                return together(Decision(answers), downgraded)
        return draft.decision(*answers)

    def upgrade(self, request: Request, classic: ClassicGroup, now_ms: int) -> Decision | None:
        """What follows when somebody who speaks the new protocol joins a classic group; None if it stays one."""
        asked = request.message
        assert isinstance(asked, ConsumerGroupHeartbeatRequest)
        if self._topics is None or asked.member_epoch != JOIN_EPOCH:
            return None
        records = migration.upgrade(classic, self._topics, self._settings)
        if records is None:
            return None
        draft = Draft(ConsumerGroup(classic.group_id), request.sees)
        draft.write(*records)
        try:
            heartbeat.check_request(asked, request.version)
            response = heartbeat.beat(draft, request, asked, self._topics, self._settings_of(asked.group_id), now_ms)
        except Refusal as refusal:
            answer = ConsumerGroupHeartbeatResponse(error_code=refusal.code, error_message=refusal.message)
            return Decision((Answer(request.token, answer),))
        farewell = migration.farewell(classic, draft.group, now_ms)
        return together(farewell, draft.decision(Answer(request.token, response)))

    def _classic_request(self, request: Request, now_ms: int) -> Decision:
        asked = request.message
        assert isinstance(asked, ClassicRequest)
        settings = self._settings_of(asked.group_id)
        draft = Draft(self._groups[asked.group_id], request.sees)
        response: Message
        try:
            topics = self._known_topics()
            match asked:
                case JoinGroupRequest():
                    response = classic_voice.join(draft, request, asked, topics, settings, now_ms)
                case SyncGroupRequest():
                    response = classic_voice.sync(draft, request, asked, topics, settings, now_ms)
                case HeartbeatRequest():
                    response = classic_voice.heartbeat(draft, asked, topics, settings, now_ms)
                case LeaveGroupRequest():
                    response = classic_voice.leave(draft, request, asked, topics, now_ms)
        except Refusal as refusal:
            return Decision((Answer(request.token, _classic_refusal(asked, refusal.code)),))
        return self._without_leavers(draft, now_ms, Answer(request.token, response))

    def _describe(self, asked: ConsumerGroupDescribeRequest) -> ConsumerGroupDescribeResponse:
        return ConsumerGroupDescribeResponse(
            groups=[
                describe(self._groups[group_id], self._topics) if group_id in self._groups else not_found(group_id)
                for group_id in asked.group_ids
            ]
        )

    def _time_is_up(self, key: object, now_ms: int) -> Decision:
        assert isinstance(key, timers.TimerKey)
        group = self._groups.get(key.group_id)
        member = group.members.get(key.member_id) if group else None
        if group is None or member is None:
            return Decision()
        if not timers.is_due(key, member):
            return Decision()
        draft = Draft(group)
        membership.remove(draft, [member.member_id], self._topics, now_ms)
        return self._without_leavers(draft, now_ms)

    def _loaded(self, now_ms: int) -> Decision:
        """Every member has its whole session to show up again, and all its time to give up partitions."""
        decisions = []
        for group in self._groups.values():
            draft = Draft(group)
            for member in group.members.values():
                timers.renew_session(draft, member, self._settings_of(group.group_id), now_ms)
                if member.holding.state is MemberState.UNREVOKED and not member.is_classic:
                    timers.watch_revocation(draft, member, now_ms)
            decisions.append(draft.decision())
        return together(*decisions)

    # What others ask:

    def listing(self, group_id: str) -> GroupListing:
        return GroupListing(self._groups[group_id].state.value, _PROTOCOL_TYPE)

    def tombstones(self, group_id: str) -> tuple[CoordinatorRecord, ...]:
        """The records that remove the group, its members and its assignments."""
        group = self._groups[group_id]
        return facts.no_group(group_id, sorted(group.members), sorted(group.expressions))

    def check_commit(self, claim: CommitClaim, partitions: Iterable[TopicPartition] | None = None) -> ErrorCode:
        """Whether offsets may be committed: by a member in its epoch, or by anybody if there are no members.

        A member may still be in an earlier epoch if it has had all these partitions since then (KIP-1251), as when its
        commit and the heartbeat that brings it a new epoch cross each other. None: it is not known which they are.
        """
        group = self._groups[claim.group_id]
        if claim.generation < 0 and not group.members:
            return ErrorCode.NONE
        member = group.members.get(claim.member_id)
        if member is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if not claim.is_transactional and not member.is_classic and claim.version < EPOCHS_IN_COMMITS_SINCE:
            return ErrorCode.UNSUPPORTED_VERSION
        if claim.generation == member.holding.epoch:
            return ErrorCode.NONE
        is_earlier = claim.generation < member.holding.epoch and partitions is not None
        if is_earlier and all(self._has_had(member.holding, each, claim.generation) for each in partitions or ()):
            return ErrorCode.NONE
        # TxnOffsetCommit and the classic protocol have no word for a stale epoch.
        is_told_by_generation = member.is_classic or claim.is_transactional
        return ErrorCode.ILLEGAL_GENERATION if is_told_by_generation else ErrorCode.STALE_MEMBER_EPOCH

    def _has_had(self, holding: Holding, partition: TopicPartition, epoch: int) -> bool:
        topic = self._topics.by_name.get(partition.topic) if self._topics is not None else None
        return topic is not None and holding.has_had(topic.topic_id, partition.partition, epoch)

    def check_fetch(self, group_id: str, member_id: str | None, member_epoch: int) -> ErrorCode:
        """Whether the offsets may be read: by a member in its epoch, or by anybody who does not claim to be one."""
        if not member_id and member_epoch < 0:
            return ErrorCode.NONE
        member = self._groups[group_id].members.get(member_id or "")
        if member is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if member_epoch == member.holding.epoch:
            return ErrorCode.NONE
        return ErrorCode.ILLEGAL_GENERATION if member.is_classic else ErrorCode.STALE_MEMBER_EPOCH

    def check_offset_deletion(self, group_id: str) -> ErrorCode:
        """Of every member it is known what it reads."""
        del group_id
        return ErrorCode.NONE

    def is_subscribed(self, group_id: str, topic: str) -> bool:
        """Whether a member is subscribed to the topic, by name or by regular expression."""
        group = self._groups[group_id]
        return any(topic in group.topic_names(member) for member in group.members.values())

    def expiry(self, group_id: str) -> ExpiryRule | None:
        """Each offset expires by its own age, if nobody is subscribed to its topic."""
        del group_id
        return ExpiryRule()


def _classic_refusal(asked: ClassicRequest, code: ErrorCode) -> Message:
    match asked:
        case JoinGroupRequest():
            return JoinGroupResponse(error_code=code, member_id=asked.member_id)
        case SyncGroupRequest():
            return SyncGroupResponse(error_code=code)
        case HeartbeatRequest():
            return HeartbeatResponse(error_code=code)
        case LeaveGroupRequest():
            return LeaveGroupResponse(error_code=code)
