"""A cluster as it was at one moment: values only."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from headrace.client.address import Address
from headrace.client.groups import GroupMember
from headrace.client.lag import PartitionLag
from headrace.model import TopicPartition
from headrace.queues.overview import Queue


@dataclass(frozen=True, slots=True)
class PartitionSample:
    """One partition; start and end are None while it has no leader, the size where the broker does not tell."""

    index: int
    leader: int
    replicas: tuple[int, ...]
    in_sync: tuple[int, ...]
    start: int | None
    end: int | None
    size_bytes: int | None

    @property
    def records(self) -> int:
        return 0 if self.start is None or self.end is None else self.end - self.start

    @property
    def is_whole(self) -> bool:
        """Whether every broker that should hold it is up to date."""
        return self.leader >= 0 and len(self.in_sync) >= len(self.replicas)


@dataclass(frozen=True, slots=True)
class TopicSample:
    name: str
    is_internal: bool
    partitions: tuple[PartitionSample, ...]

    @property
    def records(self) -> int:
        """How many offsets it holds: an upper bound of its records, where compaction left gaps."""
        return sum(partition.records for partition in self.partitions)

    @property
    def written(self) -> int:
        """How many offsets were ever given out in it."""
        return sum(partition.end or 0 for partition in self.partitions)

    @property
    def size_bytes(self) -> int | None:
        known = [partition.size_bytes for partition in self.partitions if partition.size_bytes is not None]
        return sum(known) if known else None


@dataclass(frozen=True, slots=True)
class GroupSample:
    """One group, and its place in each partition; `problem` says why there is nothing more to tell."""

    name: str
    state: str
    kind: str
    assignor: str = ""
    coordinator: int = -1
    members: tuple[GroupMember, ...] = ()
    partitions: tuple[PartitionLag, ...] = ()
    gone: tuple[TopicPartition, ...] = ()
    problem: str | None = None
    at_ms: int = 0  # when it was seen

    @property
    def lag_records(self) -> int | None:
        """How many records it is behind; None if it never said where it is."""
        known = [lag.records for lag in self.partitions if lag.records is not None]
        return sum(known) if known else None

    @property
    def lag_ms(self) -> int | None:
        """The age of the oldest record that it has not read."""
        return max(self.ages_ms().values(), default=None)

    @property
    def topics(self) -> tuple[str, ...]:
        return tuple(sorted({lag.partition.topic for lag in self.partitions}))

    def ages_ms(self) -> dict[TopicPartition, int]:
        """How old the next record of each partition is, where that is known."""
        ages = {lag.partition: lag.age_ms(self.at_ms) for lag in self.partitions}
        return {where: age for where, age in ages.items() if age is not None}

    def readers_of(self, where: TopicPartition) -> list[GroupMember]:
        """The member that reads a partition; of a share group there may be several."""
        return [member for member in self.members if where in member.partitions]


@dataclass(frozen=True, slots=True)
class Snapshot:
    at_ms: int
    cluster_id: str | None = None
    controller: int = -1
    brokers: Mapping[int, Address] = field(default_factory=dict)
    topics: Mapping[str, TopicSample] = field(default_factory=dict)
    groups: Mapping[str, GroupSample] = field(default_factory=dict)
    queues: Mapping[str, Queue] = field(default_factory=dict)

    def waiting(self, places: Mapping[TopicPartition, int]) -> int | None:
        """How many records lie behind these places; None if none of the partitions is known."""
        ends = {
            TopicPartition(topic.name, partition.index): partition.end
            for topic in self.topics.values()
            for partition in topic.partitions
        }
        known = [(ends[where] or 0) - offset for where, offset in places.items() if ends.get(where) is not None]
        return sum(max(behind, 0) for behind in known) if known else None
