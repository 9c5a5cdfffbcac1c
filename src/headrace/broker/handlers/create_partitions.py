"""CreatePartitions: give topics more partitions; they never get fewer."""

import asyncio
from collections import Counter

from headrace.broker.context import Context
from headrace.broker.errors import BrokerError, code_of
from headrace.errors import HeadraceError
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopicResult,
)


async def handle(ctx: Context, request: CreatePartitionsRequest) -> CreatePartitionsResponse:
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
            topic = ctx.broker.topic(asked.name, b"", by_id=False)
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
            await ctx.broker.in_thread(
                lambda name=asked.name, count=asked.count: ctx.broker.topics.add_partitions(  # type: ignore[misc]
                    name, count, validate_only=request.validate_only
                )
            )
        except HeadraceError as error:
            result.error_code, result.error_message = code_of(error), str(error)
    return response
