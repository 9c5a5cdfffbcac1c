"""How offsets go: deleted on request, with their group, with their topic, or because nobody needs them any more."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from headrace.coordinator.decision import Answer, CoordinatorRecord, Decision, Timer
from headrace.coordinator.group.events import Request
from headrace.coordinator.group.kinds import ExpiryRule, GroupKind
from headrace.coordinator.group.offsets.store import CommittedOffset, OffsetStore, offset_tombstone
from headrace.coordinator.group.record_formats import OffsetCommitKey
from headrace.coordinator.group.settings import GroupSettings
from headrace.model import TopicPartition
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.offset_delete import OffsetDeleteRequest, OffsetDeleteResponse
from headrace.protocol.messages.shared import PartitionOutcome, TopicOutcome

PORTION_BYTES = 128 * 1024
_RECORD_BYTES = 32  # about what a tombstone takes besides its names


@dataclass(frozen=True, slots=True)
class ExpiryTimer:
    """When to look again for offsets and groups that nobody needs."""


def delete(store: OffsetStore, kind: GroupKind | None, request: Request, asked: OffsetDeleteRequest) -> Decision:
    """OffsetDelete: forget offsets of topics that the group is not subscribed to (KIP-496)."""
    group_id = asked.group_id
    if not group_id:
        error = ErrorCode.INVALID_GROUP_ID
    elif kind is None:
        error = ErrorCode.GROUP_ID_NOT_FOUND
    else:
        error = kind.check_offset_deletion(group_id)
    if error or kind is None:
        return Decision((Answer(request.token, OffsetDeleteResponse(error_code=error)),))
    response = OffsetDeleteResponse()
    records: list[CoordinatorRecord] = []
    for topic in asked.topics:
        outcome = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC if kind.is_subscribed(group_id, topic.name) else ErrorCode.NONE
        partitions = [TopicPartition(topic.name, asked.partition_index) for asked in topic.partitions]
        response.topics.append(
            TopicOutcome(
                name=topic.name,
                partitions=[
                    PartitionOutcome(partition_index=partition.partition, error_code=outcome)
                    for partition in partitions
                ],
            )
        )
        if not outcome:
            known = store.committed(group_id).keys() | store.pending(group_id)
            records.extend(offset_tombstone(group_id, partition) for partition in partitions if partition in known)
    return Decision((Answer(request.token, response),), tuple(records))


def forget_group(store: OffsetStore, group_id: str) -> list[CoordinatorRecord]:
    known = store.committed(group_id).keys() | store.pending(group_id)
    return [offset_tombstone(group_id, partition) for partition in sorted(known)]


def forget_topics(store: OffsetStore, gone: frozenset[str], *, every: bool) -> Decision:
    records, _ = _portion((offset_tombstone(*where),) for where in store.outlived(gone, every=every))
    return Decision(records=records)


def expire(store: OffsetStore, kinds: Iterable[GroupKind], settings: GroupSettings, now_ms: int) -> Decision:
    """Forget what has not been needed for the retention time, and then groups without members and offsets.

    What is more than a portion is left for the next look, which is at once then.
    """
    records, are_more = _portion(_find_expired(store, kinds, settings, now_ms))
    timer = next_expiry(settings, now_ms)
    return Decision(records=records, timers=(timer._replace(at_ms=now_ms) if are_more else timer,))


def _find_expired(
    store: OffsetStore, kinds: Iterable[GroupKind], settings: GroupSettings, now_ms: int
) -> Iterator[tuple[CoordinatorRecord, ...]]:
    for kind in kinds:
        for group_id in kind.group_ids():
            committed = store.committed(group_id)
            rule = kind.expiry(group_id)
            pending = store.pending(group_id)
            expired = [
                partition
                for partition, offset in committed.items()
                if rule is not None
                and _is_expired(offset, rule, settings, now_ms)
                and partition not in pending
                and not kind.is_subscribed(group_id, partition.topic)
            ]
            yield from ((offset_tombstone(group_id, partition),) for partition in expired)
            if rule is not None and len(expired) == len(committed) and not pending and kind.is_empty(group_id):
                yield kind.tombstones(group_id)


def _portion(tombstones: Iterable[tuple[CoordinatorRecord, ...]]) -> tuple[tuple[CoordinatorRecord, ...], bool]:
    """As many as may be written at once, and whether more are left.

    So they do not keep others waiting, and fit into an ordinary batch. What must go together comes together; the rest
    stands for itself, and does no harm if it goes later.
    """
    portion: list[CoordinatorRecord] = []
    left = PORTION_BYTES
    for some in tombstones:
        if left <= 0:
            return tuple(portion), True
        portion += some
        for key, _, _ in some:
            left -= _RECORD_BYTES
            left -= len(key.group) + len(key.topic) if isinstance(key, OffsetCommitKey) else 0
    return tuple(portion), False


def next_expiry(settings: GroupSettings, now_ms: int) -> Timer:
    return Timer(ExpiryTimer(), now_ms + settings.offsets_retention_check_interval_ms)


def _is_expired(offset: CommittedOffset, rule: ExpiryRule, settings: GroupSettings, now_ms: int) -> bool:
    if offset.expires_at_ms is not None:  # an old client has said how long
        return now_ms >= offset.expires_at_ms
    since_ms = offset.committed_at_ms if rule.unneeded_since_ms is None else rule.unneeded_since_ms
    return now_ms - since_ms >= settings.offsets_retention_ms
