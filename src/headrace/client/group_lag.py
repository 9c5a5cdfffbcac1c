"""A group as a whole: what its coordinator, the leaders of its partitions and the topics' settings know, together."""

import contextlib
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from headrace.client import admin
from headrace.client.cluster import Cluster
from headrace.client.coordinators import Coordinators
from headrace.client.errors import OffsetOutOfRange, Refused, UnknownTopic, VersionNotSpoken
from headrace.client.fetch import Fetched, Fetcher, FetchOptions
from headrace.client.groups import Committed, Group, committed_offsets, describe_group
from headrace.client.lag import PartitionLag, Retention
from headrace.client.offsets import bounds, list_offsets
from headrace.model import TopicPartition
from headrace.protocol.api import ApiKey
from headrace.records import headers_in, records_of

_MAX_TIMESTAMP = -3  # ListOffsets: the youngest record (KIP-734)
_MAX_TIMESTAMP_SINCE = 7
# Enough for most first batches, so that one answer tells of many partitions; a larger batch comes whole all the same.
_ONE_BATCH = FetchOptions(max_wait_ms=100, partition_max_bytes=64 * 1024)
_EMPTY_POLLS = 3


@dataclass(frozen=True, slots=True)
class GroupLag:
    """A group and its place in each partition that it reads or has an offset for."""

    group: Group
    partitions: list[PartitionLag]
    gone: Mapping[TopicPartition, Committed]  # offsets in partitions that do not exist any more

    @property
    def has_commits(self) -> bool:
        """Whether the group has ever said how far it is, as far as anybody remembers."""
        return bool(self.gone) or any(lag.committed is not None for lag in self.partitions)


def describe_lag(coordinators: Coordinators, name: str) -> GroupLag:
    """Everything about a group."""
    cluster = coordinators.cluster
    group = describe_group(coordinators, name)
    committed = committed_offsets(coordinators, name)
    wanted = sorted({*committed, *(where for member in group.members for where in member.partitions)})
    there = _existing(cluster, wanted)
    held = bounds(cluster, there)
    bare = [
        PartitionLag(where, committed[where].offset if where in committed else None, *held[where]) for where in there
    ]
    next_ms = timestamps_at(cluster, {lag.partition: lag.next_offset for lag in bare if lag.next_offset is not None})
    newest_ms = _newest(cluster, next_ms)
    sizes: Mapping[TopicPartition, int] = {}
    # A hosted Kafka may keep its disks to itself; the rest is worth showing all the same.
    with contextlib.suppress(Refused, VersionNotSpoken):
        sizes = admin.describe_log_dirs(cluster, there)
    retentions = {topic: _retention(cluster, topic) for topic in {where.topic for where in there}}
    return GroupLag(
        group,
        [
            PartitionLag(
                lag.partition,
                lag.committed,
                lag.start,
                lag.end,
                committed[lag.partition].metadata if lag.partition in committed else "",
                sizes.get(lag.partition),
                next_ms.get(lag.partition),
                newest_ms.get(lag.partition),
                retentions[lag.partition.topic],
            )
            for lag in bare
        ],
        {where: found for where, found in committed.items() if where not in held},
    )


def _existing(cluster: Cluster, wanted: Collection[TopicPartition]) -> list[TopicPartition]:
    there = {topic.name: topic.partitions for topic in cluster.topics()} if wanted else {}
    return [where for where in wanted if where.partition in there.get(where.topic, ())]


def _retention(cluster: Cluster, topic: str) -> Retention:
    try:
        configs = {config.name: config.value for config in admin.describe_configs(cluster, topic)}
    except (Refused, UnknownTopic):
        return Retention()  # kept from us, or deleted a moment ago
    if "delete" not in (configs.get("cleanup.policy") or "delete"):
        return Retention()  # compaction alone removes what a newer record stands for
    return Retention(_limit(configs.get("retention.ms")), _limit(configs.get("retention.bytes")))


def _limit(value: str | None) -> int | None:
    return None if value is None or int(value) < 0 else int(value)


# --- times of records


def _newest(cluster: Cluster, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
    if not partitions or cluster.any_broker().version_of(ApiKey.LIST_OFFSETS) < _MAX_TIMESTAMP_SINCE:
        return {}
    found = list_offsets(cluster, dict.fromkeys(partitions, _MAX_TIMESTAMP))
    return {where: youngest.timestamp for where, youngest in found.items() if youngest.timestamp >= 0}


def timestamps_at(cluster: Cluster, offsets: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
    """The timestamp of the first record at or after an offset in each partition, where there is one."""
    found: dict[TopicPartition, int] = {}
    fetcher = Fetcher(cluster, offsets, _ONE_BATCH)
    empty = 0
    # Where compaction left nothing up to the end there is nothing to wait for.
    while fetcher.positions and empty < _EMPTY_POLLS:
        try:
            answers = fetcher.poll()
        except OffsetOutOfRange as moved:  # removed since we asked for the bounds
            fetcher = Fetcher(
                cluster,
                {where: at for where, at in fetcher.positions.items() if where != moved.partition},
                _ONE_BATCH,
            )
            continue
        empty = 0 if answers else empty + 1
        for fetched in answers:
            fetcher.drop(fetched.partition)
            timestamp = _first_timestamp(fetched)
            if timestamp >= 0:
                found[fetched.partition] = timestamp
    return found


def _first_timestamp(fetched: Fetched) -> int:
    last = -1
    for position, header in headers_in(fetched.records):
        last = header.max_timestamp
        if header.is_control:
            continue
        for record in records_of(fetched.records[position : position + header.size]):
            if record.offset >= fetched.offset:
                return record.timestamp
    return last
