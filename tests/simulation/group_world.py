"""The broker and its groups, and what always holds of them; it is looked at after every single decision.

- A partition has one owner among the members of a consumer group, and none of them reads what the broker does not
  know it to have; in a classic group nobody is assigned what another one is in the same generation.
  Where both kinds are in one group, it changes its kind with them, and both hold to that. A task of a streams group is
  active with one member, and no process has it twice.
- Nobody commits in a generation that is over, nor in an epoch before the last one in which it did not have the
  partition (KIP-1251).
- Offsets: see `group_commits`. What a crash leaves: see `group_history`.
"""

import random
from collections import Counter
from collections.abc import Iterable

from headrace.coordinator.decision import Decision
from headrace.coordinator.group.classic.state import Phase
from headrace.coordinator.group.consumer.embedded import EmbeddedAssignment
from headrace.coordinator.group.consumer.state import ConsumerGroup
from headrace.coordinator.group.streams.group import StreamsGroup
from headrace.coordinator.group.streams.tasks import Task
from headrace.model import TopicPartition
from headrace.protocol import codec
from headrace.testing.clock import FakeClock
from tests.property.test_consumer_group_simulation import Client
from tests.property.test_streams_group_simulation import Client as Thread
from tests.simulation.group_commits import CommitBook
from tests.simulation.group_history import GroupHistory
from tests.simulation.simulated_broker import SETTINGS, SimulatedBroker

TOPICS = {"orders": 4, "payments": 2}
PARTITIONS = [TopicPartition(name, number) for name, count in TOPICS.items() for number in range(count)]
SESSION_MS = 3000
_SETTINGS = {
    **SETTINGS,
    "group.initial.rebalance.delay.ms": "200",
    "group.min.session.timeout.ms": "1000",
    "group.consumer.session.timeout.ms": str(SESSION_MS),
    "group.consumer.heartbeat.interval.ms": "500",
    "group.streams.session.timeout.ms": str(SESSION_MS),
    "group.streams.heartbeat.interval.ms": "500",
    "group.streams.initial.rebalance.delay.ms": "200",
}


