"""OffsetCommit: store how far a group has read.

Offsets of topics or partitions that do not exist are refused here; the coordinator sees the rest, by name.
"""

from headrace.broker.context import Context
from headrace.broker.coordinator_requests import commit_offsets
from headrace.broker.handler import Answer
from headrace.broker.turns import Steps
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponseTopic,
)
from headrace.protocol.messages.shared import PartitionOutcome
from headrace.protocol.schema import Message

BY_ID_SINCE = 10


def handle(ctx: Context, request: OffsetCommitRequest) -> Steps[Answer]:
    """Have the coordinator store what there is to store, and add what was refused to its answer."""
    refused: list[OffsetCommitResponseTopic] = []
    kept = []
    for topic in request.topics:
        known = _split(ctx, topic, refused)
        if known:
            kept.append(known)
        yield
    request.topics = kept
    if not kept and refused:
        return OffsetCommitResponse(topics=refused)
    answer = yield from commit_offsets(ctx, request)

    def add_refused(response: Message | None) -> None:
        if isinstance(response, OffsetCommitResponse):
            response.topics += refused

    return answer.after(add_refused) if refused else answer


def _split(
    ctx: Context, topic: OffsetCommitRequestTopic, refused: list[OffsetCommitResponseTopic]
) -> OffsetCommitRequestTopic | None:
    """What of this topic can be stored; what cannot is added to `refused`."""
    by_id = ctx.version >= BY_ID_SINCE
    topics = ctx.broker.topics
    found = topics.by_id.get(topic.topic_id) if by_id else topics.by_name.get(topic.name)
    count = len(found.partitions) if found else 0
    known = [partition for partition in topic.partitions if 0 <= partition.partition_index < count]
    unknown = [partition for partition in topic.partitions if not 0 <= partition.partition_index < count]
    if unknown:
        code = ErrorCode.UNKNOWN_TOPIC_ID if by_id and not found else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
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
    topic.partitions = known
    if found:
        topic.name = found.name
    return topic if topic.partitions else None
