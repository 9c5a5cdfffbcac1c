"""Metadata, DescribeTopicPartitions, DescribeCluster: the broker's address, and the topics with their partitions.

A topic that is not there is made by Metadata, if the client and `auto.create.topics.enable` allow it. The address is
the one that the client itself came by, unless another is configured, so that a client on any interface can come back.
"""

import asyncio
from functools import lru_cache

from headrace.broker.changes import Change
from headrace.broker.errors import code_of
from headrace.broker.handler import CLUSTER, TOPIC, Answer, Context, denial
from headrace.broker.topics import Topic
from headrace.broker.turns import Steps
from headrace.errors import HeadraceError
from headrace.model import InvalidTopicName, check_topic_name
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.describe_cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)
from headrace.protocol.messages.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
)
from headrace.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from headrace.protocol.schema import ZERO_UUID, Uuid
from headrace.security.acl import Operation


def describe_topics(ctx: Context, request: MetadataRequest) -> Steps[Answer]:
    """Answer at once, unless a topic has to be made first."""
    topics = ctx.broker.topics
    # Each once: an answer is in proportion to what there is, not to how often it is asked for.
    asked = request.topics and list(
        {topic.topic_id if topic.name is None else topic.name: topic for topic in request.topics}.values()
    )
    # Version 0 had no null: an empty list stood for all topics.
    answers: list[MetadataResponseTopic] = []
    if asked is None or (ctx.version == 0 and not asked):
        for topic in list(topics.by_name.values()):
            if ctx.sees(TOPIC, topic.name):
                answers.append(_describe(ctx, request, topic))
            yield
        return _response(ctx, request, answers)
    missing = [
        name
        for name in (topic.name for topic in asked)
        if name is not None and name not in topics.by_name and ctx.sees(TOPIC, name)
    ]
    if missing and request.allow_auto_topic_creation and ctx.broker.config.flag("auto.create.topics.enable"):
        return _create_and_answer(ctx, request, asked, missing)
    for named in asked:
        answers.append(_answer(ctx, request, named))
        yield
    return _response(ctx, request, answers)


async def _create_and_answer(
    ctx: Context, request: MetadataRequest, asked: list[MetadataRequestTopic], missing: list[str]
) -> MetadataResponse:
    partitions = ctx.broker.config.number("num.partitions")
    refused: dict[str, ErrorCode] = {}

    def create(name: str) -> bool:
        if name in ctx.broker.topics.by_name:
            return False
        ctx.broker.topics.create(name, partitions, {})
        return True

    for name in missing:
        try:
            if not (ctx.may(Operation.CREATE, CLUSTER) or ctx.may(Operation.CREATE, TOPIC, name)):
                raise ctx.deny(Operation.CREATE, TOPIC, name)
            ctx.charge_mutations(partitions, strict=False)  # a client that asks for metadata is not refused for it
            making = ctx.broker.in_thread(lambda name=name: create(name))  # type: ignore[misc]  # bound now, not later
            await ctx.record_made(making, "METADATA", Change("topic", name, 0, {"partitions": partitions}))
        except HeadraceError as error:
            refused[name] = code_of(error)
    answers = []
    for topic in asked:
        answers.append(_answer(ctx, request, topic, refused))
        await asyncio.sleep(0)
    return _response(ctx, request, answers)


