"""Looking at a cluster once. A shell: everything here asks brokers, and blocks."""

import contextlib
from collections.abc import Mapping

from headrace.client import admin
from headrace.client.cluster import Cluster, Topic
from headrace.client.coordinators import Coordinators
from headrace.client.errors import ClientError, LostConnection, Refused, UnknownGroup, VersionNotSpoken
from headrace.client.groups import SHARE, GroupListing, list_groups
from headrace.client.lag import describe_lag, timestamps_at
from headrace.client.offsets import Bounds, bounds
from headrace.dashboard.snapshot import GroupSample, PartitionSample, Snapshot, TopicSample
from headrace.model import TopicPartition
from headrace.queues.overview import GroupSeen, QueueLook


def take_snapshot(
    cluster: Cluster, coordinators: Coordinators, now_ms: int, queues: QueueLook | None = None
) -> Snapshot:
    """How everything is now; `queues` remembers what need not be asked each time."""
    topics = cluster.topics()
    brokers = cluster.brokers()
    # A partition that waits for an election cannot be asked, and must not hide the others.
    led = [
        TopicPartition(topic.name, partition.index)
        for topic in topics
        for partition in topic.partitions.values()
        if partition.leader >= 0
    ]
    held = bounds(cluster, led)
    sizes: Mapping[TopicPartition, int] = {}
    with contextlib.suppress(Refused, VersionNotSpoken):  # a hosted Kafka may keep its disks to itself
        sizes = admin.describe_log_dirs(cluster, led)
    seen = [_group(coordinators, listing, now_ms) for listing in list_groups(cluster)]
    groups = {group.name: group for group in seen if group}
    sharing = [
        GroupSeen(group.name, group.state, len(group.members), group.partitions)
        for group in groups.values()
        if group.kind == SHARE
    ]
    own = [topic.name for topic in topics if not topic.is_internal]
    return Snapshot(
        now_ms,
        brokers.cluster_id,
        brokers.controller,
        dict(sorted(brokers.addresses.items())),
        {topic.name: _topic(topic, held, sizes) for topic in topics},
        groups,
        (queues or QueueLook()).look(cluster, sharing, own, now_ms),
    )


def unread_times(
    cluster: Cluster, snapshot: Snapshot, places: Mapping[TopicPartition, int]
) -> dict[TopicPartition, int]:
    """The timestamp of the first record after each place, where there is one."""
    held = {
        TopicPartition(topic.name, partition.index): (partition.start, partition.end)
        for topic in snapshot.topics.values()
        for partition in topic.partitions
        if partition.start is not None and partition.end is not None
    }
    unread = {
        where: max(offset, held[where][0] or 0)
        for where, offset in places.items()
        if where in held and offset < (held[where][1] or 0)
    }
    return timestamps_at(cluster, unread) if unread else {}


def _topic(topic: Topic, held: Mapping[TopicPartition, Bounds], sizes: Mapping[TopicPartition, int]) -> TopicSample:
    partitions = []
    for partition in topic.partitions.values():
        where = TopicPartition(topic.name, partition.index)
        start, end = held.get(where, (None, None))
        partitions.append(
            PartitionSample(
                partition.index,
                partition.leader,
                partition.replicas,
                partition.in_sync,
                start,
                end,
                sizes.get(where),
            )
        )
    # Kafka marks only its own two as internal; what begins with two underscores is nobody's data either.
    return TopicSample(topic.name, topic.is_internal or topic.name.startswith("__"), tuple(partitions))


def _group(coordinators: Coordinators, listing: GroupListing, now_ms: int) -> GroupSample | None:
    try:
        found = describe_lag(coordinators, listing.name)
    except UnknownGroup:
        return None  # it went between the two questions
    except LostConnection:
        raise
    except ClientError as error:
        return GroupSample(listing.name, listing.state, listing.kind, problem=str(error))
    group = found.group
    return GroupSample(
        group.name,
        group.state,
        group.kind,
        group.assignor,
        group.coordinator,
        group.members,
        tuple(found.partitions),
        tuple(found.gone),
        at_ms=now_ms,
    )
