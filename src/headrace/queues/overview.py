"""What queues there are and how they are doing: depth, age, what is in flight, what came again, dead letters.

A queue is a topic that a share group has, or whose records may ask for more (`headrace.queue`). Groups of one queue
have all its messages, each for itself, so that most numbers are a group's. They come from what Kafka's APIs tell; what
only our broker knows is None on others, which means unknown.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from headrace.client.admin import settings_of_topics
from headrace.client.cluster import Cluster
from headrace.client.coordinators import Coordinators
from headrace.client.errors import UnknownGroup
from headrace.client.groups import SHARE, list_groups
from headrace.client.lag import PartitionLag, describe_lag

QUEUE_SETTING: Final = "headrace.queue"
_SETTINGS_EVERY_MS: Final = 30_000


class Letters(NamedTuple):
    """The dead letters of a group; `number` is exact, or an upper bound where there are very many."""

    topic: str
    number: int
    is_exact: bool = True


@dataclass(frozen=True, slots=True)
class QueueGroup:
    """One share group of a queue; what is not known is None."""

    name: str
    state: str
    members: int
    partitions: tuple[PartitionLag, ...]
    letters: Letters | None = None  # None if it has no topic for them

    @property
    def depth(self) -> int | None:
        """How many messages it has yet to finish, those in flight among them."""
        return _sum(lag.records for lag in self.partitions)

    @property
    def oldest_ms(self) -> int | None:
        """The timestamp of the oldest message that it has yet to finish."""
        return min((lag.next_ms for lag in self.partitions if lag.next_ms is not None), default=None)

    @property
    def in_flight(self) -> int | None:
        """How many messages its members hold now."""
        return _sum(lag.shared.in_flight for lag in self.partitions if lag.shared)

    @property
    def redeliveries(self) -> int | None:
        """How many messages were delivered again since the broker started."""
        return _sum(lag.shared.redeliveries for lag in self.partitions if lag.shared)

    def age_ms(self, now_ms: int) -> int | None:
        return None if self.oldest_ms is None else max(now_ms - self.oldest_ms, 0)


@dataclass(frozen=True, slots=True)
class Queue:
    topic: str
    groups: tuple[QueueGroup, ...] = ()

    def group(self, name: str) -> QueueGroup | None:
        return next((group for group in self.groups if group.name == name), None)


class GroupSeen(NamedTuple):
    """A share group, as whoever looked at it has it."""

    name: str
    state: str
    members: int
    partitions: Sequence[PartitionLag]


def assemble(
    groups: Iterable[GroupSeen], declared: Collection[str], letters: Mapping[str, Letters]
) -> dict[str, Queue]:
    """The queues, by their topics: those that groups have, and those that are declared to be queues."""
    found: dict[str, list[QueueGroup]] = {topic: [] for topic in declared}
    for group in groups:
        for topic in sorted({lag.partition.topic for lag in group.partitions}):
            partitions = tuple(lag for lag in group.partitions if lag.partition.topic == topic)
            seen = QueueGroup(group.name, group.state, group.members, partitions, letters.get(group.name))
            found.setdefault(topic, []).append(seen)
    return {topic: Queue(topic, tuple(groups)) for topic, groups in sorted(found.items())}


def find_queues(coordinators: Coordinators) -> dict[str, Queue]:
    """Look at all queues of a cluster once."""
    cluster = coordinators.cluster
    seen = []
    for listing in list_groups(cluster):
        if listing.kind.lower() != SHARE:
            continue
        try:
            described = describe_lag(coordinators, listing.name)
        except UnknownGroup:
            continue  # it went between the two questions
        group = described.group
        seen.append(GroupSeen(group.name, group.state, len(group.members), described.partitions))
    topics = [topic.name for topic in cluster.topics() if not topic.is_internal]
    return QueueLook().look(cluster, seen, topics, 0)


class QueueLook:
    """Looks at queues again and again, and asks seldom for what seldom changes."""

    def __init__(self) -> None:
        self._declared: set[str] = set()
        self._topics: list[str] = []
        self._asked_ms = 0

    def look(
        self, cluster: Cluster, groups: Collection[GroupSeen], topics: Collection[str], now_ms: int
    ) -> dict[str, Queue]:
        if self._topics != list(topics) or now_ms - self._asked_ms > _SETTINGS_EVERY_MS:
            self._declared = declared_queues(cluster, topics)
            self._topics, self._asked_ms = list(topics), now_ms
        return assemble(groups, self._declared, {})


def declared_queues(cluster: Cluster, topics: Iterable[str]) -> set[str]:
    """Those of the topics that are set to be queues; no topic of a Kafka is."""
    settings = settings_of_topics(cluster, topics, [QUEUE_SETTING])
    return {topic for topic, found in settings.items() if found.get(QUEUE_SETTING) == "true"}


def _sum(numbers: Iterable[int | None]) -> int | None:
    known = [number for number in numbers if number is not None]
    return sum(known) if known else None
