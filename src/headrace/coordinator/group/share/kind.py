"""All share groups of a partition: heartbeats, sessions, assignments, and what others may ask about a group.

Every partition of a topic goes to at least one of those who want it, and every member gets at least one partition of
what it wants, if there is any. What a decision means for the records themselves is told as an effect, and done by the
shell once the decision is durable.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace

from headrace.coordinator.decision import Answer, CoordinatorRecord, Decision, together
from headrace.coordinator.group.assignors import Assignment, Subscriber, assign_shared
from headrace.coordinator.group.events import GroupEvent, Loaded, Request, TimerFired
from headrace.coordinator.group.heartbeats import (
    JOIN_EPOCH,
    LEAVE_EPOCH,
    Draft,
    HeartbeatGroups,
    Refusal,
    fenced,
    invalid,
)
from headrace.coordinator.group.kinds import CommitClaim, ExpiryRule, GroupListing
from headrace.coordinator.group.settings import GroupSettings
from headrace.coordinator.group.share import group as facts
from headrace.coordinator.group.share.group import SeenTopics, SharedTopic, ShareGroup, ShareMember
from headrace.coordinator.group.topics import Topics
from headrace.model import TopicPartition
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages import share_group_describe as described
from headrace.protocol.messages.alter_share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsResponse,
)
from headrace.protocol.messages.delete_share_group_offsets import (
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsResponse,
)
from headrace.protocol.messages.share_group_describe import (
    DescribedGroup,
    ShareGroupDescribeRequest,
    ShareGroupDescribeResponse,
)
from headrace.protocol.messages.share_group_heartbeat import (
    Assignment as AnsweredAssignment,
)
from headrace.protocol.messages.share_group_heartbeat import (
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
    TopicPartitions,
)
from headrace.protocol.schema import Uuid

ASSIGNOR = "simple"
_NON_EMPTY = ErrorCode.NON_EMPTY_GROUP, "The group has members: stop them first."


@dataclass(frozen=True, slots=True)
class ShareSessionTimer:
    group_id: str
    member_id: str


@dataclass(frozen=True, slots=True)
class MemberRemoved:
    """An effect: the member is gone, and has no records any more."""

    group_id: str
    member_id: str


class ShareGroups(HeartbeatGroups[ShareGroup]):
    """The kind `share`."""

    type_name = "share"
    record_keys: frozenset[type] = frozenset(
        {
            facts.ShareGroupMemberMetadataKey,
            facts.ShareGroupMetadataKey,
            facts.ShareGroupTargetAssignmentMetadataKey,
            facts.ShareGroupTargetAssignmentMemberKey,
            facts.ShareGroupCurrentMemberAssignmentKey,
            facts.ShareGroupStatePartitionMetadataKey,
            SeenTopics,
        }
    )
    timer_keys: frozenset[type] = frozenset({ShareSessionTimer})

    def __init__(self, settings: GroupSettings) -> None:
        super().__init__(settings, ShareGroup)
        self._shared_by: dict[str, frozenset[Uuid]] = {}
        self._sharers: dict[Uuid, set[str]] = {}

    def sharers(self, topic_id: Uuid) -> Collection[str]:
        """The groups that share a topic: a member of each has subscribed to it once."""
        return self._sharers.get(topic_id, ())

    def apply(self, record: CoordinatorRecord) -> None:
        super().apply(record)
        if isinstance(record.key, facts.ShareGroupStatePartitionMetadataKey | facts.ShareGroupMetadataKey):
            self._note_shared(record.key.group_id)

    def _note_shared(self, group_id: str) -> None:
        group = self._groups.get(group_id)
        before, now = self._shared_by.pop(group_id, frozenset()), frozenset(group.shared if group else ())
        if now:
            self._shared_by[group_id] = now
        for topic_id in now - before:
            self._sharers.setdefault(topic_id, set()).add(group_id)
        for topic_id in before - now:
            self._sharers[topic_id].discard(group_id)
            if not self._sharers[topic_id]:
                del self._sharers[topic_id]

    # Decisions:

    def decide(self, event: GroupEvent, now_ms: int) -> Decision:
        match event:
            case Request(message=ShareGroupHeartbeatRequest() as asked):
                return self._heartbeat(event, asked, now_ms)
            case Request(message=ShareGroupDescribeRequest() as asked):
                groups = [self._describe(group_id) for group_id in asked.group_ids]
                return Decision((Answer(event.token, ShareGroupDescribeResponse(groups=groups)),))
            case Request(message=AlterShareGroupOffsetsRequest() as asked):
                return self._alter_offsets(event, asked)
            case Request(message=DeleteShareGroupOffsetsRequest() as asked):
                return self._delete_offsets(event, asked)
            case TimerFired(ShareSessionTimer(group_id, member_id)):
                group = self._groups.get(group_id)
                if group is None or member_id not in group.members:
                    return Decision()
                return self._without(Draft(group), member_id)
            case Loaded():
                return together(*(self._renew_all(group, now_ms) for group in self._groups.values()))
        return Decision()

    def _heartbeat(self, request: Request, asked: ShareGroupHeartbeatRequest, now_ms: int) -> Decision:
        try:
            _check_request(asked)
            topics = self._known_topics()
            draft = Draft(self._group_to_join(asked.group_id, asked.member_epoch))
            if asked.member_epoch == LEAVE_EPOCH:
                _known_member(draft.group, asked.member_id)
                response = ShareGroupHeartbeatResponse(member_id=asked.member_id, member_epoch=LEAVE_EPOCH)
                return self._without(draft, asked.member_id, Answer(request.token, response))
            return self._beat(draft, request, asked, topics, now_ms)
        except Refusal as refusal:
            answer = ShareGroupHeartbeatResponse(error_code=refusal.code, error_message=refusal.message)
            return Decision((Answer(request.token, answer),))

    def _beat(
        self, draft: Draft[ShareGroup], request: Request, asked: ShareGroupHeartbeatRequest, topics: Topics, now_ms: int
    ) -> Decision:
        """Let a member join, or hear from it that it is alive and what it wants."""
        settings, group_id = self._settings_of(asked.group_id), asked.group_id
        before = _speaker(draft.group, asked, settings.group_share_max_size)
        member = replace(before, client_id=request.client_id, client_host=request.client_host)
        if asked.rack_id is not None:
            member = replace(member, rack_id=asked.rack_id)
        if asked.subscribed_topic_names is not None:
            member = replace(member, topic_names=frozenset(asked.subscribed_topic_names))
        is_new = member.member_id not in draft.group.members
        if is_new or member != before:
            draft.write(facts.member_metadata(group_id, member))
        _update_epoch(draft, topics, has_changed=is_new or member.topic_names != before.topic_names)
        _share_topics(draft, topics)
        _update_targets(draft, topics, now_ms)
        epoch, target = draft.group.assignment_epoch, draft.group.target(member.member_id)
        if member.epoch != epoch or member.assigned != target:
            member = replace(member, epoch=epoch, previous_epoch=member.epoch, assigned=target)
            draft.write(facts.member_assignment(group_id, member))
        timer = ShareSessionTimer(group_id, member.member_id)
        draft.set_timer(timer, now_ms + settings.group_share_session_timeout_ms)
        response = ShareGroupHeartbeatResponse(
            member_id=member.member_id,
            member_epoch=member.epoch,
            heartbeat_interval_ms=settings.group_share_heartbeat_interval_ms,
        )
        if asked.subscribed_topic_names is not None or member.assigned != before.assigned:
            response.assignment = _to_answer(member.assigned)
        return draft.decision(Answer(request.token, response))

    def _without(self, draft: Draft[ShareGroup], member_id: str, *answers: Answer) -> Decision:
        """Remove a member; the others have what it had when they are next heard of."""
        group = draft.group
        draft.cancel_timers([ShareSessionTimer(group.group_id, member_id)])
        draft.write(*facts.no_member(group.group_id, member_id))
        draft.write(facts.group_epoch(group.group_id, group.epoch + 1, group.metadata_hash))
        gone = Decision(effects=(MemberRemoved(group.group_id, member_id),))
        return together(draft.decision(*answers), gone)

    def _renew_all(self, group: ShareGroup, now_ms: int) -> Decision:
        """Every member has its whole session to show up again."""
        draft = Draft(group)
        at_ms = now_ms + self._settings_of(group.group_id).group_share_session_timeout_ms
        for member_id in group.members:
            draft.set_timer(ShareSessionTimer(group.group_id, member_id), at_ms)
        return draft.decision()

    # Where a group without members begins. The state itself is not here: the shell changes it after the answer.

    def _alter_offsets(self, request: Request, asked: AlterShareGroupOffsetsRequest) -> Decision:
        """Note which partitions the group has a state of from now on; as in Kafka the group is made if need be."""
        group_id = asked.group_id
        draft = Draft(self._groups.get(group_id) or ShareGroup(group_id))
        code, reason = ErrorCode.NONE, None
        if draft.group.members:
            code, reason = _NON_EMPTY
        else:
            if not draft.group.exists:
                draft.write(facts.group_epoch(group_id, 0, 0))
            wanted = {topic.topic_name: {each.partition_index for each in topic.partitions} for topic in asked.topics}
            draft.write(*_share(draft.group, dict(draft.group.shared), wanted, self._known_topics()))
        response = AlterShareGroupOffsetsResponse(error_code=code, error_message=reason)
        return draft.decision(Answer(request.token, response))

    def _delete_offsets(self, request: Request, asked: DeleteShareGroupOffsetsRequest) -> Decision:
        group = self._groups.get(asked.group_id)
        code, reason = ErrorCode.NONE, None
        records: tuple[CoordinatorRecord, ...] = ()
        if group is None:
            code, reason = ErrorCode.GROUP_ID_NOT_FOUND, f"Group {asked.group_id} not found."
        elif group.members:
            code, reason = _NON_EMPTY
        else:
            names = {topic.topic_name for topic in asked.topics}
            left = {topic_id: topic for topic_id, topic in group.shared.items() if topic.name not in names}
            records = (facts.shared_topics(asked.group_id, left),) if left != group.shared else ()
        response = DeleteShareGroupOffsetsResponse(error_code=code, error_message=reason)
        return Decision((Answer(request.token, response),), records)

    # What others ask:

    def _describe(self, group_id: str) -> DescribedGroup:
        group = self._groups.get(group_id)
        if group is None:
            return DescribedGroup(
                group_id=group_id,
                error_code=ErrorCode.GROUP_ID_NOT_FOUND,
                error_message=f"Group {group_id} not found.",
            )
        return DescribedGroup(
            group_id=group_id,
            group_state=group.state,
            group_epoch=group.epoch,
            assignment_epoch=group.assignment_epoch,
            assignor_name=ASSIGNOR,
            members=[_describe_member(group.members[each], self._topics) for each in sorted(group.members)],
        )

    def listing(self, group_id: str) -> GroupListing:
        return GroupListing(self._groups[group_id].state, self.type_name)

    def tombstones(self, group_id: str) -> tuple[CoordinatorRecord, ...]:
        return facts.no_group(group_id, sorted(self._groups[group_id].members))

    # A share group commits no offsets, so nothing of it expires either.

    def check_commit(self, claim: CommitClaim, partitions: Iterable[TopicPartition]) -> ErrorCode:
        del claim, partitions
        return ErrorCode.GROUP_ID_NOT_FOUND

    def check_fetch(self, group_id: str, member_id: str | None, member_epoch: int) -> ErrorCode:
        del group_id, member_id, member_epoch
        return ErrorCode.NONE

    def check_offset_deletion(self, group_id: str) -> ErrorCode:
        del group_id
        return ErrorCode.GROUP_ID_NOT_FOUND

    def is_subscribed(self, group_id: str, topic: str) -> bool:
        return topic in self._groups[group_id].topic_names()

    def expiry(self, group_id: str) -> ExpiryRule | None:
        del group_id
        return None


def _check_request(asked: ShareGroupHeartbeatRequest) -> None:
    """Refuse what makes no sense, whatever the group's state is."""
    for name, value in (("GroupId", asked.group_id), ("MemberId", asked.member_id), ("RackId", asked.rack_id)):
        if value is not None and not value.strip():
            raise invalid(f"{name} must not be empty")
    if asked.member_epoch < LEAVE_EPOCH:
        raise invalid(f"MemberEpoch {asked.member_epoch} means nothing")
    if asked.member_epoch == JOIN_EPOCH and asked.subscribed_topic_names is None:
        raise invalid("SubscribedTopicNames must be given when joining")


