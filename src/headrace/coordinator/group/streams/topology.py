"""A streams application's topology: its subtopologies, what they read, and the topics that are made for it.

From a topology and the topics that there are follow how many partitions its repartition and changelog topics have, how
many tasks each subtopology has, and what is in the way: sources that are missing or do not fit together, or topics that
have yet to be made. Everything here is pure.
"""

from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import IntEnum

from headrace.coordinator.group.heartbeats import Refusal, invalid
from headrace.coordinator.group.streams.tasks import Task
from headrace.coordinator.group.topics import Topics
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.shared import TopicInfo
from headrace.protocol.messages.streams_group_heartbeat import CopartitionGroup, Status, Subtopology, Topology

MAX_TASKS = 10_000  # as a topic may have partitions; assigning them takes some tenths of a second


class StatusCode(IntEnum):
    """What a member is told besides its tasks, by Kafka's numbers."""

    STALE_TOPOLOGY = 0
    MISSING_SOURCE_TOPICS = 1
    INCORRECTLY_PARTITIONED_TOPICS = 2
    MISSING_INTERNAL_TOPICS = 3
    SHUTDOWN_APPLICATION = 4
    ASSIGNMENT_DELAYED = 5

    def told(self, detail: str) -> Status:
        return Status(status_code=int(self), status_detail=detail)


def invalid_topology(message: str) -> Refusal:
    return Refusal(ErrorCode.STREAMS_INVALID_TOPOLOGY, message)


def source_topics(subtopology: Subtopology) -> Iterator[str]:
    """What a subtopology reads; its tasks have the numbers of these topics' partitions."""
    yield from subtopology.source_topics
    for topic in subtopology.repartition_source_topics:
        yield topic.name


def all_topics(topology: Topology) -> Iterator[str]:
    """Every topic that a topology names, some of them more than once."""
    for subtopology in topology.subtopologies:
        yield from source_topics(subtopology)
        yield from subtopology.repartition_sink_topics
        for topic in subtopology.state_changelog_topics:
            yield topic.name


def check_topology(topology: Topology) -> None:
    """Refuse a topology that makes no sense, whatever topics there are."""
    if topology.epoch < 0:
        raise Refusal(ErrorCode.STREAMS_INVALID_TOPOLOGY_EPOCH, f"Topology.Epoch {topology.epoch} is below zero")
    ids = [subtopology.subtopology_id for subtopology in topology.subtopologies]
    if len(set(ids)) < len(ids):
        raise invalid_topology("the topology has two subtopologies of the same id")
    for subtopology in topology.subtopologies:
        name = subtopology.subtopology_id
        for topic in subtopology.state_changelog_topics:
            if topic.partitions != 0:
                raise invalid_topology(
                    f"changelog topic {topic.name} of subtopology {name} has {topic.partitions} partitions: leave "
                    "their number to the broker (0)"
                )
        if any(topic.partitions < 0 for topic in subtopology.repartition_source_topics):
            raise invalid_topology(f"a repartition topic of subtopology {name} has fewer than no partitions")
        if subtopology.source_topic_regex:
            raise invalid(f"subtopology {name} reads topics by a regular expression, which is unsupported: name them")
        if not any(True for _ in source_topics(subtopology)):
            raise invalid_topology(f"subtopology {name} has no source topics")
        for group in subtopology.copartition_groups:
            lists = (
                (subtopology.source_topics, group.source_topics),
                (
                    subtopology.repartition_source_topics,
                    group.repartition_source_topics,
                ),
            )
            if group.source_topic_regex or any(not 0 <= n < len(topics) for topics, numbers in lists for n in numbers):
                raise invalid_topology(
                    f"a copartition group of subtopology {name} names a source that it does not have"
                )


def normalize(topology: Topology) -> Topology:
    """The same topology in the one order of everything: instances of an application list it in theirs."""
    return Topology(
        epoch=topology.epoch,
        subtopologies=sorted(map(_normalize, topology.subtopologies), key=lambda each: each.subtopology_id),
    )


