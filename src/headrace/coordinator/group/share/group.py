"""One share group: what its records say, and nothing else. `apply` is the only thing that changes it.

The records are Kafka's own. Besides members and assignments they name the topics whose state is kept in
`__share_group_state`: where the group is in them does not depend on who is a member.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from headrace.coordinator.decision import CoordinatorRecord
from headrace.coordinator.group.assignors import NO_PARTITIONS, Assignment
from headrace.coordinator.group.heartbeats import JOIN_EPOCH
from headrace.protocol import schema as wire


class ShareGroupMemberMetadataKey(wire.Message, versions=range(1)):
    group_id: str = wire.string()
    member_id: str = wire.string()


class ShareGroupMemberMetadataValue(wire.Message, versions=range(1), flexible_since=0):
    rack_id: str | None = wire.nullable_string()
    client_id: str = wire.string()
    client_host: str = wire.string()
    subscribed_topic_names: list[str] = wire.array(wire.STRING)


class ShareGroupMetadataKey(wire.Message, versions=range(1)):
    group_id: str = wire.string()


class ShareGroupMetadataValue(wire.Message, versions=range(1), flexible_since=0):
    epoch: int = wire.int32()
    metadata_hash: int = wire.int64()


class ShareGroupTargetAssignmentMetadataKey(wire.Message, versions=range(1)):
    group_id: str = wire.string()


class ShareGroupTargetAssignmentMetadataValue(wire.Message, versions=range(1), flexible_since=0):
    assignment_epoch: int = wire.int32()
    assignment_timestamp: int = wire.int64(tag=0, ignorable=True)


class TopicPartitions(wire.Struct):
    topic_id: wire.Uuid = wire.uuid()
    partitions: list[int] = wire.array(wire.INT32)


class ShareGroupTargetAssignmentMemberKey(wire.Message, versions=range(1)):
    group_id: str = wire.string()
    member_id: str = wire.string()


class ShareGroupTargetAssignmentMemberValue(wire.Message, versions=range(1), flexible_since=0):
    topic_partitions: list[TopicPartitions] = wire.array(TopicPartitions)


class ShareGroupCurrentMemberAssignmentKey(wire.Message, versions=range(1)):
    group_id: str = wire.string()
    member_id: str = wire.string()


class ShareGroupCurrentMemberAssignmentValue(wire.Message, versions=range(1), flexible_since=0):
    member_epoch: int = wire.int32()
    previous_member_epoch: int = wire.int32()
    state: int = wire.int8()
    assigned_partitions: list[TopicPartitions] = wire.array(TopicPartitions)


class TopicPartitionsInfo(wire.Struct):
    topic_id: wire.Uuid = wire.uuid()
    topic_name: str = wire.string()
    partitions: list[int] = wire.array(wire.INT32)


class TopicInfo(wire.Struct):
    topic_id: wire.Uuid = wire.uuid()
    topic_name: str = wire.string()


class ShareGroupStatePartitionMetadataKey(wire.Message, versions=range(1)):
    group_id: str = wire.string()


class ShareGroupStatePartitionMetadataValue(wire.Message, versions=range(1), flexible_since=0):
    """The topics of which the group has a state; on one broker none is ever half made or half deleted."""

    initializing_topics: list[TopicPartitionsInfo] = wire.array(TopicPartitionsInfo)
    initialized_topics: list[TopicPartitionsInfo] = wire.array(TopicPartitionsInfo)
    deleting_topics: list[TopicInfo] = wire.array(TopicInfo)


class SharedTopic(NamedTuple):
    """A topic of which the group has a state, in these partitions."""

    name: str
    partitions: frozenset[int]


@dataclass(frozen=True, slots=True)
class ShareMember:
    member_id: str
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    topic_names: frozenset[str] = frozenset()
    epoch: int = JOIN_EPOCH
    previous_epoch: int = -1
    assigned: Assignment = field(default_factory=dict)


class SeenTopics(NamedTuple):
    """The key of a record that is not kept: the group has been compared with the topics of this version."""

    group_id: str


@dataclass(slots=True)
class ShareGroup:
    group_id: str
    exists: bool = False
    epoch: int = 0
    metadata_hash: int = 0
    assignment_epoch: int = 0
    members: dict[str, ShareMember] = field(default_factory=dict)
    targets: dict[str, Assignment] = field(default_factory=dict)
    shared: dict[wire.Uuid, SharedTopic] = field(default_factory=dict)
    # Not kept over a restart, and so no part of what makes two states equal:
    topics_seen: int | None = field(default=None, compare=False)

    @property
    def state(self) -> str:
        return "Stable" if self.members else "Empty"

    def target(self, member_id: str) -> Assignment:
        return self.targets.get(member_id, NO_PARTITIONS)

    def topic_names(self) -> frozenset[str]:
        """All topics that some member is subscribed to."""
        return frozenset().union(*(member.topic_names for member in self.members.values()))

    def copy(self) -> "ShareGroup":
        return replace(self, members=self.members.copy(), targets=self.targets.copy(), shared=self.shared.copy())

    def apply(self, record: CoordinatorRecord) -> None:
        key, value = record.key, record.value
        if isinstance(key, SeenTopics):
            assert isinstance(value, int)
            self.topics_seen = value
        elif value is None:
            self._remove(key)
        else:
            self.exists = True
            self._set(key, value)

    def _set(self, key: object, value: object) -> None:
        match key, value:
            case ShareGroupMetadataKey(), ShareGroupMetadataValue():
                self.epoch, self.metadata_hash = value.epoch, value.metadata_hash
            case ShareGroupTargetAssignmentMetadataKey(), ShareGroupTargetAssignmentMetadataValue():
                self.assignment_epoch = value.assignment_epoch
            case ShareGroupTargetAssignmentMemberKey(), ShareGroupTargetAssignmentMemberValue():
                self.targets[key.member_id] = _read(value.topic_partitions)
            case ShareGroupMemberMetadataKey(), ShareGroupMemberMetadataValue():
                self.members[key.member_id] = replace(
                    self._member(key.member_id),
                    rack_id=value.rack_id,
                    client_id=value.client_id,
                    client_host=value.client_host,
                    topic_names=frozenset(value.subscribed_topic_names),
                )
            case ShareGroupCurrentMemberAssignmentKey(), ShareGroupCurrentMemberAssignmentValue():
                self.members[key.member_id] = replace(
                    self._member(key.member_id),
                    epoch=value.member_epoch,
                    previous_epoch=value.previous_member_epoch,
                    assigned=_read(value.assigned_partitions),
                )
            case ShareGroupStatePartitionMetadataKey(), ShareGroupStatePartitionMetadataValue():
                self.shared = {
                    topic.topic_id: SharedTopic(topic.topic_name, frozenset(topic.partitions))
                    for topic in (*value.initializing_topics, *value.initialized_topics)
                }

    def _remove(self, key: object) -> None:
        match key:
            case ShareGroupMetadataKey():
                self.exists = False
            case ShareGroupTargetAssignmentMetadataKey():
                self.assignment_epoch = -1
            case ShareGroupTargetAssignmentMemberKey():
                self.targets.pop(key.member_id, None)
            case ShareGroupMemberMetadataKey():
                self.members.pop(key.member_id, None)
            case ShareGroupCurrentMemberAssignmentKey():
                if member := self.members.get(key.member_id):
                    self.members[key.member_id] = replace(member, epoch=JOIN_EPOCH, previous_epoch=-1, assigned={})
            case ShareGroupStatePartitionMetadataKey():
                self.shared = {}

    def _member(self, member_id: str) -> ShareMember:
        return self.members.get(member_id) or ShareMember(member_id)


# --- the facts about a group, as records


def group_epoch(group_id: str, epoch: int, metadata_hash: int) -> CoordinatorRecord:
    value = ShareGroupMetadataValue(epoch=epoch, metadata_hash=metadata_hash)
    return CoordinatorRecord(ShareGroupMetadataKey(group_id=group_id), value)


def assignment_epoch(group_id: str, epoch: int, now_ms: int) -> CoordinatorRecord:
    value = ShareGroupTargetAssignmentMetadataValue(assignment_epoch=epoch, assignment_timestamp=now_ms)
    return CoordinatorRecord(ShareGroupTargetAssignmentMetadataKey(group_id=group_id), value)


def target_assignment(group_id: str, member_id: str, target: Assignment) -> CoordinatorRecord:
    value = ShareGroupTargetAssignmentMemberValue(topic_partitions=_write(target))
    return CoordinatorRecord(ShareGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id), value)


def member_metadata(group_id: str, member: ShareMember) -> CoordinatorRecord:
    value = ShareGroupMemberMetadataValue(
        rack_id=member.rack_id,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=sorted(member.topic_names),
    )
    return CoordinatorRecord(ShareGroupMemberMetadataKey(group_id=group_id, member_id=member.member_id), value)


def member_assignment(group_id: str, member: ShareMember) -> CoordinatorRecord:
    value = ShareGroupCurrentMemberAssignmentValue(
        member_epoch=member.epoch,
        previous_member_epoch=member.previous_epoch,
        assigned_partitions=_write(member.assigned),
    )
    key = ShareGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member.member_id)
    return CoordinatorRecord(key, value)


def shared_topics(group_id: str, shared: Mapping[wire.Uuid, SharedTopic]) -> CoordinatorRecord:
    value = ShareGroupStatePartitionMetadataValue(
        initialized_topics=[
            TopicPartitionsInfo(topic_id=topic_id, topic_name=topic.name, partitions=sorted(topic.partitions))
            for topic_id, topic in sorted(shared.items())
        ]
    )
    return CoordinatorRecord(ShareGroupStatePartitionMetadataKey(group_id=group_id), value)


def no_member(group_id: str, member_id: str) -> tuple[CoordinatorRecord, ...]:
    """The member is gone; Kafka wants the tombstones in this order."""
    keys = (
        ShareGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member_id),
        ShareGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id),
        ShareGroupMemberMetadataKey(group_id=group_id, member_id=member_id),
    )
    return tuple(CoordinatorRecord(key, None) for key in keys)


def no_group(group_id: str, member_ids: Iterable[str]) -> tuple[CoordinatorRecord, ...]:
    keys = (
        ShareGroupTargetAssignmentMetadataKey(group_id=group_id),
        ShareGroupStatePartitionMetadataKey(group_id=group_id),
        ShareGroupMetadataKey(group_id=group_id),
    )
    members = (record for member_id in member_ids for record in no_member(group_id, member_id))
    return *members, *(CoordinatorRecord(key, None) for key in keys)


def _read(topics: Iterable[TopicPartitions]) -> Assignment:
    return {topic.topic_id: frozenset(topic.partitions) for topic in topics if topic.partitions}


def _write(assignment: Assignment) -> list[TopicPartitions]:
    return [TopicPartitions(topic_id=topic, partitions=sorted(assignment[topic])) for topic in sorted(assignment)]
