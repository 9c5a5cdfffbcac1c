"""How far a group is behind in a partition, and how long until it loses records: arithmetic without IO.

Retention removes whole segments, and the newest record in a segment decides; so a record goes at `loss.left_ms` at the
earliest, and mostly some time later.
"""

import contextlib
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum

from headrace.client import admin
from headrace.client.cluster import Cluster
from headrace.client.coordinators import Coordinators
from headrace.client.errors import OffsetOutOfRange, Refused, UnknownTopic, VersionNotSpoken
from headrace.client.fetch import Fetched, Fetcher, FetchOptions
from headrace.client.groups import SHARE, Committed, Group, committed_offsets, describe_group
from headrace.client.offsets import bounds, list_offsets
from headrace.client.share_groups import ShareOffset, share_offsets
from headrace.model import TopicPartition
from headrace.protocol.api import ApiKey
from headrace.records import headers_in, records_of

HOUR_MS = 3_600_000
_SMALL_SHARE = 0.1


@dataclass(frozen=True, slots=True)
class Retention:
    """How long and how much of a partition is kept; None for no limit."""

    ms: int | None = None
    size_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class Loss:
    """How near the next record to be read is to its removal, by the setting that will remove it."""

    setting: str
    left_ms: int | None  # None if nobody can say: the space runs out at an unknown pace
    share_left: float  # of the retention

    @property
    def is_near(self) -> bool:
        """Whether less than a tenth of the retention is left, or less than an hour.

        Of a retention of two hours or less it is half: otherwise every reader of such a topic would be warned always.
        """
        if self.share_left < _SMALL_SHARE:
            return True
        return self.left_ms is not None and self.left_ms < HOUR_MS and self.share_left < 0.5


@dataclass(frozen=True, slots=True)
class PartitionLag:
    """One partition of a group; what is not known is None."""

    partition: TopicPartition
    committed: int | None
    start: int
    end: int
    metadata: str = ""
    size_bytes: int | None = None
    next_ms: int | None = None  # the timestamp of the record that will be read next
    newest_ms: int | None = None
    retention: Retention = Retention()
    shared: ShareOffset | None = None  # of a share group

    @property
    def records(self) -> int | None:
        """How many offsets the group is behind, with those that were removed, as Kafka counts it.

        A share group finishes records in any order: what it has finished is not counted, where that is known.
        """
        if self.shared is not None and self.shared.unfinished is not None:
            return self.shared.unfinished
        return None if self.committed is None else max(self.end - self.committed, 0)

    @property
    def removed(self) -> int:
        """How many offsets went before the group read them."""
        return 0 if self.committed is None else max(self.start - self.committed, 0)

    @property
    def beyond(self) -> int:
        """How far the group is ahead of the log: it was emptied, or made anew, behind the group's back."""
        return 0 if self.committed is None else max(self.committed - self.end, 0)

    @property
    def next_offset(self) -> int | None:
        """The first offset that is still there to be read; None if there is none, or no place to begin.

        Of a share group it is where the group begins, which Kafka moves when it sees fit: it may be further on.
        """
        if self.committed is None or self.records == 0:
            return None
        first = max(self.committed, self.start)
        return first if first < self.end else None

    @property
    def size_left_bytes(self) -> int | None:
        """About how many bytes there are to be read: the size on disk, by the share of the offsets."""
        if self.size_bytes is None or self.committed is None:
            return None
        if self.next_offset is None:
            return 0
        return self.size_bytes * (self.end - self.next_offset) // (self.end - self.start)

    def age_ms(self, now_ms: int) -> int | None:
        """How old the next record to be read is, by its timestamp; 0 if there is none."""
        if self.committed is None:
            return None
        if self.next_offset is None:
            return 0
        return None if self.next_ms is None else max(now_ms - self.next_ms, 0)

    def loss(self, now_ms: int) -> Loss | None:
        """What threatens the next record to be read first; None if nothing does."""
        threats = list(self._threats(now_ms))
        known = [threat for threat in threats if threat.left_ms is not None]
        if known:
            return min(known, key=lambda threat: (threat.left_ms or 0, threat.share_left))
        return threats[0] if threats else None

    def _threats(self, now_ms: int) -> Iterator[Loss]:
        if self.next_offset is None:
            return
        if self.retention.ms is not None and self.next_ms is not None:
            left_ms = max(self.next_ms + self.retention.ms - now_ms, 0)
            yield Loss("retention.ms", left_ms, left_ms / max(self.retention.ms, 1))
        size = self.size_left_bytes
        if self.retention.size_bytes is not None and size is not None:
            left_bytes = max(self.retention.size_bytes - size, 0)
            # What lies behind this record was written since; let it go on at the same pace.
            passed_ms = None if self.next_ms is None else max(now_ms - self.next_ms, 1)
            left = None if passed_ms is None or size == 0 else left_bytes * passed_ms // size
            yield Loss("retention.bytes", 0 if not left_bytes else left, left_bytes / max(self.retention.size_bytes, 1))


class Trouble(Enum):
    REMOVED = "removed"  # records that were never read are gone
    NEAR_LOSS = "near_loss"
    BEYOND_END = "beyond_end"
    NO_PARTITION = "no_partition"  # there is an offset, but nothing that it could be in


def trouble_of(lag: PartitionLag, now_ms: int) -> Trouble | None:
    """What is wrong, the worst first."""
    if lag.removed:
        return Trouble.REMOVED
    if lag.beyond:
        return Trouble.BEYOND_END
    loss = lag.loss(now_ms)
    return Trouble.NEAR_LOSS if loss and loss.is_near else None


_MAX_TIMESTAMP = -3  # ListOffsets: the youngest record (KIP-734)
_MAX_TIMESTAMP_SINCE = 7
# Enough for most first batches, so that one answer tells of many partitions; a larger batch comes whole all the same.
_ONE_BATCH = FetchOptions(max_wait_ms=100, partition_max_bytes=64 * 1024)
_EMPTY_POLLS = 3


@dataclass(frozen=True, slots=True)
class GroupLag:
    group: Group
    partitions: list[PartitionLag]
    gone: Mapping[TopicPartition, Committed]  # offsets in partitions that do not exist any more

    @property
    def has_commits(self) -> bool:
        """Whether the group has ever said how far it is, as far as anybody remembers."""
        return bool(self.gone) or any(lag.committed is not None for lag in self.partitions)


def describe_lag(coordinators: Coordinators, name: str) -> GroupLag:
    cluster = coordinators.cluster
    group = describe_group(coordinators, name)
    shared: Mapping[TopicPartition, ShareOffset] = {}
    if group.kind == SHARE:
        shared = share_offsets(coordinators, name)
        committed = {where: Committed(found.offset, "") for where, found in shared.items()}
    else:
        committed = committed_offsets(coordinators, name)
    wanted = sorted({*committed, *(where for member in group.members for where in member.partitions)})
    there = _find_existing(cluster, wanted)
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
                shared.get(lag.partition),
            )
            for lag in bare
        ],
        {where: found for where, found in committed.items() if where not in held},
    )


def _find_existing(cluster: Cluster, wanted: Collection[TopicPartition]) -> list[TopicPartition]:
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
                cluster, {where: at for where, at in fetcher.positions.items() if where != moved.partition}, _ONE_BATCH
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
