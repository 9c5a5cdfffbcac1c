"""Metadata: the broker's address, and the topics that a client asks for or all of them.

A topic that is not there is made, if the client and `auto.create.topics.enable` allow it. The address is the one that
the client itself came by, unless another is configured, so that a client on any interface can come back.
"""

import asyncio
from functools import lru_cache

from headrace.broker.authorized_operations import CLUSTER_OPERATIONS, TOPIC_OPERATIONS
from headrace.broker.context import Context
from headrace.broker.errors import code_of
from headrace.broker.handler import Answer
from headrace.broker.topics import MAX_PARTITIONS, Topic
from headrace.broker.turns import Steps
from headrace.errors import HeadraceError
from headrace.model import InvalidTopicName, check_topic_name
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from headrace.protocol.schema import ZERO_UUID, Uuid


def handle(ctx: Context, request: MetadataRequest) -> Steps[Answer]:
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
            answers.append(_describe(ctx, request, topic))
            yield
        return _response(ctx, request, answers)
    missing = [name for name in (topic.name for topic in asked) if name is not None and name not in topics.by_name]
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

    def create(name: str) -> None:
        if name not in ctx.broker.topics.by_name:
            ctx.broker.topics.create(name, partitions, {})

    for name in missing:
        try:
            await ctx.broker.in_thread(lambda name=name: create(name))  # type: ignore[misc]  # bound now, not later
        except HeadraceError as error:
            refused[name] = code_of(error)
    answers = []
    for topic in asked:
        answers.append(_answer(ctx, request, topic, refused))
        await asyncio.sleep(0)
    return _response(ctx, request, answers)


def _answer(
    ctx: Context,
    request: MetadataRequest,
    asked: MetadataRequestTopic,
    refused: dict[str, ErrorCode] | None = None,
) -> MetadataResponseTopic:
    if asked.name is None:
        topic = ctx.broker.topics.by_id.get(asked.topic_id)
        if topic is None:
            return MetadataResponseTopic(error_code=ErrorCode.UNKNOWN_TOPIC_ID, name=None, topic_id=asked.topic_id)
        return _describe(ctx, request, topic)
    topic = ctx.broker.topics.by_name.get(asked.name)
    if topic is not None:
        return _describe(ctx, request, topic)
    code = (refused or {}).get(asked.name, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    try:
        check_topic_name(asked.name)
    except InvalidTopicName as error:
        code = code_of(error)
    return MetadataResponseTopic(error_code=code, name=asked.name, topic_id=ZERO_UUID)


def _describe(ctx: Context, request: MetadataRequest, topic: Topic) -> MetadataResponseTopic:
    node_id, leader_epoch = ctx.broker.node_id, ctx.broker.leader_epoch
    described = MetadataResponseTopic(
        name=topic.name,
        topic_id=Uuid(topic.id),
        is_internal=topic.is_internal,
        partitions=[_partition(index, node_id, leader_epoch) for index in range(len(topic.partitions))],
    )
    if request.include_topic_authorized_operations:
        described.topic_authorized_operations = TOPIC_OPERATIONS
    return described


@lru_cache(2 * MAX_PARTITIONS)
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
        response.cluster_authorized_operations = CLUSTER_OPERATIONS
    return response