def _normalize(subtopology: Subtopology) -> Subtopology:
    sources = sorted(set(subtopology.source_topics))
    repartition = _sort_topics(subtopology.repartition_source_topics)
    place = {name: number for number, name in enumerate(sources)}
    made = {topic.name: number for number, topic in enumerate(repartition)}
    groups = [
        CopartitionGroup(
            source_topics=sorted({place[subtopology.source_topics[n]] for n in group.source_topics}),
            repartition_source_topics=sorted(
                {made[subtopology.repartition_source_topics[n].name] for n in group.repartition_source_topics}
            ),
        )
        for group in subtopology.copartition_groups
    ]
    return Subtopology(
        subtopology_id=subtopology.subtopology_id,
        source_topics=sources,
        state_changelog_topics=_sort_topics(subtopology.state_changelog_topics),
        repartition_sink_topics=sorted(set(subtopology.repartition_sink_topics)),
        repartition_source_topics=repartition,
        copartition_groups=sorted(groups, key=lambda group: (group.source_topics, group.repartition_source_topics)),
    )


def _sort_topics(topics: Iterable[TopicInfo]) -> list[TopicInfo]:
    return [
        TopicInfo(
            name=topic.name,
            partitions=topic.partitions,
            replication_factor=topic.replication_factor,
            topic_configs=sorted(topic.topic_configs, key=lambda config: config.key),
        )
        for topic in sorted({topic.name: topic for topic in topics}.values(), key=lambda topic: topic.name)
    ]


@dataclass(frozen=True, slots=True)
class Configured:
    """A topology as it is with the topics that there are."""

    topics_version: int
    topology: Topology
    fingerprint: int  # of the topics that exist
    status: Status | None  # what is in the way; None if it is ready
    task_counts: Mapping[str, int] = field(default_factory=dict)  # by subtopology, in order; empty unless it is ready
    partition_counts: Mapping[str, int] = field(default_factory=dict)  # of the topics that are made for it
    missing: tuple[TopicInfo, ...] = ()  # topics to make, each with its number of partitions

    @property
    def validated_epoch(self) -> int:
        """The epoch of the topology that the topics fit; -1 if they do not."""
        return self.topology.epoch if self.status is None else -1

    def has_task(self, task: Task) -> bool:
        return 0 <= task.partition < self.task_counts.get(task.subtopology_id, 0)

    @property
    def stateful(self) -> list[str]:
        return [each.subtopology_id for each in self.topology.subtopologies if each.state_changelog_topics]


class _InTheWay(Exception):  # no error: it becomes a status, and the member stays
    def __init__(self, code: StatusCode, detail: str) -> None:
        self.status = code.told(detail)


def configure(topology: Topology, topics: Topics) -> Configured:
    """Hold a topology against the topics; refuse one whose numbers of partitions cannot be found."""
    fingerprint = topics.fingerprint(set(all_topics(topology)))
    existing = {name: topics.by_name[name].partition_count for name in all_topics(topology) if name in topics.by_name}
    try:
        _check_sources(topology, existing)
        made = _count_partitions(topology, existing)
        internal = {topic.name: topic for topic in _internal_topics(topology)}
        _check_internal(made, existing)
    except _InTheWay as found:
        return Configured(topics.version, topology, fingerprint, found.status)
    missing = tuple(
        TopicInfo(
            name=name,
            partitions=made[name],
            replication_factor=internal[name].replication_factor,
            topic_configs=internal[name].topic_configs,
        )
        for name in sorted(internal)
        if name not in existing
    )
    if missing:
        detail = "Internal topics are missing: " + ", ".join(topic.name for topic in missing)
        status = StatusCode.MISSING_INTERNAL_TOPICS.told(detail)
        return Configured(topics.version, topology, fingerprint, status, partition_counts=made, missing=missing)
    counts = {**made, **existing}
    tasks = {
        each.subtopology_id: max(counts[name] for name in source_topics(each))
        for each in sorted(topology.subtopologies, key=lambda each: each.subtopology_id)
    }
    if sum(tasks.values()) > MAX_TASKS:
        raise invalid_topology(f"the topology has {sum(tasks.values())} tasks: an application may have {MAX_TASKS}")
    return Configured(topics.version, topology, fingerprint, None, tasks, made)


def _internal_topics(topology: Topology) -> Iterator[TopicInfo]:
    for subtopology in topology.subtopologies:
        yield from subtopology.repartition_source_topics
        yield from subtopology.state_changelog_topics


def _check_sources(topology: Topology, existing: Mapping[str, int]) -> None:
    missing = {name for each in topology.subtopologies for name in each.source_topics if name not in existing}
    if missing:
        detail = f"Source topics {', '.join(sorted(missing))} are missing."
        raise _InTheWay(StatusCode.MISSING_SOURCE_TOPICS, detail)


