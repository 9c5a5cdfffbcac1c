"""One streams group: what its records say, and nothing else. `apply` is the only thing that changes it.

What always holds: an active task has one owner in `owners`, the member that has it or is still giving it up, and
`copies` counts by process who has a task in any role. Compaction may leave records in an order in which an older claim
comes before the release of it, so the last claim wins, and a release takes away only one's own.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

from headrace.coordinator.decision import CoordinatorRecord
from headrace.coordinator.group.streams import formats as log
from headrace.coordinator.group.streams.facts import read_holding, read_profile, read_target
from headrace.coordinator.group.streams.member import Holding, Member
from headrace.coordinator.group.streams.tasks import NO_TASKS, Task, Tasks
from headrace.coordinator.group.streams.topology import Configured, source_topics
from headrace.protocol.messages.streams_group_heartbeat import Topology
from headrace.protocol.schema import Message


class GroupState(Enum):
    """A group's state, in the words that ListGroups and StreamsGroupDescribe use."""

    EMPTY = "Empty"
    NOT_READY = "NotReady"  # topics are missing, or do not fit the topology
    ASSIGNING = "Assigning"  # the target assignment is older than the group
    RECONCILING = "Reconciling"  # members are on their way to it
    STABLE = "Stable"


class Passing(NamedTuple):
    """The key of a record that is not kept: what a group knows until the next restart, by the name of its field."""

    group_id: str
    field: str


