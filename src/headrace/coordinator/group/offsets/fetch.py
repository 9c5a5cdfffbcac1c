"""OffsetFetch: how far groups have read, in all the forms that the question has had."""

from collections.abc import Callable, Iterable
from itertools import groupby

from headrace.coordinator.decision import Answer, Decision
from headrace.coordinator.group.events import Request
from headrace.coordinator.group.kinds import GroupKind
from headrace.coordinator.group.offsets.store import OffsetStore
from headrace.model import TopicPartition
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)

_MANY_GROUPS_SINCE = 8  # KIP-709
_GROUP_ERROR_SINCE = 2

KindOf = Callable[[str], GroupKind | None]


def fetch(store: OffsetStore, kind_of: KindOf, request: Request, asked: OffsetFetchRequest) -> Decision:
    """Read offsets; a version that knows one group only is asked and answered as one that knows many."""
    if request.version >= _MANY_GROUPS_SINCE:
        groups = [_fetch_group(store, kind_of, group, asked) for group in asked.groups]
        return Decision((Answer(request.token, OffsetFetchResponse(groups=groups)),))
    topics = asked.topics
    group = OffsetFetchRequestGroup(
        group_id=asked.group_id,
        topics=None
        if topics is None
        else [OffsetFetchRequestTopics(name=topic.name, partition_indexes=topic.partition_indexes) for topic in topics],
    )
    response = _in_old_form(_fetch_group(store, kind_of, group, asked), group, request.version)
    return Decision((Answer(request.token, response),))


def _fetch_group(
    store: OffsetStore, kind_of: KindOf, asked: OffsetFetchRequestGroup, request: OffsetFetchRequest
) -> OffsetFetchResponseGroup:
    group_id = asked.group_id
    kind = kind_of(group_id)
    error = ErrorCode.NONE if kind is None else kind.check_fetch(group_id, asked.member_id, asked.member_epoch)
    if error:
        return OffsetFetchResponseGroup(group_id=group_id, error_code=error)
    if asked.topics is None:
        wanted: Iterable[OffsetFetchRequestTopics] = _ask_for_all(store, group_id)
    else:
        wanted = asked.topics
    topics = [
        OffsetFetchResponseTopics(
            name=topic.name,
            topic_id=topic.topic_id,
            partitions=[
                _fetch_partition(store, group_id, TopicPartition(topic.name, index), request.require_stable)
                for index in topic.partition_indexes
            ],
        )
        for topic in wanted
    ]
    return OffsetFetchResponseGroup(group_id=group_id, topics=topics)


def _ask_for_all(store: OffsetStore, group_id: str) -> Iterable[OffsetFetchRequestTopics]:
    current = (partition for partition in store.committed(group_id) if store.current(group_id, partition))
    for topic, partitions in groupby(sorted(current), key=lambda partition: partition.topic):
        yield OffsetFetchRequestTopics(name=topic, partition_indexes=[partition.partition for partition in partitions])


def _fetch_partition(
    store: OffsetStore, group_id: str, partition: TopicPartition, require_stable: bool
) -> OffsetFetchResponsePartitions:
    response = OffsetFetchResponsePartitions(partition_index=partition.partition, committed_offset=-1)
    if require_stable and store.is_pending(group_id, partition):
        response.error_code = ErrorCode.UNSTABLE_OFFSET_COMMIT  # the client asks again (KIP-447)
        return response
    known = store.current(group_id, partition)
    if known is not None:
        response.committed_offset = known.offset
        response.committed_leader_epoch = known.leader_epoch
        response.metadata = known.metadata
    return response


def _in_old_form(group: OffsetFetchResponseGroup, asked: OffsetFetchRequestGroup, version: int) -> OffsetFetchResponse:
    if group.error_code and version >= _GROUP_ERROR_SINCE:
        return OffsetFetchResponse(error_code=group.error_code)
    if group.error_code:  # the first version can only say it of each partition
        topics = [
            OffsetFetchResponseTopic(
                name=topic.name,
                partitions=[
                    OffsetFetchResponsePartition(
                        partition_index=index, committed_offset=-1, error_code=group.error_code
                    )
                    for index in topic.partition_indexes
                ],
            )
            for topic in asked.topics or ()
        ]
        return OffsetFetchResponse(topics=topics)
    return OffsetFetchResponse(
        topics=[
            OffsetFetchResponseTopic(
                name=topic.name,
                partitions=[
                    OffsetFetchResponsePartition(
                        partition_index=partition.partition_index,
                        committed_offset=partition.committed_offset,
                        committed_leader_epoch=partition.committed_leader_epoch,
                        metadata=partition.metadata,
                        error_code=partition.error_code,
                    )
                    for partition in topic.partitions
                ],
            )
            for topic in group.topics
        ]
    )
