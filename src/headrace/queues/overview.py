"""What queues there are and how they are doing: depth, age, what is in flight, what came again, dead letters.

A queue is a topic that a share group has, or whose records may ask for more (`headrace.queue`). Groups of one queue
have all its messages, each for itself, so that most numbers are a group's. They come from what Kafka's APIs tell; what
only our broker knows is None on others, which means unknown.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from headrace.client.admin import configs_of_groups, configs_of_topics
from headrace.client.cluster import Cluster
from headrace.client.coordinators import Coordinators
from headrace.client.errors import Refused, UnknownGroup, UnknownTopic
from headrace.client.fetch import FetchOptions
from headrace.client.groups import SHARE, list_groups
from headrace.client.lag import PartitionLag, describe_lag
from headrace.client.offsets import Bounds, bounds
from headrace.client.reader import read_records
from headrace.delivery.letters import Letter, takes_back
from headrace.model import TopicPartition

QUEUE_SETTING: Final = "headrace.queue"
LETTERS_SETTING: Final = "errors.deadletterqueue.topic.name"
MOST_COUNTED: Final = 10_000  # records of a dead-letter topic; of more there is an upper bound
_SETTINGS_EVERY_MS: Final = 30_000
_OPTIONS: Final = FetchOptions(max_wait_ms=100, committed=True)


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
        self._letters = LetterCounter()
        self._declared: set[str] = set()
        self._topics: list[str] = []
        self._asked_ms = 0

    def look(
        self, cluster: Cluster, groups: Collection[GroupSeen], topics: Collection[str], now_ms: int
    ) -> dict[str, Queue]:
        if self._topics != list(topics) or now_ms - self._asked_ms > _SETTINGS_EVERY_MS:
            self._declared = declared_queues(cluster, topics)
            self._topics, self._asked_ms = list(topics), now_ms
        return assemble(groups, self._declared, self._letters.count_of(cluster, [group.name for group in groups]))


def declared_queues(cluster: Cluster, topics: Iterable[str]) -> set[str]:
    """Those of the topics that are set to be queues; no topic of a Kafka is."""
    settings = configs_of_topics(cluster, topics, [QUEUE_SETTING], skip_refused=True)
    return {
        topic for topic, found in settings.items() if QUEUE_SETTING in found and found[QUEUE_SETTING].value == "true"
    }


# --- dead letters


def letter_topics_of(cluster: Cluster, groups: Iterable[str]) -> dict[str, str]:
    """The topics for dead letters of those of the groups that have one."""
    settings = configs_of_groups(cluster, groups, [LETTERS_SETTING], skip_refused=True)
    return {group: topic for group, found in settings.items() for each in found.values() if (topic := each.value)}


@dataclass(slots=True)
class _Counted:
    """The letters of one topic, as far as they were read."""

    topic_id: bytes
    starts: Mapping[TopicPartition, int]
    positions: dict[TopicPartition, int]
    live: set[bytes] = field(default_factory=set)


class LetterCounter:
    """Counts dead letters that were not taken back; what was read once is not read again."""

    def __init__(self) -> None:
        self._counted: dict[str, _Counted] = {}

    def count_of(self, cluster: Cluster, groups: Iterable[str]) -> dict[str, Letters]:
        """The letters of each of the groups that has a topic for them."""
        topics = letter_topics_of(cluster, groups)
        counts = {topic: self.count(cluster, topic) for topic in set(topics.values())}
        self._counted = {topic: counted for topic, counted in self._counted.items() if topic in counts}
        return {group: counts[topic] for group, topic in topics.items()}

    def count(self, cluster: Cluster, topic: str) -> Letters:
        """How many letters there are now; none as long as the topic is not there."""
        try:
            partitions = cluster.partitions(topic)
            held = bounds(cluster, partitions, committed=True)
            counted = self._begin(cluster.topic(topic).id, topic, held)
            unread = {where: at for where, at in counted.positions.items() if at < held[where].end}
            if sum(held[where].end - at for where, at in unread.items()) + len(counted.live) > MOST_COUNTED:
                del self._counted[topic]
                return Letters(topic, sum(bound.end - bound.start for bound in held.values()), is_exact=False)
            self._read(cluster, counted, unread, {where: held[where].end for where in unread})
        except (UnknownTopic, Refused):
            self._counted.pop(topic, None)
            return Letters(topic, 0)
        return Letters(topic, len(counted.live))

    def _begin(self, topic_id: bytes, topic: str, held: Mapping[TopicPartition, Bounds]) -> _Counted:
        """What is known of the topic; nothing, if it is another one or has lost its beginning."""
        starts = {where: bound.start for where, bound in held.items()}
        known = self._counted.get(topic)
        if known is None or known.topic_id != topic_id or known.starts != starts:
            known = self._counted[topic] = _Counted(topic_id, starts, dict(starts))
        return known

    def _read(
        self,
        cluster: Cluster,
        counted: _Counted,
        starts: Mapping[TopicPartition, int],
        ends: Mapping[TopicPartition, int],
    ) -> None:
        for records in read_records(cluster, starts, until=ends, options=_OPTIONS) if starts else ():
            for _, record in records:
                if takes_back(record):
                    counted.live.discard(record.key or b"")
                else:
                    counted.live.add(Letter.of(record).id)
        counted.positions.update(ends)


def _sum(numbers: Iterable[int | None]) -> int | None:
    known = [number for number in numbers if number is not None]
    return sum(known) if known else None