class GroupWorld(SimulatedBroker):
    """The broker, and what its clients know to be true."""

    def __init__(self, chance: random.Random, clock: FakeClock, groups: list[str], mixed: frozenset[str]) -> None:
        """In the groups of `mixed` are members of both kinds, and the groups change their kind with them."""
        self.groups = groups
        self.mixed = mixed
        self.commits = CommitBook()
        self.is_quiet = False
        self.consumers: dict[str, list[Client]] = {group: [] for group in groups}
        self.threads: dict[str, list[Thread]] = {group: [] for group in groups}
        self._history = GroupHistory(groups)
        self._assigned: dict[tuple[str, int], dict[TopicPartition, str]] = {}
        self._synced: Counter[str] = Counter()  # the latest generation of which somebody has its assignment
        self._joined: Counter[str] = Counter()  # ... that somebody was told of, since the last crash
        self._epochs: dict[tuple[str, str], int] = {}
        self._without: dict[tuple[str, str], dict[TopicPartition, int]] = {}  # the last epoch without a partition
        self._instances: dict[tuple[str, str], str] = {}
        self._replaced: set[tuple[str, str]] = set()
        self._left: set[tuple[str, str]] = set()
        self._is_loading = False
        super().__init__(chance, clock, _SETTINGS)
        for name, count in TOPICS.items():
            self.broker.topics.create(name, count, {})

    # --- what clients were told

    def joined(self, group: str, generation: int) -> None:
        """A member of a classic group was told that there is this generation."""
        if group in self.mixed:
            return  # its members may be in different ones
        self._joined[group] = max(self._joined[group], generation)

    def synced(
        self, group: str, generation: int, member_id: str, instance_id: str | None, partitions: list[TopicPartition]
    ) -> None:
        """A member of a classic group was told what it has in this generation.

        A static member that comes back takes over from itself, in the same generation (KIP-345).
        """
        if group in self.mixed:
            self._epochs[group, member_id] = generation
            return
        self._synced[group] = max(self._synced[group], generation)
        if instance_id is not None:
            former = self._instances.get((group, instance_id), member_id)
            if former != member_id:
                self._replaced.add((group, former))
            self._instances[group, instance_id] = member_id
        owners = self._assigned.setdefault((group, generation), {})
        for partition in partitions:
            other = owners.setdefault(partition, instance_id or member_id)
            assert other == (instance_id or member_id), f"{group}, {generation}: {other} and {member_id}: {partition}"

    def heard(self, group: str, member_id: str, epoch: int, has: list[TopicPartition]) -> None:
        """A member of a consumer group was told its epoch; it has what it has said, and what it was told."""
        before = self._epochs.get((group, member_id), 0)
        assert epoch >= before, f"{member_id} of {group} went from epoch {before} to {epoch}"
        self._epochs[group, member_id] = epoch
        without = dict.fromkeys(set(PARTITIONS).difference(has), epoch)
        self._without.setdefault((group, member_id), {}).update(without)

    def refused(self, group: str, member_id: str) -> None:
        """A member was told that it is none; in a group that has changed its kind it may begin with a lower epoch."""
        if group in self.mixed:
            self._epochs.pop((group, member_id), None)
            self._without.pop((group, member_id), None)

    def left(self, group: str, member_id: str) -> None:
        """A member of a consumer group was told that it has left."""
        self._left.add((group, member_id))

    def is_ousted(self, group: str, member_id: str, generation: int, partition: TopicPartition) -> bool:
        """Whether it is known that nobody may commit this as this member in this generation or epoch."""
        who = group, member_id
        if who in self._epochs:
            return who in self._left or generation < self._without.get(who, {}).get(partition, 0)
        return who in self._replaced or generation < max(self._synced[group], self._joined[group])

    # --- the broker

    def _prepare(self) -> None:
        self._is_loading = True
        self.broker.watch_groups(self._stepped)

    def crash(self) -> None:
        """The power fails, and comes back."""
        self._joined.clear()
        super().crash()
        self.steps["crashed"] += 1

    def _stepped(self, decision: Decision) -> None:
        groups = self.broker.groups
        store = groups.coordinator._offsets
        if self._is_loading:  # everything was read, and this is the first decision after it
            self._is_loading = False
            self._history.compare(groups)
            self.commits.check(store, self.groups, after_crash=True)
            self._check_promises()
        if not decision.records:
            return
        self.steps["steps"] += 1
        self._history.note(groups, decision)
        self.commits.check(store, self.groups)
        for group in self.groups:
            if found := self.consumer_group(group):
                self._check_consumer_group(found)
            elif streams := self.streams_group(group):
                self._check_streams_group(streams)
            else:
                self._check_classic_group(group)

    def consumer_group(self, group: str) -> ConsumerGroup | None:
        """The group, if it is of the new kind."""
        kind = self.broker.groups.coordinator._consumer
        assert kind is not None
        return kind.group(group) if kind.holds(group) else None

    def streams_group(self, group: str) -> StreamsGroup | None:
        kind = self.broker.groups.coordinator.streams
        assert kind is not None
        return kind.group(group) if kind.holds(group) else None

    def _check_streams_group(self, group: StreamsGroup) -> None:
        owners: dict[Task, str] = {}
        copies: Counter[tuple[str, Task]] = Counter()
        for member_id, member in group.members.items():
            for tasks in (member.holding.assigned, member.holding.revoking):
                copies.update((member.profile.process_id, task) for task in tasks.each())
                for task in tasks.active:
                    other = owners.setdefault(task, member_id)
                    assert other == member_id, f"{group.group_id}: both {other} and {member_id} have {task}"
        assert owners == group.owners
        assert copies == group.copies
        assert all(count == 1 for count in copies.values()), f"{group.group_id}: {copies}"
        for thread in self.threads[group.group_id]:
            if thread.member_id in group.members:
                for task in thread.has.active:
                    assert owners.get(task) == thread.member_id, f"{thread.member_id} works on {task}: {owners}"

    def _check_consumer_group(self, group: ConsumerGroup) -> None:
        owners: dict[tuple[bytes, int], str] = {}
        for member_id, member in group.members.items():
            for holding in (member.holding.assigned, member.holding.revoking):
                for place in places(holding):
                    other = owners.setdefault(place, member_id)
                    assert other == member_id, f"{group.group_id}: both {other} and {member_id} have {place}"
        assert owners == group.owners
        for client in self.consumers[group.group_id]:
            if client.member_id in group.members:
                for place in places(client.has):
                    owner = owners.get(place)
                    assert owner == client.member_id, f"{client.member_id} reads {place}, which {owner} has"

    def _check_classic_group(self, group_id: str) -> None:
        kind = self.broker.groups.coordinator._classic
        if kind.holds(group_id):
            group = kind.group(group_id)
            if group.phase is Phase.STABLE:
                assigned = [p for member in group.members.values() for p in assigned_in(member.assignment)]
                assert len(assigned) == len(set(assigned)), f"{group_id}: {sorted(assigned)}"
                known = self._assigned.get((group_id, group.generation), {})
                for member_id, member in group.members.items():
                    mine = {p for p, owner in known.items() if owner == (member.instance_id or member_id)}
                    assert mine <= set(assigned_in(member.assignment)), f"{member_id} was told {mine}"

    def _check_promises(self) -> None:
        """What members were told of their groups is still so, or has gone on."""
        for group_id in self.groups:
            group = self.consumer_group(group_id) or self.streams_group(group_id)
            for member_id, member in group.members.items() if group else ():
                told = self._epochs.get((group_id, member_id), 0)
                assert (group_id, member_id) not in self._left, f"{member_id} has left, and is back"
                assert not 0 <= member.holding.epoch < told, f"{member_id} was told epoch {told}: {member}"
            if self._synced[group_id]:
                kind = self.broker.groups.coordinator._classic
                assert kind.holds(group_id), f"{group_id} is gone"
                assert kind.group(group_id).generation >= self._synced[group_id]

    # --- the end

    def check_settled(self) -> None:
        """Everybody has been quiet for long: all groups are stable, and all partitions have their owner."""
        for group_id in self.groups:
            group = self.consumer_group(group_id)
            if group:
                assert group.state.value == "Stable", f"{group_id} is {group.state}: {group}"
                clients = [client for client in self.consumers[group_id] if client.member_id in group.members]
                assert len(clients) == len(group.members), f"{group_id} has members that are nobody: {group.members}"
                read = [place for client in clients for place in places(client.has)]
                ids = {name: self.broker.topics.by_name[name].id for name in TOPICS}
                assert sorted(read) == sorted((ids[name], number) for name, number in PARTITIONS), group_id
                assert {client.epoch for client in clients} == {group.epoch}
            elif streams := self.streams_group(group_id):
                assert streams.state.value == "Stable", f"{group_id} is {streams.state}: {streams}"
                threads = [thread for thread in self.threads[group_id] if thread.member_id in streams.members]
                assert len(threads) == len(streams.members), f"{group_id} has members that are nobody"
                work = sorted(task for thread in threads for task in thread.has.active)
                assert work == [Task(name, number) for name in "01" for number in range(TOPICS["orders"])], group_id
                assert {thread.epoch for thread in threads} == {streams.epoch}
            else:
                classic = self.broker.groups.coordinator._classic.group(group_id)
                assert classic.phase is Phase.STABLE, f"{group_id} is {classic.phase}"
                told = self._assigned[group_id, classic.generation]
                assert sorted(told) == sorted(PARTITIONS), f"{group_id} reads {sorted(told)}"
                assert set(told.values()) <= {m.instance_id or m.member_id for m in classic.members.values()}


def places(holding: dict[bytes, Iterable[int]]) -> list[tuple[bytes, int]]:
    """The partitions of an assignment, each with the id of its topic."""
    return [(bytes(topic), number) for topic, numbers in holding.items() for number in numbers]


def assigned_in(assignment: bytes) -> list[TopicPartition]:
    """What a classic member is assigned, in the words that consumers use among themselves."""
    if not assignment:
        return []
    read, _ = codec.decode_prefix(EmbeddedAssignment, 1, assignment, 2)
    return [TopicPartition(each.topic, number) for each in read.assigned_partitions for number in each.partitions]
