"""How far the groups have read: what is committed, and what is so once its transaction is.

What always holds: of two commits for a partition the one that stands later in the log counts, whether it came with a
transaction or not, and whenever its transaction ended. An offset is of the topic that it was committed for, by that
topic's id, and never counts for another of the same name; one without an id, as earlier versions wrote them, is of the
topic that has its name.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from headrace.coordinator.decision import CoordinatorRecord
from headrace.coordinator.group.record_formats import OffsetCommitKey, OffsetCommitValue
from headrace.coordinator.group.topics import Topics
from headrace.model import NO_PRODUCER_ID, TopicPartition
from headrace.protocol.schema import ZERO_UUID, Uuid


@dataclass(frozen=True, slots=True)
class TransactionMarker:
    """The key of the record that ends a transaction here; its value says whether it was committed.

    It is not written: the marker itself is, as a control batch.
    """

    producer_id: int


@dataclass(frozen=True, slots=True)
class CommittedOffset:
    """The next offset to read, and what the client wants to be kept with it."""

    offset: int
    leader_epoch: int
    metadata: str
    committed_at_ms: int
    expires_at_ms: int | None
    topic_id: Uuid
    order: int = field(default=0, compare=False)  # of two, the later in the log has the higher one


class GroupPartition(NamedTuple):
    group_id: str
    partition: TopicPartition


Offsets = Mapping[TopicPartition, CommittedOffset]
_NONE: Offsets = {}


class OffsetStore:
    """The offsets of all groups of one partition of `__consumer_offsets`."""

    def __init__(self) -> None:
        self._committed: dict[str, dict[TopicPartition, CommittedOffset]] = {}
        self._by_topic: dict[str, dict[str, dict[TopicPartition, None]]] = {}  # what is committed, in order
        self._pending: dict[int, dict[GroupPartition, CommittedOffset]] = {}  # by the transaction's producer id
        self._order = 0
        self.topics: Topics | None = None  # as they are now; None where nobody tells

    # The only mutations:

    def apply(self, key: OffsetCommitKey, value: OffsetCommitValue | None, producer_id: int = NO_PRODUCER_ID) -> None:
        """Take over a record; one of a transaction waits for its marker."""
        where = GroupPartition(key.group, TopicPartition(key.topic, key.partition))
        if value is None:
            self._forget(where)
            return
        self._order += 1
        offset = CommittedOffset(
            offset=value.offset,
            leader_epoch=value.leader_epoch,
            metadata=value.metadata,
            committed_at_ms=value.commit_timestamp,
            expires_at_ms=None if value.expire_timestamp == -1 else value.expire_timestamp,
            topic_id=value.topic_id,
            order=self._order,
        )
        if producer_id == NO_PRODUCER_ID:
            self._commit(where, offset)
        else:
            self._pending.setdefault(producer_id, {})[where] = offset

    def apply_marker(self, marker: TransactionMarker, *, committed: bool) -> None:
        """End a transaction: its offsets count from now on, or never."""
        for where, offset in self._pending.pop(marker.producer_id, {}).items():
            known = self.committed(where.group_id).get(where.partition)
            if committed and (known is None or known.order < offset.order):
                self._commit(where, offset)

    def _commit(self, where: GroupPartition, offset: CommittedOffset) -> None:
        committed = self._committed.setdefault(where.group_id, {})
        if where.partition not in committed:
            groups = self._by_topic.setdefault(where.partition.topic, {})
            groups.setdefault(where.group_id, {})[where.partition] = None
        committed[where.partition] = offset

    def _forget(self, where: GroupPartition) -> None:
        committed = self._committed.get(where.group_id, {})
        if committed.pop(where.partition, None) is not None:
            groups = self._by_topic[where.partition.topic]
            del groups[where.group_id][where.partition]
            if not groups[where.group_id]:
                del groups[where.group_id]
            if not groups:
                del self._by_topic[where.partition.topic]
        if not committed:
            self._committed.pop(where.group_id, None)
        for producer_id, pending in tuple(self._pending.items()):
            pending.pop(where, None)
            if not pending:
                del self._pending[producer_id]

    # Questions:

    def committed(self, group_id: str) -> Offsets:
        return self._committed.get(group_id, _NONE)

    def all_committed(self) -> Iterator[tuple[str, Offsets]]:
        return iter(tuple(self._committed.items()))

    def current(self, group_id: str, partition: TopicPartition) -> CommittedOffset | None:
        known = self.committed(group_id).get(partition)
        return None if known is None or self._is_outlived(partition, known) else known

    def id_of(self, topic: str) -> Uuid:
        """The id of today's topic of this name, if it is known."""
        known = self.topics.by_name.get(topic) if self.topics else None
        return known.topic_id if known else ZERO_UUID

    def outlived(self, gone: frozenset[str], *, every: bool = False) -> Iterator[GroupPartition]:
        """Every partition with offsets of a topic that is no more: of those in `gone`, which were deleted, or of all.

        One for which a transaction is about to commit an offset of today's topic is left out: forgetting would take
        both.
        """
        waiting: dict[GroupPartition, bool] = {}
        for pending in self._pending.values():
            for where, offset in pending.items():
                is_gone = self._is_outlived(where.partition, offset, gone)
                waiting[where] = waiting.get(where, True) and is_gone
        yield from (where for where, is_gone in waiting.items() if is_gone)
        for topic in self._by_topic if every else sorted(gone):
            for group_id, partitions in self._by_topic.get(topic, {}).items():
                committed = self._committed[group_id]
                for partition in partitions:
                    where = GroupPartition(group_id, partition)
                    if where not in waiting and self._is_outlived(partition, committed[partition], gone):
                        yield where

    def _is_outlived(
        self, partition: TopicPartition, offset: CommittedOffset, gone: frozenset[str] = frozenset()
    ) -> bool:
        if self.topics is None:
            return partition.topic in gone
        today = self.topics.by_name.get(partition.topic)
        if today is None or offset.topic_id == ZERO_UUID:
            return today is None or partition.topic in gone
        return offset.topic_id != today.topic_id

    def is_pending(self, group_id: str, partition: TopicPartition) -> bool:
        where = GroupPartition(group_id, partition)
        return any(where in pending for pending in self._pending.values())

    def pending(self, group_id: str) -> set[TopicPartition]:
        return {
            where.partition for pending in self._pending.values() for where in pending if where.group_id == group_id
        }


def offset_tombstone(group_id: str, partition: TopicPartition) -> CoordinatorRecord:
    key = OffsetCommitKey(group=group_id, topic=partition.topic, partition=partition.partition)
    return CoordinatorRecord(key, None)
