"""Streams groups in the shell of the tests, and the requests of their members with everything filled in."""

from headrace.coordinator.group.settings import GroupSettings
from headrace.coordinator.group.streams.kind import StreamsGroups
from headrace.coordinator.group.streams.tasks import Task, Tasks, list_tasks, read_tasks
from headrace.protocol.messages.shared import KeyValue, TopicInfo
from headrace.protocol.messages.streams_group_heartbeat import (
    StreamsGroupHeartbeatRequest,
    StreamsGroupHeartbeatResponse,
    Subtopology,
    Topology,
)
from tests.unit.coordinator.group_consumer.harness import GROUP, Shell

AT_ONCE = GroupSettings(group_streams_initial_rebalance_delay_ms=0)
COMPACT = [KeyValue(key="cleanup.policy", value="compact")]


def one_stage(*sources: str, changelogs: tuple[str, ...] = (), epoch: int = 0, **fields: object) -> Topology:
    """A topology of one subtopology."""
    logs = [TopicInfo(name=name, topic_configs=COMPACT) for name in changelogs]
    only = Subtopology(subtopology_id="0", source_topics=list(sources), state_changelog_topics=logs, **fields)
    return Topology(epoch=epoch, subtopologies=[only])


def word_count(source: str = "lines") -> Topology:
    """Lines are split and repartitioned by word, and the words counted."""
    split = Subtopology(subtopology_id="0", source_topics=[source], repartition_sink_topics=["words"])
    count = Subtopology(
        subtopology_id="1",
        repartition_source_topics=[TopicInfo(name="words")],
        state_changelog_topics=[TopicInfo(name="counts", replication_factor=1, topic_configs=COMPACT)],
    )
    return Topology(epoch=0, subtopologies=[split, count])


def tasks(**numbers: list[int]) -> frozenset[Task]:
    """`_0=[1, 2]` are the tasks 1 and 2 of subtopology 0."""
    return frozenset(Task(name.removeprefix("_"), number) for name, some in numbers.items() for number in some)


def told(response: StreamsGroupHeartbeatResponse) -> Tasks | None:
    """What a member was told to have; None if nothing was said of it."""
    if response.active_tasks is None:
        return None
    return Tasks(*map(read_tasks, (response.active_tasks, response.standby_tasks, response.warmup_tasks)))


def codes(response: StreamsGroupHeartbeatResponse) -> list[int]:
    return [status.status_code for status in response.status]


class StreamsShell(Shell):
    groups = StreamsGroups

    def __init__(self, settings: GroupSettings = AT_ONCE, **topics: int) -> None:
        super().__init__(settings, **topics)

    def beat(
        self, member_id: str, epoch: int, owned: Tasks | None = None, **fields: object
    ) -> StreamsGroupHeartbeatResponse:
        if owned is not None:
            names = ("active_tasks", "standby_tasks", "warmup_tasks")
            fields |= {name: list_tasks(some) for name, some in zip(names, owned, strict=True)}
        asked = StreamsGroupHeartbeatRequest(group_id=GROUP, member_id=member_id, member_epoch=epoch, **fields)
        return self.ask(asked, 0)

    def join(self, member_id: str, topology: Topology | None = None, **fields: object) -> StreamsGroupHeartbeatResponse:
        """Join as a process of one's own, unless another is named."""
        fields = {"rebalance_timeout_ms": 60_000, "process_id": f"process of {member_id}", "client_tags": []} | fields
        return self.beat(member_id, 0, Tasks(), topology=topology or one_stage("lines"), **fields)