def _answer(
    ctx: Context, request: MetadataRequest, asked: MetadataRequestTopic, refused: dict[str, ErrorCode] | None = None
) -> MetadataResponseTopic:
    if asked.name is None:
        topic = ctx.broker.topics.by_id.get(asked.topic_id)
        if topic is None:
            return MetadataResponseTopic(error_code=ErrorCode.UNKNOWN_TOPIC_ID, name=None, topic_id=asked.topic_id)
        if not ctx.allows(TOPIC, topic.name):
            return MetadataResponseTopic(error_code=denial(TOPIC).code, name=None, topic_id=asked.topic_id)
        return _describe(ctx, request, topic)
    if not ctx.allows(TOPIC, asked.name):  # and nobody learns whether it is there
        return MetadataResponseTopic(error_code=denial(TOPIC).code, name=asked.name, topic_id=ZERO_UUID)
    topic = ctx.broker.topics.by_name.get(asked.name)
    if topic is not None:
        return _describe(ctx, request, topic)
    code = (refused or {}).get(asked.name, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    try:
        check_topic_name(asked.name)
    except InvalidTopicName as error:
        code = code_of(error)
    missing = MetadataResponseTopic(error_code=code, name=asked.name, topic_id=ZERO_UUID)
    if request.include_topic_authorized_operations and code != ErrorCode.TOPIC_AUTHORIZATION_FAILED:
        missing.topic_authorized_operations = ctx.operations(TOPIC, asked.name)
    return missing


def _describe(ctx: Context, request: MetadataRequest, topic: Topic) -> MetadataResponseTopic:
    node_id, leader_epoch = ctx.broker.node_id, ctx.broker.leader_epoch
    described = MetadataResponseTopic(
        name=topic.name,
        topic_id=Uuid(topic.id),
        is_internal=topic.is_internal,
        partitions=[_partition(index, node_id, leader_epoch) for index in range(len(topic.partitions))],
    )
    if request.include_topic_authorized_operations:
        described.topic_authorized_operations = ctx.operations(TOPIC, topic.name)
    return described


@lru_cache(20_000)
def _partition(index: int, node_id: int, leader_epoch: int) -> MetadataResponsePartition:
    """The third partition of one topic is described as that of any other: made once, and never changed."""
    node = [node_id]
    return MetadataResponsePartition(
        partition_index=index, leader_id=node_id, leader_epoch=leader_epoch, replica_nodes=node, isr_nodes=node
    )


def _response(ctx: Context, request: MetadataRequest, topics: list[MetadataResponseTopic]) -> MetadataResponse:
    host, port = ctx.advertised
    response = MetadataResponse(
        brokers=[MetadataResponseBroker(node_id=ctx.broker.node_id, host=host, port=port)],
        cluster_id=ctx.broker.identity.cluster_id,
        controller_id=ctx.broker.node_id,
        topics=topics,
    )
    if request.include_cluster_authorized_operations:
        response.cluster_authorized_operations = _cluster_operations(ctx)
    return response


def _cluster_operations(ctx: Context) -> int:
    return ctx.operations(CLUSTER) if ctx.may(Operation.DESCRIBE, CLUSTER) else 0


PAGE_PARTITIONS = 2000


def describe_topic_partitions(ctx: Context, request: DescribeTopicPartitionsRequest) -> Steps[Answer]:
    """A page of partitions, in the order of their topics' names, and where the next one begins."""
    topics = ctx.broker.topics.by_name
    asked = {topic.name for topic in request.topics}
    names = sorted(name for name in asked or set(topics) if ctx.sees(TOPIC, name))
    if request.cursor and not _is_valid(request, request.cursor):
        return DescribeTopicPartitionsResponse(
            next_cursor=None,
            topics=[
                DescribeTopicPartitionsResponseTopic(error_code=ErrorCode.INVALID_REQUEST, name=topic.name)
                for topic in request.topics
            ],
        )
    start = (request.cursor.topic_name, request.cursor.partition_index) if request.cursor else ("", 0)
    left = max(1, min(request.response_partition_limit, PAGE_PARTITIONS))
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
                    error_code=_why_missing(name),
                    name=name,
                    topic_authorized_operations=ctx.operations(TOPIC, name),
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
                partitions=[_describe_partition(ctx, index) for index in range(first, last)],
                topic_authorized_operations=ctx.operations(TOPIC, name),
            )
        )
        if last < len(topic.partitions):
            response.next_cursor = Cursor(topic_name=name, partition_index=last)
            break
    response.topics += [
        DescribeTopicPartitionsResponseTopic(error_code=denial(TOPIC).code, name=name)
        for name in sorted(asked)
        if name >= start[0] and not ctx.allows(TOPIC, name)
    ]
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


def _describe_partition(ctx: Context, index: int) -> DescribeTopicPartitionsResponsePartition:
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


BROKERS, CONTROLLERS = 1, 2


def describe_cluster(ctx: Context, request: DescribeClusterRequest) -> DescribeClusterResponse:
    """Describe the cluster to whoever asked a broker's listener, the only kind there is."""
    if request.endpoint_type not in (BROKERS, CONTROLLERS):
        return DescribeClusterResponse(
            error_code=ErrorCode.UNSUPPORTED_ENDPOINT_TYPE,
            error_message=f"endpoint type {request.endpoint_type} is unknown",
        )
    if request.endpoint_type != BROKERS:
        return DescribeClusterResponse(
            error_code=ErrorCode.MISMATCHED_ENDPOINT_TYPE,
            error_message="this is a broker's listener; there is no separate controller",
        )
    host, port = ctx.advertised
    response = DescribeClusterResponse(
        cluster_id=ctx.broker.identity.cluster_id,
        controller_id=ctx.broker.node_id,
        brokers=[DescribeClusterBroker(broker_id=ctx.broker.node_id, host=host, port=port)],
    )
    if request.include_cluster_authorized_operations:
        response.cluster_authorized_operations = _cluster_operations(ctx)
    return response
