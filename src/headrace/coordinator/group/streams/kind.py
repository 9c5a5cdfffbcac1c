"""All streams groups of a partition: which group an event is about, and what others may ask about it."""

from collections.abc import Hashable, Iterable, Mapping

from headrace.coordinator.decision import Answer, CoordinatorRecord, Decision, together
from headrace.coordinator.group.events import GroupEvent, Loaded, Request, TimerFired
from headrace.coordinator.group.heartbeats import (
    EPOCHS_IN_COMMITS_SINCE,
    LEAVE_EPOCH,
    Draft,
    HeartbeatGroups,
    MemberState,
    Refusal,
    take_news,
)
from headrace.coordinator.group.kinds import CommitClaim, ExpiryRule, GroupListing
from headrace.coordinator.group.settings import GroupSettings, SettingsChanged
from headrace.coordinator.group.streams import facts, heartbeat
from headrace.coordinator.group.streams import formats as log
from headrace.coordinator.group.streams.group import Passing, StreamsGroup
from headrace.coordinator.group.streams.heartbeat import StreamsDelayTimer, StreamsRebalanceTimer, StreamsSessionTimer
from headrace.coordinator.group.streams.member import Member
from headrace.coordinator.group.streams.tasks import Tasks, list_tasks
from headrace.coordinator.group.topics import TopicsChanged
from headrace.model import TopicPartition
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.shared import Endpoint, KeyValue, TopicInfo
from headrace.protocol.messages.streams_group_describe import (
    Assignment,
    DescribedGroup,
    StreamsGroupDescribeRequest,
    StreamsGroupDescribeResponse,
    Subtopology,
    Topology,
)
from headrace.protocol.messages.streams_group_describe import Member as DescribedMember
from headrace.protocol.messages.streams_group_heartbeat import (
    StreamsGroupHeartbeatRequest,
    StreamsGroupHeartbeatResponse,
)

_PROTOCOL_TYPE = "streams"
_MAX_EPOCH = 2**30


