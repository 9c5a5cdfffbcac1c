"""A topic as a whole: what `admin`, `offsets` and the metadata know of it, together."""

import contextlib
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from headrace.client import admin
from headrace.client.cluster import Cluster
from headrace.client.errors import Refused, VersionNotSpoken
from headrace.client.metadata import Partition, Topic
from headrace.client.offsets import Bounds, bounds
from headrace.model import TopicPartition


@dataclass(frozen=True, slots=True)
class PartitionDescription:
    """One partition; `size_bytes` is None where the broker does not tell."""

    partition: Partition
    bounds: Bounds
    size_bytes: int | None

    @property
    def records(self) -> int:
        """How many offsets it holds: more than there are records, where compaction or transactions left gaps."""
        return self.bounds.end - self.bounds.start


@dataclass(frozen=True, slots=True)
class TopicDescription:
    """One topic, its partitions, and the settings that are its own."""

    topic: Topic
    partitions: list[PartitionDescription]
    configs: list[admin.Config]


def describe_topic(cluster: Cluster, name: str) -> TopicDescription:
    """Everything about a topic."""
    topic = cluster.topic(name, refresh=True)
    partitions = cluster.partitions(name)
    held = bounds(cluster, partitions)
    sizes: Mapping[TopicPartition, int] = {}
    # A hosted Kafka may keep its disks to itself; the rest is worth showing all the same.
    with contextlib.suppress(Refused, VersionNotSpoken):
        sizes = admin.describe_log_dirs(cluster, partitions)
    return TopicDescription(
        topic,
        [
            PartitionDescription(topic.partitions[where.partition], held[where], sizes.get(where))
            for where in partitions
        ],
        [config for config in admin.describe_configs(cluster, name) if config.is_own],
    )


def alter_topic(
    cluster: Cluster,
    name: str,
    *,
    partitions: int | None = None,
    changes: Mapping[str, str],
    unset: Collection[str] = (),
) -> None:
    """Give a topic more partitions and other settings: all of it or, if the broker would refuse a part, none."""
    cluster.topic(name, refresh=True)
    for validate_only in (True, False):
        if partitions is not None:
            admin.add_partitions(cluster, name, partitions, validate_only=validate_only)
        if changes or unset:
            admin.alter_configs(cluster, name, changes=changes, unset=unset, validate_only=validate_only)