def _count_partitions(topology: Topology, existing: Mapping[str, int]) -> dict[str, int]:
    """How many partitions each repartition and changelog topic has to have.

    A repartition topic that does not say has as many as the largest source of the subtopologies that write to it, or
    as those that it is to be joined with; a changelog as many as its subtopology has tasks.
    """
    repartition = {topic.name: topic for each in topology.subtopologies for topic in each.repartition_source_topics}
    made = {name: topic.partitions for name, topic in repartition.items() if topic.partitions}
    made |= _follow_writers(topology, {**existing, **made}, repartition.keys() - made.keys())
    for subtopology in topology.subtopologies:
        for copartitioned in _copartition_groups(subtopology):
            made |= _copartition(copartitioned, repartition, made, existing)
    for subtopology in topology.subtopologies:
        tasks = max(made.get(name) or existing[name] for name in source_topics(subtopology))
        made |= {topic.name: tasks for topic in subtopology.state_changelog_topics}
    return made


def _follow_writers(topology: Topology, known: Mapping[str, int], unknown: set[str]) -> dict[str, int]:
    """The numbers of partitions of repartition topics that do not say: the largest source of those who write to them.

    Every source and every sink is looked at once. In a circle of topics, what is known so far decides.
    """
    subtopologies = topology.subtopologies
    sources = [set(source_topics(each)) for each in subtopologies]
    waits_for = [len(names & unknown) for names in sources]
    largest = [max((known[name] for name in names - unknown), default=0) for names in sources]
    readers: dict[str, list[int]] = {}
    writers: Counter[str] = Counter()
    for index, each in enumerate(subtopologies):
        for name in sources[index] & unknown:
            readers.setdefault(name, []).append(index)
        writers.update(set(each.repartition_sink_topics) & unknown)
    ready = deque(index for index, count in enumerate(waits_for) if not count)
    partly = deque(index for index, count in enumerate(waits_for) if count and largest[index])
    counts: dict[str, int] = dict.fromkeys(unknown, 0)
    is_done = [False] * len(subtopologies)
    decided: dict[str, int] = {}
    while ready or partly:
        index = (ready or partly).popleft()
        if is_done[index]:
            continue
        is_done[index] = True
        for name in set(subtopologies[index].repartition_sink_topics) & unknown:
            counts[name] = max(counts[name], largest[index])
            writers[name] -= 1
            if writers[name] or name in decided:
                continue
            decided[name] = counts[name]
            for reader in readers.get(name, ()):
                largest[reader] = max(largest[reader], counts[name])
                waits_for[reader] -= 1
                (partly if waits_for[reader] else ready).append(reader)
    if len(decided) < len(unknown):
        missing = ", ".join(sorted(unknown - decided.keys()))
        raise invalid_topology(f"the number of partitions of {missing} cannot be computed: no subtopology writes to it")
    return decided


def _copartition_groups(subtopology: Subtopology) -> Iterator[set[str]]:
    for group in subtopology.copartition_groups:
        yield {subtopology.source_topics[n] for n in group.source_topics} | {
            subtopology.repartition_source_topics[n].name for n in group.repartition_source_topics
        }


def _copartition(
    topics: Iterable[str], repartition: Mapping[str, TopicInfo], made: Mapping[str, int], existing: Mapping[str, int]
) -> dict[str, int]:
    """The numbers of partitions of those repartition topics that follow the others of their group."""
    given = {name: existing[name] for name in topics if name not in repartition}
    fixed = {name: made[name] for name in topics if name in repartition and repartition[name].partitions}
    flexible = {name: made[name] for name in topics if name in repartition and not repartition[name].partitions}
    counts = {**given, **fixed}
    if len(set(counts.values())) > 1:
        listed = ", ".join(f"{name} ({count})" for name, count in sorted(counts.items()))
        raise _InTheWay(
            StatusCode.INCORRECTLY_PARTITIONED_TOPICS, f"Topics must have the same number of partitions: {listed}"
        )
    common = next(iter(counts.values())) if counts else max(flexible.values(), default=0)
    return dict.fromkeys(flexible, common)


def _check_internal(made: Mapping[str, int], existing: Mapping[str, int]) -> None:
    for name in sorted(made.keys() & existing.keys()):
        if made[name] != existing[name]:
            raise _InTheWay(
                StatusCode.INCORRECTLY_PARTITIONED_TOPICS,
                f"Existing topic {name} has different number of partitions: "
                f"expected {made[name]}, found {existing[name]}",
            )