class StreamsGroups(HeartbeatGroups[StreamsGroup]):
    """The kind `streams`."""

    type_name = "streams"
    record_keys: frozenset[type] = frozenset(
        {
            log.StreamsGroupMetadataKey,
            log.StreamsGroupTopologyKey,
            log.StreamsGroupMemberMetadataKey,
            log.StreamsGroupTargetAssignmentMetadataKey,
            log.StreamsGroupTargetAssignmentMemberKey,
            log.StreamsGroupCurrentMemberAssignmentKey,
            Passing,
        }
    )
    timer_keys: frozenset[type] = frozenset({StreamsSessionTimer, StreamsRebalanceTimer, StreamsDelayTimer})

    def __init__(self, settings: GroupSettings) -> None:
        super().__init__(settings, StreamsGroup)

    # Decisions:

    def decide(self, event: GroupEvent, now_ms: int) -> Decision:
        """What follows from a request to a streams group, from a timer, or from news."""
        match event:
            case Request(message=StreamsGroupHeartbeatRequest() as asked):
                return self._heartbeat(event, asked, now_ms)
            case Request(message=StreamsGroupDescribeRequest() as asked):
                groups = [self._describe(group_id) for group_id in asked.group_ids]
                return Decision((Answer(event.token, StreamsGroupDescribeResponse(groups=groups)),))
            case TimerFired(key):
                return self._time_is_up(key, now_ms)
            case Loaded():
                return self._loaded(now_ms)
            case TopicsChanged() | SettingsChanged():
                return take_news(event)
        return Decision()

    def _heartbeat(self, request: Request, asked: StreamsGroupHeartbeatRequest, now_ms: int) -> Decision:
        try:
            heartbeat.check_request(asked)
            topics = self._known_topics()
            draft = Draft(self._group_to_join(asked.group_id, asked.member_epoch))
            if asked.member_epoch == LEAVE_EPOCH:
                return draft.decision(Answer(request.token, heartbeat.leave(draft, asked)))
            settings = self._settings_of(asked.group_id)
            response = heartbeat.beat(draft, request, asked, topics, settings, now_ms)
        except Refusal as refusal:
            answer = StreamsGroupHeartbeatResponse(error_code=refusal.code, error_message=refusal.message)
            return Decision((Answer(request.token, answer),))
        return draft.decision(Answer(request.token, response))

    def _time_is_up(self, key: Hashable, now_ms: int) -> Decision:
        assert isinstance(key, StreamsSessionTimer | StreamsRebalanceTimer | StreamsDelayTimer)
        group = self._groups.get(key.group_id)
        if group is None:
            return Decision()
        draft = Draft(group)
        if isinstance(key, StreamsDelayTimer):
            draft.write(CoordinatorRecord(Passing(key.group_id, "is_delayed"), value=False, is_kept=False))
            if group.members and group.topology is not None and self._topics is not None:
                configured = heartbeat.settle_configuration(draft, self._topics)
                heartbeat.update_target(draft, configured, self._settings_of(key.group_id), now_ms)
            return draft.decision()
        member = group.members.get(key.member_id)
        is_session = isinstance(key, StreamsSessionTimer)
        if member is None or not (is_session or member.holding.state is MemberState.UNREVOKED):
            return Decision()
        heartbeat.remove(draft, key.member_id)
        return draft.decision()

    def _loaded(self, now_ms: int) -> Decision:
        """Every member has its whole session to show up again, and all its time to give up tasks."""
        decisions = []
        for group_id, group in self._groups.items():
            draft = Draft(group)
            # What members know of endpoints has an epoch of before, which must not come again with another meaning.
            epoch = now_ms // 1000 % _MAX_EPOCH
            draft.write(CoordinatorRecord(Passing(group_id, "endpoint_epoch"), epoch, is_kept=False))
            session_ms = self._settings_of(group_id).group_streams_session_timeout_ms
            for member_id, member in group.members.items():
                draft.set_timer(StreamsSessionTimer(group_id, member_id), now_ms + session_ms)
                if member.holding.state is MemberState.UNREVOKED:
                    timer = StreamsRebalanceTimer(group_id, member_id)
                    draft.set_timer(timer, now_ms + member.profile.rebalance_timeout_ms)
            decisions.append(draft.decision())
        return together(*decisions)

    # What others ask:

    def missing_topics(self, group_id: str) -> tuple[TopicInfo, ...]:
        """The topics that have yet to be made for the application, if everything else is there."""
        group = self._groups.get(group_id)
        return group.configured.missing if group is not None and group.configured is not None else ()

    def _describe(self, group_id: str) -> DescribedGroup:
        group = self._groups.get(group_id)
        if group is None:
            return DescribedGroup(
                group_id=group_id,
                error_code=ErrorCode.GROUP_ID_NOT_FOUND,
                error_message=f"there is no streams group {group_id!r}",
            )
        return DescribedGroup(
            group_id=group_id,
            group_state=group.state.value,
            group_epoch=group.epoch,
            assignment_epoch=group.assignment_epoch,
            topology=_describe_topology(group),
            members=[_describe_member(group, group.members[member_id]) for member_id in sorted(group.members)],
        )

    def listing(self, group_id: str) -> GroupListing:
        return GroupListing(self._groups[group_id].state.value, _PROTOCOL_TYPE)

    def tombstones(self, group_id: str) -> tuple[CoordinatorRecord, ...]:
        """The records that remove the group, its members and its assignments."""
        return facts.no_group(group_id, sorted(self._groups[group_id].members))

    def check_commit(self, claim: CommitClaim, partitions: Iterable[TopicPartition] | None = None) -> ErrorCode:
        """Whether offsets may be committed: by a member in its epoch, or by anybody if there are no members.

        A member may still be in an earlier epoch if it has had all these tasks since then, as when its commit and the
        heartbeat that brings it a new epoch cross each other. None: it is not known which they are.
        """
        group = self._groups[claim.group_id]
        if claim.generation < 0 and not group.members:
            return ErrorCode.NONE
        member = group.members.get(claim.member_id)
        if member is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if not claim.is_transactional and claim.version < EPOCHS_IN_COMMITS_SINCE:
            return ErrorCode.UNSUPPORTED_VERSION
        epoch = claim.generation
        if epoch == member.holding.epoch:
            return ErrorCode.NONE
        is_earlier = epoch < member.holding.epoch and partitions is not None
        if is_earlier and all(group.has_had(member, *each, epoch) for each in partitions or ()):
            return ErrorCode.NONE
        # TxnOffsetCommit has no word for a stale epoch.
        return ErrorCode.ILLEGAL_GENERATION if claim.is_transactional else ErrorCode.STALE_MEMBER_EPOCH

    def check_fetch(self, group_id: str, member_id: str | None, member_epoch: int) -> ErrorCode:
        """Whether the offsets may be read: by a member in its epoch, or by anybody who does not claim to be one."""
        if not member_id and member_epoch < 0:
            return ErrorCode.NONE
        member = self._groups[group_id].members.get(member_id or "")
        if member is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        return ErrorCode.NONE if member_epoch == member.holding.epoch else ErrorCode.STALE_MEMBER_EPOCH

    def check_offset_deletion(self, group_id: str) -> ErrorCode:
        """Of every group it is known what it reads."""
        del group_id
        return ErrorCode.NONE

    def is_subscribed(self, group_id: str, topic: str) -> bool:
        """Whether the application runs, and reads the topic."""
        group = self._groups[group_id]
        return bool(group.members) and topic in group.readers

    def expiry(self, group_id: str) -> ExpiryRule | None:
        """Each offset expires by its own age, once the application does not read its topic."""
        del group_id
        return ExpiryRule()


