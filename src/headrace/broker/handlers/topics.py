"""CreateTopics, DeleteTopics, CreatePartitions: make topics, or check whether they could be made; grow and remove them.

There is one broker, so a replication factor is 1 (or -1, the default) and a replica assignment names that broker. A
topic never gets fewer partitions. One topic that is refused does not touch the others.
"""

import asyncio
from collections import Counter
from collections.abc import Mapping

from headrace.broker.config_resources import describe_topic
from headrace.broker.errors import BrokerError, code_of
from headrace.broker.handler import TOPIC, Context
from headrace.broker.settings.topics import TOPIC_SETTINGS
from headrace.broker.topics import BINDINGS, HIDDEN_TOPICS, Topic
from headrace.delivery.bindings import parse_bindings
from headrace.errors import HeadraceError
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopicResult,
)
from headrace.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from headrace.protocol.messages.delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from headrace.protocol.schema import Uuid
from headrace.security.acl import Operation

# Since these versions clients understand that a quota refuses them (KIP-599).
_CREATE_STRICTLY_SINCE, _DELETE_STRICTLY_SINCE, _GROW_STRICTLY_SINCE = 6, 5, 3


async def create_topics(ctx: Context, request: CreateTopicsRequest) -> CreateTopicsResponse:
    """Make each topic; one that is refused does not touch the others."""
    names = Counter(topic.name for topic in request.topics)
    response = CreateTopicsResponse()
    for topic in {topic.name: topic for topic in request.topics}.values():
        await asyncio.sleep(0)  # there may be many, and those that are refused wait for nothing
        result = CreatableTopicResult(name=topic.name, error_message=None)
        response.topics.append(result)
        try:
            if names[topic.name] > 1:
                raise BrokerError(ErrorCode.INVALID_REQUEST, f"Duplicate topic name: {topic.name}")
            if topic.name not in HIDDEN_TOPICS and not ctx.allows(TOPIC, topic.name):
                raise BrokerError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "Authorization failed.")
            strict = ctx.version >= _CREATE_STRICTLY_SINCE
            created, partitions = await make_topic(ctx, topic, strict=strict, validate_only=request.validate_only)
            _describe(ctx, result, created, partitions)
        except HeadraceError as error:
            result.error_code, result.error_message = code_of(error), str(error)
            result.configs = None if ctx.version < 5 else []
    return response


async def make_topic(
    ctx: Context, topic: CreatableTopic, *, strict: bool, validate_only: bool = False
) -> tuple[Topic, int]:
    """Make one topic, or check whether it could be made; the topic, and how many partitions it has."""
    partitions, settings = _partitions(ctx, topic), _settings(topic)
    require_targets(ctx, topic.name, {}, settings)
    if topic.name not in ctx.broker.topics.by_name:
        ctx.charge_mutations(partitions, strict=strict)
    created = await ctx.broker.in_thread(
        lambda: ctx.broker.topics.create(topic.name, partitions, settings, validate_only=validate_only)
    )
    await ctx.broker.queues.settle(created)
    await ctx.broker.events.settle(created)
    return created, partitions


def require_targets(ctx: Context, name: str, before: Mapping[str, str], after: Mapping[str, str]) -> None:
    """Refuse bindings of whoever could not copy the records by hand: read them, and write them to the targets."""
    text = after.get(BINDINGS, "")
    if text.strip() and text != before.get(BINDINGS):
        TOPIC_SETTINGS[BINDINGS].check(text)
        ctx.require_also(Operation.READ, TOPIC, name)
        for binding in parse_bindings(text):
            ctx.require_also(Operation.WRITE, TOPIC, binding.to)


def _settings(topic: CreatableTopic) -> dict[str, str]:
    settings = {}
    for config in topic.configs:
        if config.value is None:
            raise BrokerError(ErrorCode.INVALID_CONFIG, f"Null value not supported for topic configs: {config.name}")
        settings[config.name] = config.value
    return settings


def _partitions(ctx: Context, topic: CreatableTopic) -> int:
    if topic.assignments:
        if topic.num_partitions != -1 or topic.replication_factor != -1:
            raise BrokerError(
                ErrorCode.INVALID_REQUEST, "give either a replica assignment or numbers of partitions and replicas"
            )
        indexes = sorted(assignment.partition_index for assignment in topic.assignments)
        if indexes != list(range(len(indexes))) or any(
            assignment.broker_ids != [ctx.broker.node_id] for assignment in topic.assignments
        ):
            raise BrokerError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"a replica assignment counts from 0 and names broker {ctx.broker.node_id}, the only one",
            )
        return len(indexes)
    if topic.replication_factor not in (-1, 1):
        raise BrokerError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"Unable to replicate the partition {topic.replication_factor} time(s): there is one broker; "
            "use replication factor 1",
        )
    return ctx.broker.config.number("num.partitions") if topic.num_partitions == -1 else topic.num_partitions


