"""ConsumerGroupDescribe: a group as its administrator sees it."""

from headrace.coordinator.group.assignors import Assignment
from headrace.coordinator.group.consumer.member import Member
from headrace.coordinator.group.consumer.state import ConsumerGroup
from headrace.coordinator.group.consumer.subscription import preferred_assignor
from headrace.coordinator.group.consumer.topics import Topics
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.consumer_group_describe import (
    Assignment as DescribedAssignment,
)
from headrace.protocol.messages.consumer_group_describe import (
    DescribedGroup,
    TopicPartitions,
)
from headrace.protocol.messages.consumer_group_describe import (
    Member as DescribedMember,
)

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
        members=[_described(group, group.members[member_id], topics) for member_id in sorted(group.members)],
    )


def not_found(group_id: str) -> DescribedGroup:
    """There is no such group of this kind."""
    return DescribedGroup(
        group_id=group_id,
        error_code=ErrorCode.GROUP_ID_NOT_FOUND,
        error_message=f"there is no consumer group {group_id!r}",
    )


def _described(group: ConsumerGroup, member: Member, topics: Topics | None) -> DescribedMember:
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
        assignment=_named(member.holding.assigned, topics),
        target_assignment=_named(group.target(member.member_id), topics),
        member_type=_SPEAKS_CLASSIC if member.is_classic else _SPEAKS_CONSUMER,
    )


def _named(assignment: Assignment, topics: Topics | None) -> DescribedAssignment:
    names = {} if topics is None else topics.names_by_id
    return DescribedAssignment(
        topic_partitions=[
            TopicPartitions(topic_id=topic_id, topic_name=names[topic_id], partitions=sorted(assignment[topic_id]))
            for topic_id in sorted(assignment)
            if topic_id in names
        ]
    )