def _describe_topology(group: StreamsGroup) -> Topology | None:
    """The topology; topics that are made for it have their numbers of partitions once it is ready."""
    if group.topology is None:
        return None
    configured = group.configured
    is_ready = configured is not None and configured.status is None
    counts: Mapping[str, int] = configured.partition_counts if configured is not None and is_ready else {}

    def count(topics: Iterable[TopicInfo]) -> list[TopicInfo]:
        return [
            TopicInfo(
                name=topic.name,
                partitions=counts.get(topic.name, topic.partitions),
                replication_factor=topic.replication_factor,
                topic_configs=topic.topic_configs,
            )
            for topic in topics
        ]

    return Topology(
        epoch=group.topology.epoch,
        subtopologies=[
            Subtopology(
                subtopology_id=each.subtopology_id,
                source_topics=each.source_topics,
                repartition_sink_topics=each.repartition_sink_topics,
                state_changelog_topics=count(each.state_changelog_topics),
                repartition_source_topics=count(each.repartition_source_topics),
            )
            for each in group.topology.subtopologies
        ],
    )


def _describe_member(group: StreamsGroup, member: Member) -> DescribedMember:
    profile = member.profile
    endpoint = profile.endpoint
    return DescribedMember(
        member_id=member.member_id,
        member_epoch=member.holding.epoch,
        rack_id=profile.rack_id,
        client_id=profile.client_id,
        client_host=profile.client_host,
        topology_epoch=profile.topology_epoch,
        process_id=profile.process_id,
        user_endpoint=None if endpoint is None else Endpoint(host=endpoint[0], port=endpoint[1]),
        client_tags=[KeyValue(key=key, value=text) for key, text in profile.client_tags],
        assignment=_describe_tasks(member.holding.assigned),
        target_assignment=_describe_tasks(group.target(member.member_id)),
    )


def _describe_tasks(tasks: Tasks) -> Assignment:
    return Assignment(
        active_tasks=list_tasks(tasks.active),
        standby_tasks=list_tasks(tasks.standby),
        warmup_tasks=list_tasks(tasks.warmup),
    )