def _describe(ctx: Context, result: CreatableTopicResult, topic: Topic, partitions: int) -> None:
    result.topic_id = Uuid(topic.id)
    if not ctx.may(Operation.DESCRIBE_CONFIGS, TOPIC, topic.name):
        result.topic_config_error_code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        return
    result.num_partitions, result.replication_factor = partitions, 1
    result.configs = [
        CreatableTopicConfigs(
            name=config.name, value=config.value, config_source=config.source, read_only=False, is_sensitive=False
        )
        for config in describe_topic(topic.settings, ctx.broker.layers)
    ]


async def delete_topics(ctx: Context, request: DeleteTopicsRequest) -> DeleteTopicsResponse:
    """Remove each topic; one that is not there does not touch the others."""
    asked = request.topics or [DeleteTopicState(name=name) for name in request.topic_names]
    response = DeleteTopicsResponse()
    named = Counter((state.name, state.topic_id) for state in asked)
    for state in {(state.name, state.topic_id): state for state in asked}.values():
        await asyncio.sleep(0)  # there may be many, and those that are refused wait for nothing
        result = DeletableTopicResult(name=state.name, topic_id=state.topic_id)
        response.responses.append(result)
        try:
            if named[state.name, state.topic_id] > 1:
                raise BrokerError(ErrorCode.INVALID_REQUEST, "Duplicate topic name or id.")
            if not ctx.broker.config.flag("delete.topic.enable"):
                raise BrokerError(ErrorCode.TOPIC_DELETION_DISABLED, "Topic deletion is disabled.")
            topic = _find_deletable(ctx, state, result)
            result.name, result.topic_id = topic.name, Uuid(topic.id)
            ctx.charge_mutations(len(topic.partitions), strict=ctx.version >= _DELETE_STRICTLY_SINCE)
            await ctx.broker.delete_topic(topic)
        except HeadraceError as error:
            result.error_code, result.error_message = code_of(error), str(error)
    return response


def _find_deletable(ctx: Context, state: DeleteTopicState, result: DeletableTopicResult) -> Topic:
    """The topic; who may not delete it learns of it what he may know: its name, whether it exists, or nothing."""
    if state.name is None:
        topic = ctx.broker.topic("", state.topic_id, by_id=True)
        if not ctx.sees(TOPIC, topic.name) and ctx.may(Operation.DESCRIBE, TOPIC, topic.name):
            result.name = topic.name
    elif not ctx.sees(TOPIC, state.name) and ctx.may(Operation.DESCRIBE, TOPIC, state.name):
        ctx.broker.topic(state.name)
    return ctx.topic(state.name or "", state.topic_id, by_id=state.name is None)


async def create_partitions(ctx: Context, request: CreatePartitionsRequest) -> CreatePartitionsResponse:
    """Grow each topic; one that is refused does not touch the others."""
    response = CreatePartitionsResponse()
    names = Counter(topic.name for topic in request.topics)
    for asked in {topic.name: topic for topic in request.topics}.values():
        await asyncio.sleep(0)  # there may be many, and those that are refused wait for nothing
        result = CreatePartitionsTopicResult(name=asked.name)
        response.results.append(result)
        try:
            if names[asked.name] > 1:
                raise BrokerError(ErrorCode.INVALID_REQUEST, "Duplicate topic name.")
            topic = ctx.topic(asked.name)
            if topic.is_internal:  # a group's records would be in two partitions, and which is the later nobody knows
                raise BrokerError(
                    ErrorCode.INVALID_REQUEST,
                    f"{topic.name} keeps its partitions: set how many it has before it is first used",
                )
            new = asked.count - len(topic.partitions)
            if asked.assignments is not None and (
                len(asked.assignments) != new
                or any(assignment.broker_ids != [ctx.broker.node_id] for assignment in asked.assignments)
            ):
                raise BrokerError(
                    ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                    f"each new partition is assigned to broker {ctx.broker.node_id}, the only one",
                )
            ctx.charge_mutations(max(new, 0), strict=ctx.version >= _GROW_STRICTLY_SINCE)
            await ctx.broker.in_thread(
                lambda name=asked.name, count=asked.count: ctx.broker.topics.add_partitions(  # type: ignore[misc]
                    name, count, validate_only=request.validate_only
                )
            )
        except HeadraceError as error:
            result.error_code, result.error_message = code_of(error), str(error)
    return response
