"""OffsetCommit, OffsetFetch, OffsetDelete: what groups have read, kept by the group coordinator.

Offsets of topics or partitions that do not exist, or that the client may know nothing of, are refused here; the
coordinator sees the rest, by name.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from headrace.broker.errors import code_of
from headrace.broker.handler import GROUP, TOPIC, Answer, Context, Handled
from headrace.broker.handlers.groups import ask_group_by_group, ask_groups, ask_in_pieces
from headrace.broker.turns import Deferred, Steps
from headrace.errors import HeadraceError
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponseTopic,
)
from headrace.protocol.messages.offset_delete import OffsetDeleteRequest, OffsetDeleteResponse
from headrace.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)
from headrace.protocol.messages.shared import PartitionOutcome, TopicIndexes, TopicOutcome
from headrace.protocol.messages.txn_offset_commit import TxnOffsetCommitRequest, TxnOffsetCommitRequestTopic
from headrace.protocol.schema import ZERO_UUID, Message, Uuid

_OFFSETS_A_STEP = 500  # the coordinator decides on so many at once, in some milliseconds


def store_offsets(
    ctx: Context, request: OffsetCommitRequest | TxnOffsetCommitRequest
) -> Steps[Deferred[Message | None]]:
    """Ask the group coordinator to store offsets, many of them in several pieces; one answer for all."""
    if sum(len(topic.partitions) for topic in request.topics) <= _OFFSETS_A_STEP:
        return ask_groups(ctx, request)
    pieces = [request.replaced(topics=piece) for piece in _pieces(request.topics)]
    return (yield from ask_in_pieces(ctx, pieces, "topics"))


def _pieces(topics: Sequence[OffsetCommitRequestTopic | TxnOffsetCommitRequestTopic]) -> Iterator[list[Any]]:
    piece: list[Any] = []
    room = _OFFSETS_A_STEP
    for topic in topics:
        for start in range(0, len(topic.partitions), _OFFSETS_A_STEP):
            partitions = topic.partitions[start : start + _OFFSETS_A_STEP]
            if len(partitions) > room:
                yield piece
                piece, room = [], _OFFSETS_A_STEP
            piece.append(topic.replaced(partitions=partitions))
            room -= len(partitions)
    if piece:
        yield piece


BY_ID_SINCE = 10


def commit_offsets(ctx: Context, request: OffsetCommitRequest) -> Handled:
    """Have the coordinator store what there is to store: at once if it is of one topic, as of most consumers."""
    if len(request.topics) == 1:
        topic = request.topics[0]
        if 0 < len(topic.partitions) <= _OFFSETS_A_STEP:
            refused: list[OffsetCommitResponseTopic] = []
            if not _split_known(ctx, topic, refused):
                return OffsetCommitResponse(topics=refused)
            return _add_refused(ask_groups(ctx, request), refused)
    return _commit_in_steps(ctx, request)


def _commit_in_steps(ctx: Context, request: OffsetCommitRequest) -> Steps[Answer]:
    refused: list[OffsetCommitResponseTopic] = []
    kept = []
    for topic in request.topics:
        known = _split_known(ctx, topic, refused)
        if known:
            kept.append(known)
        yield
    request.topics = kept
    if not kept and (refused or ctx.refused):
        return OffsetCommitResponse(topics=refused)
    return _add_refused((yield from store_offsets(ctx, request)), refused)


def _add_refused(
    answer: Deferred[Message | None], refused: list[OffsetCommitResponseTopic]
) -> Deferred[Message | None]:
    def add(response: Message | None) -> None:
        if isinstance(response, OffsetCommitResponse):
            response.topics += refused

    return answer.after(add) if refused else answer


def _split_known(
    ctx: Context, topic: OffsetCommitRequestTopic, refused: list[OffsetCommitResponseTopic]
) -> OffsetCommitRequestTopic | None:
    """What of this topic can be stored; what cannot is added to `refused`."""
    by_id = ctx.version >= BY_ID_SINCE
    count, code = count_partitions(ctx, topic.name, topic.topic_id, by_id=by_id)
    unknown = [partition for partition in topic.partitions if not 0 <= partition.partition_index < count]
    if unknown:
        topic.partitions = [partition for partition in topic.partitions if 0 <= partition.partition_index < count]
        refused.append(
            OffsetCommitResponseTopic(
                name=topic.name,
                topic_id=topic.topic_id,
                partitions=[
                    PartitionOutcome(partition_index=partition.partition_index, error_code=code)
                    for partition in unknown
                ],
            )
        )
    if by_id and topic.partitions:
        topic.name = ctx.broker.topics.by_id[topic.topic_id].name
    return topic if topic.partitions else None


def count_partitions(ctx: Context, name: str, topic_id: bytes = b"", *, by_id: bool = False) -> tuple[int, ErrorCode]:
    """How many partitions a topic has for this client, and what it is answered for any other."""
    try:
        topic = ctx.topic(name, topic_id, by_id=by_id)
    except HeadraceError as error:
        return 0, code_of(error)
    return len(topic.partitions), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def delete_offsets(ctx: Context, request: OffsetDeleteRequest) -> Steps[Answer]:
    """Have the coordinator forget what there is to forget, and add what was refused to its answer."""
    refused = []
    for topic in request.topics:
        yield
        count, code = count_partitions(ctx, topic.name)
        unknown = [partition for partition in topic.partitions if not 0 <= partition.partition_index < count]
        if unknown:
            outcomes = [PartitionOutcome(partition_index=each.partition_index, error_code=code) for each in unknown]
            refused.append(TopicOutcome(name=topic.name, partitions=outcomes))
            topic.partitions = [each for each in topic.partitions if 0 <= each.partition_index < count]
    request.topics = [topic for topic in request.topics if topic.partitions]

    def add_refused(response: Message | None) -> None:
        if isinstance(response, OffsetDeleteResponse) and not response.error_code:
            response.topics += refused

    return ask_groups(ctx, request).after(add_refused)


_ask_for_offsets = ask_group_by_group("groups", "groups", OffsetFetchResponseGroup)
GROUPS_SINCE = 8


def fetch_offsets(ctx: Context, request: OffsetFetchRequest) -> Steps[Answer]:
    """Give topics that came by id their names, ask the coordinator, and give what it found its ids."""
    by_id = ctx.version >= BY_ID_SINCE
    if ctx.version < GROUPS_SINCE and not ctx.allows(GROUP, request.group_id):
        return _refuse_group(ctx, request)
    if not by_id and ctx.broker.authorizer is None:
        return (yield from _ask_for_offsets(ctx, request))
    topics = ctx.broker.topics
    for group in request.groups if by_id else ():
        yield
        for topic in group.topics or ():
            known = topics.by_id.get(topic.topic_id)
            topic.name = known.name if known else ""
    restrict = yield from _withhold_topics(ctx, request)

    def complete(response: Message | None) -> None:
        if isinstance(response, OffsetFetchResponse):
            restrict(response)
            for group in response.groups if by_id else ():
                for topic in group.topics:
                    known = topics.by_name.get(topic.name)
                    if topic.topic_id == ZERO_UUID and known:
                        topic.topic_id = Uuid(known.id)

    answer = yield from _ask_for_offsets(ctx, request)
    return answer.after(complete)


def _refuse_group(ctx: Context, request: OffsetFetchRequest) -> OffsetFetchResponse:
    code = ErrorCode.GROUP_AUTHORIZATION_FAILED
    if ctx.version >= 2:
        return OffsetFetchResponse(error_code=code)
    return OffsetFetchResponse(topics=[_refuse_topic(topic, code) for topic in request.topics or ()])


def _refuse_topic(topic: TopicIndexes, code: ErrorCode) -> OffsetFetchResponseTopic:
    partitions = [
        OffsetFetchResponsePartition(partition_index=index, committed_offset=-1, metadata="", error_code=code)
        for index in topic.partition_indexes
    ]
    return OffsetFetchResponseTopic(name=topic.name, partitions=partitions)


def _withhold_topics(ctx: Context, request: OffsetFetchRequest) -> Steps[Callable[[OffsetFetchResponse], None]]:
    """Take what the client may know nothing of, or has no name, out of the request; what does so with the answer."""

    def refuse(topic: str) -> ErrorCode | None:
        if not topic:
            return ErrorCode.UNKNOWN_TOPIC_ID
        return None if ctx.allows(TOPIC, topic) else ErrorCode.TOPIC_AUTHORIZATION_FAILED

    single: list[OffsetFetchResponseTopic] = []
    kept: list[Any] = []
    for each in request.topics or ():
        yield
        code = refuse(each.name)
        if code:
            single.append(_refuse_topic(each, code))
        else:
            kept.append(each)
    if request.topics is not None:
        request.topics = kept
    by_group: dict[str, list[OffsetFetchResponseTopics]] = {}
    for group in request.groups:
        kept = []
        for topic in group.topics or ():
            yield
            code = refuse(topic.name)
            if not code:
                kept.append(topic)
            else:
                partitions = [
                    OffsetFetchResponsePartitions(
                        partition_index=index, committed_offset=-1, metadata="", error_code=code
                    )
                    for index in topic.partition_indexes
                ]
                withheld = OffsetFetchResponseTopics(name=topic.name, topic_id=topic.topic_id, partitions=partitions)
                by_group.setdefault(group.group_id, []).append(withheld)
        if group.topics is not None:
            group.topics = kept

    def restrict(response: OffsetFetchResponse) -> None:
        response.topics = [topic for topic in response.topics if topic.name and ctx.sees(TOPIC, topic.name)]
        if not response.error_code:
            response.topics += single
        for group in response.groups:
            group.topics = [topic for topic in group.topics if topic.name and ctx.sees(TOPIC, topic.name)]
            if not group.error_code:
                group.topics += by_group.pop(group.group_id, [])

    return restrict
