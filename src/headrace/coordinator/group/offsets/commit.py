"""OffsetCommit and TxnOffsetCommit: store how far a group has read, if whoever says so is entitled to."""

from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from headrace.coordinator.decision import Answer, CoordinatorRecord, Decision
from headrace.coordinator.group.events import Request
from headrace.coordinator.group.kinds import CommitClaim, GroupKind
from headrace.coordinator.group.offsets.store import OffsetStore
from headrace.coordinator.group.record_formats import OffsetCommitKey, OffsetCommitValue
from headrace.coordinator.group.settings import GroupSettings
from headrace.model import TopicPartition
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitResponse,
    OffsetCommitResponseTopic,
)
from headrace.protocol.messages.shared import PartitionOutcome, TopicOutcome
from headrace.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitResponse,
)
from headrace.protocol.schema import ZERO_UUID, Uuid

_GROUP_ID_NOT_FOUND_SINCE = 9
_DEFAULT_RETENTION = -1
_FOR_EVER_MS = 2**63 - 1  # the last moment that a record can name


@dataclass(frozen=True, slots=True)
class InTransaction:
    """The effect that has the shell write a decision's records as a transactional batch of this producer.

    They are applied with its id, both now and when they are read again.
    """

    producer_id: int
    producer_epoch: int


def commit(
    store: OffsetStore,
    kind: GroupKind | None,
    settings: GroupSettings,
    request: Request,
    asked: OffsetCommitRequest,
    now_ms: int,
) -> Decision:
    """Store offsets, each with the id of its topic: it must never count for a later topic of the same name."""
    claim = CommitClaim(
        group_id=asked.group_id,
        member_id=asked.member_id,
        instance_id=asked.group_instance_id,
        generation=asked.generation_id_or_member_epoch,
        is_transactional=False,
        version=request.version,
    )
    error = _check(kind, claim, _partitions(asked, settings))
    retention_ms = asked.retention_time_ms
    expires_at_ms = -1 if retention_ms == _DEFAULT_RETENTION else min(now_ms + retention_ms, _FOR_EVER_MS)
    records: list[CoordinatorRecord] = []
    response = OffsetCommitResponse()
    for topic in asked.topics:
        topic_id = topic.topic_id if topic.topic_id != ZERO_UUID else store.id_of(topic.name)
        stored = _Stored(asked.group_id, topic.name, topic_id, now_ms, expires_at_ms)
        outcomes = _store(stored, topic.partitions, error, settings, records)
        response.topics.append(OffsetCommitResponseTopic(name=topic.name, topic_id=topic.topic_id, partitions=outcomes))
    timers = () if error or kind is None else kind.session_timers(claim, now_ms)
    return Decision((Answer(request.token, response),), tuple(records), timers)


def commit_in_transaction(
    store: OffsetStore,
    kind: GroupKind | None,
    settings: GroupSettings,
    request: Request,
    asked: TxnOffsetCommitRequest,
    now_ms: int,
) -> Decision:
    claim = CommitClaim(
        group_id=asked.group_id,
        member_id=asked.member_id,
        instance_id=asked.group_instance_id,
        generation=asked.generation_id,
        is_transactional=True,
        version=request.version,
    )
    error = _check(kind, claim, _partitions(asked, settings)) if asked.group_id else ErrorCode.INVALID_GROUP_ID
    if error is ErrorCode.STALE_MEMBER_EPOCH:  # which producers have never heard of
        error = ErrorCode.ILLEGAL_GENERATION
    records: list[CoordinatorRecord] = []
    response = TxnOffsetCommitResponse()
    for topic in asked.topics:
        stored = _Stored(asked.group_id, topic.name, store.id_of(topic.name), now_ms)
        outcomes = _store(stored, topic.partitions, error, settings, records)
        response.topics.append(TopicOutcome(name=topic.name, partitions=outcomes))
    effects: tuple[Hashable, ...] = (InTransaction(asked.producer_id, asked.producer_epoch),) if records else ()
    return Decision((Answer(request.token, response),), tuple(records), effects=effects)


class _Stored(NamedTuple):
    """What the records of one topic's offsets have in common."""

    group_id: str
    topic: str
    topic_id: Uuid
    now_ms: int
    expires_at_ms: int = -1


def _store(
    stored: _Stored,
    partitions: Sequence[OffsetCommitRequestPartition | TxnOffsetCommitRequestPartition],
    error: ErrorCode,
    settings: GroupSettings,
    records: list[CoordinatorRecord],
) -> list[PartitionOutcome]:
    """Add the records of the partitions that are not refused; the outcome of each."""
    outcomes = []
    for partition in partitions:
        metadata = partition.committed_metadata or ""
        outcome = error or _check_metadata(metadata, settings)
        outcomes.append(PartitionOutcome(partition_index=partition.partition_index, error_code=outcome))
        if not outcome:
            key = OffsetCommitKey(group=stored.group_id, topic=stored.topic, partition=partition.partition_index)
            value = OffsetCommitValue(
                offset=partition.committed_offset,
                leader_epoch=partition.committed_leader_epoch,
                metadata=metadata,
                commit_timestamp=stored.now_ms,
                expire_timestamp=stored.expires_at_ms,
                topic_id=stored.topic_id,
            )
            records.append(CoordinatorRecord(key, value))
    return outcomes


def _partitions(
    asked: OffsetCommitRequest | TxnOffsetCommitRequest, settings: GroupSettings
) -> Iterator[TopicPartition]:
    """What is to be stored; Kafka does not ask who may commit a partition whose metadata is too large anyway.

    Few ask: those whose member is in an earlier epoch.
    """
    for topic in asked.topics:
        for partition in topic.partitions:
            if not _check_metadata(partition.committed_metadata or "", settings):
                yield TopicPartition(topic.name, partition.partition_index)


def _check(kind: GroupKind | None, claim: CommitClaim, partitions: Iterable[TopicPartition]) -> ErrorCode:
    if kind is not None:
        return kind.check_commit(claim, partitions)
    if claim.generation < 0:  # an administrator, or a consumer that assigns itself: its group begins here
        return ErrorCode.NONE
    if not claim.is_transactional and claim.version >= _GROUP_ID_NOT_FOUND_SINCE:
        return ErrorCode.GROUP_ID_NOT_FOUND
    return ErrorCode.ILLEGAL_GENERATION


def _check_metadata(metadata: str, settings: GroupSettings) -> ErrorCode:
    if metadata and len(metadata) > settings.offset_metadata_max_bytes:  # characters, as Kafka counts
        return ErrorCode.OFFSET_METADATA_TOO_LARGE
    return ErrorCode.NONE
