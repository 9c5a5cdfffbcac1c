"""DescribeTopicPartitions: topics and partitions page by page (KIP-966); an empty list asks for all topics."""

from headrace.broker.authorized_operations import TOPIC_OPERATIONS
from headrace.broker.context import Context
from headrace.broker.errors import code_of
from headrace.broker.handler import Answer
from headrace.broker.turns import Steps
from headrace.model import InvalidTopicName, check_topic_name
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
)
from headrace.protocol.schema import Uuid

MAX_PARTITIONS = 2000


def handle(ctx: Context, request: DescribeTopicPartitionsRequest) -> Steps[Answer]:
    """A page of partitions, in the order of their topics' names, and where the next one begins."""
    topics = ctx.broker.topics.by_name
    names = sorted({topic.name for topic in request.topics} or set(topics))
    if request.cursor and not _is_valid(request, request.cursor):
        return DescribeTopicPartitionsResponse(
            next_cursor=None,
            topics=[
                DescribeTopicPartitionsResponseTopic(error_code=ErrorCode.INVALID_REQUEST, name=topic.name)
                for topic in request.topics
            ],
        )
    start = (request.cursor.topic_name, request.cursor.partition_index) if request.cursor else ("", 0)
    left = max(1, min(request.response_partition_limit, MAX_PARTITIONS))
    response = DescribeTopicPartitionsResponse(next_cursor=None)
    for name in names:
        yield
        if name < start[0]:
            continue
        if not left:
            response.next_cursor = Cursor(topic_name=name, partition_index=0)
            break
        topic = topics.get(name)
        if topic is None:
            response.topics.append(
                DescribeTopicPartitionsResponseTopic(
                    error_code=_why_missing(name), name=name, topic_authorized_operations=TOPIC_OPERATIONS
                )
            )
            continue
        first = start[1] if name == start[0] else 0
        last = min(len(topic.partitions), first + left)
        left -= last - first
        response.topics.append(
            DescribeTopicPartitionsResponseTopic(
                name=name,
                topic_id=Uuid(topic.id),
                is_internal=topic.is_internal,
                partitions=[_partition(ctx, index) for index in range(first, last)],
                topic_authorized_operations=TOPIC_OPERATIONS,
            )
        )
        if last < len(topic.partitions):
            response.next_cursor = Cursor(topic_name=name, partition_index=last)
            break
    return response


def _is_valid(request: DescribeTopicPartitionsRequest, cursor: Cursor) -> bool:
    """Whether the cursor names a partition, and a topic among those asked for."""
    asked = {topic.name for topic in request.topics}
    return cursor.partition_index >= 0 and (not asked or cursor.topic_name in asked)


def _why_missing(name: str) -> ErrorCode:
    try:
        check_topic_name(name)
    except InvalidTopicName as error:
        return code_of(error)
    return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def _partition(ctx: Context, index: int) -> DescribeTopicPartitionsResponsePartition:
    node = [ctx.broker.node_id]
    return DescribeTopicPartitionsResponsePartition(
        partition_index=index,
        leader_id=ctx.broker.node_id,
        leader_epoch=ctx.broker.leader_epoch,
        replica_nodes=node,
        isr_nodes=node,
        eligible_leader_replicas=[],
        last_known_elr=[],
    )
