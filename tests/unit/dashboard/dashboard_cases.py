"""Snapshots, states and dashboards for tests, made of little."""

from headrace.cli.dashboard import language
from headrace.client.address import Address
from headrace.client.groups import GroupMember
from headrace.client.lag import PartitionLag, Retention
from headrace.client.reader import ReadRecord
from headrace.client.share_groups import ShareOffset
from headrace.dashboard.app import Dashboard
from headrace.dashboard.history import History
from headrace.dashboard.settings import Settings
from headrace.dashboard.snapshot import GroupSample, PartitionSample, Snapshot, TopicSample
from headrace.dashboard.watch import State
from headrace.model import TopicPartition
from headrace.queues.overview import Letters, Queue, QueueGroup
from headrace.records import Record
from headrace.serving.access import Access

NOW = 1_700_000_000_000
TOKEN = "a-token-that-is-long-enough"
NOWHERE = (Address("127.0.0.1", 1),)  # nobody listens there


def topic(name="orders", ends=(100, 200), *, leader=1, in_sync=(1,), replicas=(1,), internal=False):
    return TopicSample(
        name,
        internal,
        tuple(PartitionSample(index, leader, replicas, in_sync, 0, end, end * 10) for index, end in enumerate(ends)),
    )


def lag(partition=0, committed=40, end=100, *, start=0, next_ms=None, retention=None, topic="orders", newest_ms=None):
    return PartitionLag(
        TopicPartition(topic, partition), committed, start, end, "", end * 10, next_ms, newest_ms,
        retention or Retention(),
    )  # fmt: skip


def group(name="billing", partitions=None, *, members=1, state="Stable", problem=None, kind="classic"):
    there = tuple(
        GroupMember(f"m-{index}", None, f"client-{index}", "127.0.0.1", (TopicPartition("orders", index),))
        for index in range(members)
    )
    return GroupSample(
        name,
        state,
        kind,
        "range",
        1,
        there,
        tuple([lag()] if partitions is None else partitions),
        (),
        problem,
        NOW,
    )


def queue(
    name="emails",
    depth=7,
    *,
    group="mailers",
    members=1,
    oldest_ms=NOW - 60_000,
    in_flight=2,
    redeliveries=3,
    letters=1,
    is_exact=True,
):
    """A queue that one group has."""
    shared = ShareOffset(100 - depth, depth, in_flight, redeliveries)
    partition = PartitionLag(TopicPartition(name, 0), 100 - depth, 0, 100, next_ms=oldest_ms, shared=shared)
    kept = None if letters is None else Letters(f"dlq.{name}", letters, is_exact)
    return Queue(name, (QueueGroup(group, "Stable", members, (partition,), kept),))


def snapshot(at_ms=NOW, topics=None, groups=None, queues=()):
    topics = [topic()] if topics is None else topics
    groups = [group()] if groups is None else groups
    return Snapshot(
        at_ms, "a-cluster", 1, {1: Address("127.0.0.1", 9092)}, {found.name: found for found in topics},
        {found.name: found for found in groups}, {found.topic: found for found in queues},
    )  # fmt: skip


def read(key, value, *, at_ms=NOW, offset=0, topic="orders", partition=0):
    encode = lambda text: None if text is None else text if isinstance(text, bytes) else text.encode()  # noqa: E731
    return ReadRecord(TopicPartition(topic, partition), Record(offset, at_ms, encode(key), encode(value)))


def state(found=None, **others):
    found = snapshot() if found is None else found
    return State(1, found.at_ms, found, history=History().advance(found), **others)


def dashboard(found=None, *, port=8088, allow_writes=False, **access):
    """A dashboard that looks at nothing by itself, and knows this state."""
    made = Dashboard(Settings(NOWHERE, language(), port, allow_writes, Access(**access)))
    if found is not None:
        made.desk.watch.state = found
    return made