def _known_member(group: ShareGroup, member_id: str) -> ShareMember:
    member = group.members.get(member_id)
    if member is None:
        raise Refusal(ErrorCode.UNKNOWN_MEMBER_ID, f"{member_id!r} is not a member of group {group.group_id!r}")
    return member


def _speaker(group: ShareGroup, asked: ShareGroupHeartbeatRequest, max_size: int) -> ShareMember:
    """The member that a heartbeat comes from: one that joins, or is in its epoch, or missed the last answer."""
    if asked.member_epoch == JOIN_EPOCH:
        member = group.members.get(asked.member_id)
        if member is None and len(group.members) >= max_size:
            raise Refusal(ErrorCode.GROUP_MAX_SIZE_REACHED, f"the group has {max_size} members, and takes no more")
        return member or ShareMember(asked.member_id)
    member = _known_member(group, asked.member_id)
    if asked.member_epoch not in (member.epoch, member.previous_epoch):
        raise fenced(f"the member's epoch is {member.epoch}, not {asked.member_epoch}")
    return member


def _update_epoch(draft: Draft[ShareGroup], topics: Topics, *, has_changed: bool) -> None:
    """Bump the group's epoch if its members or what they want has changed, or the topics that they want."""
    group = draft.group
    have_topics_changed = group.topics_seen != topics.version
    if not (has_changed or have_topics_changed):
        return
    fingerprint = topics.fingerprint(group.topic_names())
    if has_changed or fingerprint != group.metadata_hash:
        draft.write(facts.group_epoch(group.group_id, group.epoch + 1, fingerprint))
    if have_topics_changed:
        draft.write(CoordinatorRecord(SeenTopics(group.group_id), topics.version, is_kept=False))


