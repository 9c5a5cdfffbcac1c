"""One consumer group: what its records say, and nothing else. `apply` is the only thing that changes it.

What always holds: a partition has one owner in `owners`, the member that has it or is still giving it up. Compaction
may leave records in an order in which an older claim comes before the release of it, so the last claim wins, and a
release takes away only one's own.
"""

from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

from headrace.coordinator.decision import CoordinatorRecord
from headrace.coordinator.group import record_formats as log
from headrace.coordinator.group.assignors import NO_PARTITIONS, Assignment
from headrace.coordinator.group.consumer.facts import read_holding, read_partitions, read_profile
from headrace.coordinator.group.consumer.member import Holding, Member
from headrace.protocol.schema import Message, Uuid


class GroupState(Enum):
    """A group's state, in the words that ListGroups and ConsumerGroupDescribe use."""

    EMPTY = "Empty"
    ASSIGNING = "Assigning"  # the target assignment is older than the group
    RECONCILING = "Reconciling"  # members are on their way to it
    STABLE = "Stable"


class TopicsSeen(NamedTuple):
    """The key of a record that is not kept: the group has been compared with the topics of this version."""

    group_id: str


class RejoinDeadline(NamedTuple):
    """The key of a record that is not kept: until when a classic member has been told to join again."""

    group_id: str
    member_id: str


@dataclass(slots=True)
class ConsumerGroup:
    group_id: str
    exists: bool = False
    epoch: int = 0
    metadata_hash: int = 0
    assignment_epoch: int = 0
    members: dict[str, Member] = field(default_factory=dict)
    targets: dict[str, Assignment] = field(default_factory=dict)
    expressions: dict[str, frozenset[str]] = field(default_factory=dict)  # regular expression → names of topics
    has_legacy_topics: bool = False  # there is a record of a kind that is no longer written
    # Derived from the above:
    owners: dict[tuple[Uuid, int], str] = field(default_factory=dict)
    instances: dict[str, str] = field(default_factory=dict)  # instance id → member id
    # Not kept over a restart, and so no part of what makes two states equal:
    topics_seen: int | None = field(default=None, compare=False)
    rejoin_deadlines: dict[str, int] = field(default_factory=dict, compare=False)

    @property
    def state(self) -> GroupState:
        """Where the group is on its way to the target assignment."""
        if not self.members:
            return GroupState.EMPTY
        if self.epoch > self.assignment_epoch:
            return GroupState.ASSIGNING
        if all(member.holding.is_reconciled_to(self.assignment_epoch) for member in self.members.values()):
            return GroupState.STABLE
        return GroupState.RECONCILING

    def static_member(self, instance_id: str) -> Member | None:
        return self.members.get(self.instances.get(instance_id, ""))

    def target(self, member_id: str) -> Assignment:
        return self.targets.get(member_id, NO_PARTITIONS)

    def is_free(self, topic_id: Uuid, partition: int, member_id: str) -> bool:
        return self.owners.get((topic_id, partition), member_id) == member_id

    def topic_names(self, member: Member) -> frozenset[str]:
        """The topics that the member wants, by name and by regular expression."""
        matched = self.expressions.get(member.profile.topic_regex or "")
        return member.profile.topic_names | matched if matched else member.profile.topic_names

    def all_topic_names(self) -> frozenset[str]:
        distinct = {member.profile.subscription: member for member in self.members.values()}
        return frozenset().union(*(self.topic_names(member) for member in distinct.values()))

    def copy(self) -> "ConsumerGroup":
        """A copy that may be changed without changing this one; what is in the mappings never changes."""
        return ConsumerGroup(
            self.group_id,
            self.exists,
            self.epoch,
            self.metadata_hash,
            self.assignment_epoch,
            self.members.copy(),
            self.targets.copy(),
            self.expressions.copy(),
            self.has_legacy_topics,
            self.owners.copy(),
            self.instances.copy(),
            self.topics_seen,
            self.rejoin_deadlines.copy(),
        )

    def apply(self, record: CoordinatorRecord) -> None:
        key, value = record.key, record.value
        if isinstance(key, TopicsSeen):
            assert isinstance(value, int)
            self.topics_seen = value
            return
        if isinstance(key, RejoinDeadline):
            self.rejoin_deadlines.pop(key.member_id, None)
            if isinstance(value, int):
                self.rejoin_deadlines[key.member_id] = value
            return
        assert isinstance(key, Message)
        if value is None:
            self._remove(key)
        else:
            assert isinstance(value, Message)
            self.exists = True
            self._set(key, value)

    def _set(self, key: Message, value: Message) -> None:
        match key, value:
            case log.ConsumerGroupMetadataKey(), log.ConsumerGroupMetadataValue():
                self.epoch = value.epoch
                self.metadata_hash = value.metadata_hash
            case log.ConsumerGroupTargetAssignmentMetadataKey(), log.ConsumerGroupTargetAssignmentMetadataValue():
                self.assignment_epoch = value.assignment_epoch
            case log.ConsumerGroupTargetAssignmentMemberKey(), log.ConsumerGroupTargetAssignmentMemberValue():
                self.targets[key.member_id] = read_partitions(value.topic_partitions)
            case log.ConsumerGroupMemberMetadataKey(), log.ConsumerGroupMemberMetadataValue():
                self._put(self._member(key.member_id)._replace(profile=read_profile(value)))
            case log.ConsumerGroupCurrentMemberAssignmentKey(), log.ConsumerGroupCurrentMemberAssignmentValue():
                self._put(self._member(key.member_id)._replace(holding=read_holding(value)))
            case log.ConsumerGroupRegularExpressionKey(), log.ConsumerGroupRegularExpressionValue():
                self.expressions[key.regular_expression] = frozenset(value.topics)
            case log.ConsumerGroupPartitionMetadataKey(), _:
                self.has_legacy_topics = True

    def _remove(self, key: Message) -> None:
        match key:
            case log.ConsumerGroupMetadataKey():
                self.exists = False
            case log.ConsumerGroupTargetAssignmentMetadataKey():
                self.assignment_epoch = -1
            case log.ConsumerGroupTargetAssignmentMemberKey():
                self.targets.pop(key.member_id, None)
            case log.ConsumerGroupCurrentMemberAssignmentKey():
                if member := self.members.get(key.member_id):
                    self._put(member._replace(holding=Holding()))
            case log.ConsumerGroupMemberMetadataKey():
                self._drop(key.member_id)
                self.rejoin_deadlines.pop(key.member_id, None)
            case log.ConsumerGroupRegularExpressionKey():
                self.expressions.pop(key.regular_expression, None)
            case log.ConsumerGroupPartitionMetadataKey():
                self.has_legacy_topics = False

    def _member(self, member_id: str) -> Member:
        return self.members.get(member_id) or Member(member_id)

    def _put(self, member: Member) -> None:
        self._drop(member.member_id)
        self.members[member.member_id] = member
        for partition in member.holding.since:
            self.owners[partition] = member.member_id
        if member.profile.instance_id is not None:
            self.instances[member.profile.instance_id] = member.member_id

    def _drop(self, member_id: str) -> None:
        if (member := self.members.pop(member_id, None)) is None:
            return
        for partition in member.holding.since:
            if self.owners.get(partition) == member_id:
                del self.owners[partition]
        instance_id = member.profile.instance_id
        if instance_id is not None and self.instances.get(instance_id) == member_id:
            del self.instances[instance_id]