@dataclass(slots=True)
class StreamsGroup:
    group_id: str
    exists: bool = False
    epoch: int = 0
    metadata_hash: int = 0
    validated_topology_epoch: int = -1
    assignment_configs: tuple[tuple[str, str], ...] = ()  # what the last epoch was made with
    topology: Topology | None = None
    assignment_epoch: int = 0
    members: dict[str, Member] = field(default_factory=dict)
    targets: dict[str, Tasks] = field(default_factory=dict)
    # Derived from the above:
    owners: dict[Task, str] = field(default_factory=dict)
    copies: Counter[tuple[str, Task]] = field(default_factory=Counter)
    readers: Mapping[str, list[str]] = field(default_factory=dict)  # source topic → subtopologies
    # Not kept over a restart, and so no part of what makes two states equal:
    configured: Configured | None = field(default=None, compare=False)
    endpoint_epoch: int = field(default=0, compare=False)  # grows whenever somebody with an endpoint gets other tasks
    shutdown_requested_by: str | None = field(default=None, compare=False)
    is_delayed: bool = field(default=False, compare=False)  # a group that has just begun waits for more members

    @property
    def state(self) -> GroupState:
        """Where the group is on its way to the target assignment."""
        if not self.members:
            return GroupState.EMPTY
        if self.topology is None or self.topology.epoch != self.validated_topology_epoch:
            return GroupState.NOT_READY
        if self.epoch > self.assignment_epoch:
            return GroupState.ASSIGNING
        if all(member.holding.is_reconciled_to(self.assignment_epoch) for member in self.members.values()):
            return GroupState.STABLE
        return GroupState.RECONCILING

    def target(self, member_id: str) -> Tasks:
        return self.targets.get(member_id, NO_TASKS)

    def is_free(self, task: Task, member: Member, *, is_active: bool) -> bool:
        """Whether no other member holds what this one is to take: the active task, or a copy of it in its process."""
        member_id, holding = member.member_id, member.holding
        own = sum(task in tasks for held in (holding.assigned, holding.revoking) for tasks in held)
        is_owned = is_active and self.owners.get(task, member_id) != member_id
        return not is_owned and self.copies[member.profile.process_id, task] == own

    def has_had(self, member: Member, topic: str, partition: int, epoch: int) -> bool:
        """Whether the member reads this partition, and has done so without a break since this epoch."""
        since = (member.holding.since.get(Task(reader, partition)) for reader in self.readers.get(topic, ()))
        return any(first is not None and first <= epoch for first in since)

    def copy(self) -> "StreamsGroup":
        """A copy that may be changed without changing this one; what is in the mappings never changes."""
        return StreamsGroup(
            self.group_id,
            self.exists,
            self.epoch,
            self.metadata_hash,
            self.validated_topology_epoch,
            self.assignment_configs,
            self.topology,
            self.assignment_epoch,
            self.members.copy(),
            self.targets.copy(),
            self.owners.copy(),
            self.copies.copy(),
            self.readers,
            self.configured,
            self.endpoint_epoch,
            self.shutdown_requested_by,
            self.is_delayed,
        )

    def apply(self, record: CoordinatorRecord) -> None:
        key, value = record.key, record.value
        if isinstance(key, Passing):
            setattr(self, key.field, value)
            return
        assert isinstance(key, Message)
        assert value is None or isinstance(value, Message)
        if value is None:
            self._remove(key)
        else:
            self.exists = True
            self._set(key, value)
        if not self.members:
            self.shutdown_requested_by = None

    def _set(self, key: Message, value: Message) -> None:
        match key, value:
            case log.StreamsGroupMetadataKey(), log.StreamsGroupMetadataValue():
                self.epoch = value.epoch
                self.metadata_hash = value.metadata_hash
                self.validated_topology_epoch = value.validated_topology_epoch
                self.assignment_configs = tuple((each.key, each.value) for each in value.last_assignment_configs or ())
            case log.StreamsGroupTopologyKey(), log.StreamsGroupTopologyValue():
                self.topology = Topology(epoch=value.epoch, subtopologies=value.subtopologies)
                readers: dict[str, list[str]] = {}
                for each in value.subtopologies:
                    for topic in source_topics(each):
                        readers.setdefault(topic, []).append(each.subtopology_id)
                self.readers = readers
            case log.StreamsGroupTargetAssignmentMetadataKey(), log.StreamsGroupTargetAssignmentMetadataValue():
                self.assignment_epoch = value.assignment_epoch
            case log.StreamsGroupTargetAssignmentMemberKey(), log.StreamsGroupTargetAssignmentMemberValue():
                self.targets[key.member_id] = read_target(value)
            case log.StreamsGroupMemberMetadataKey(), log.StreamsGroupMemberMetadataValue():
                self._put(self._member(key.member_id)._replace(profile=read_profile(value)))
            case log.StreamsGroupCurrentMemberAssignmentKey(), log.StreamsGroupCurrentMemberAssignmentValue():
                self._put(self._member(key.member_id)._replace(holding=read_holding(value)))

    def _remove(self, key: Message) -> None:
        match key:
            case log.StreamsGroupMetadataKey():
                self.exists = False
            case log.StreamsGroupTopologyKey():
                self.topology, self.readers = None, {}
            case log.StreamsGroupTargetAssignmentMetadataKey():
                self.assignment_epoch = -1
            case log.StreamsGroupTargetAssignmentMemberKey():
                self.targets.pop(key.member_id, None)
            case log.StreamsGroupCurrentMemberAssignmentKey():
                if member := self.members.get(key.member_id):
                    self._put(member._replace(holding=Holding()))
            case log.StreamsGroupMemberMetadataKey():
                self._drop(key.member_id)

    def _member(self, member_id: str) -> Member:
        return self.members.get(member_id) or Member(member_id)

    def _put(self, member: Member) -> None:
        self._drop(member.member_id)
        self.members[member.member_id] = member
        for task in member.holding.since:
            self.owners[task] = member.member_id
        for task in _held(member):
            self.copies[member.profile.process_id, task] += 1

    def _drop(self, member_id: str) -> None:
        if (member := self.members.pop(member_id, None)) is None:
            return
        for task in member.holding.since:
            if self.owners.get(task) == member_id:
                del self.owners[task]
        for task in _held(member):
            place = member.profile.process_id, task
            self.copies[place] -= 1
            if not self.copies[place]:
                del self.copies[place]


def _held(member: Member) -> list[Task]:
    return [*member.holding.assigned.each(), *member.holding.revoking.each()]