def _share_topics(draft: Draft[ShareGroup], topics: Topics) -> None:
    """Name every partition that a member wants as one that the group has a state of, and none that is gone."""
    group = draft.group
    if group.epoch > group.assignment_epoch:
        wanted = {
            name: range(topics.by_name[name].partition_count) for name in group.topic_names() & topics.by_name.keys()
        }
        shared = {topic_id: topic for topic_id, topic in group.shared.items() if topic_id in topics.names_by_id}
        draft.write(*_share(group, shared, wanted, topics))


def _share(
    group: ShareGroup, shared: dict[Uuid, SharedTopic], wanted: Mapping[str, Iterable[int]], topics: Topics
) -> tuple[CoordinatorRecord, ...]:
    """The record of what is shared already and of what is wanted besides, unless that is what is known."""
    for name, partitions in wanted.items():
        topic_id = topics.by_name[name].topic_id
        had = shared[topic_id].partitions if topic_id in shared else frozenset()
        shared[topic_id] = SharedTopic(name, had.union(partitions))
    return () if shared == group.shared else (facts.shared_topics(group.group_id, shared),)


def _update_targets(draft: Draft[ShareGroup], topics: Topics, now_ms: int) -> None:
    """Compute the assignment anew if it is older than the group's epoch, and write what has changed."""
    group = draft.group
    if group.epoch <= group.assignment_epoch:
        return
    members = {
        member_id: Subscriber(topics.ids_of(member.topic_names), group.target(member_id))
        for member_id, member in group.members.items()
    }
    topic_ids = frozenset().union(*(member.topics for member in members.values()))
    targets = assign_shared(members, topics.partition_counts(topic_ids), topics.whole_ones(topic_ids))
    for member_id, target in targets.items():
        if target != group.targets.get(member_id):
            draft.write(facts.target_assignment(group.group_id, member_id, target))
    draft.write(facts.assignment_epoch(group.group_id, group.epoch, now_ms))


def _to_answer(assignment: Assignment) -> AnsweredAssignment:
    return AnsweredAssignment(
        topic_partitions=[
            TopicPartitions(topic_id=topic_id, partitions=sorted(assignment[topic_id]))
            for topic_id in sorted(assignment)
        ]
    )


def _describe_member(member: ShareMember, topics: Topics | None) -> described.Member:
    names = {} if topics is None else topics.names_by_id
    return described.Member(
        member_id=member.member_id,
        rack_id=member.rack_id,
        member_epoch=member.epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=sorted(member.topic_names),
        assignment=described.Assignment(
            topic_partitions=[
                described.TopicPartitions(
                    topic_id=topic_id, topic_name=names[topic_id], partitions=sorted(member.assigned[topic_id])
                )
                for topic_id in sorted(member.assigned)
                if topic_id in names
            ]
        ),
    )
