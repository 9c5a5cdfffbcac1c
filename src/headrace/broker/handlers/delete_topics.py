"""DeleteTopics: remove topics for good, by name or by id."""

import asyncio
from collections import Counter

from headrace.broker.context import Context
from headrace.broker.errors import BrokerError, code_of
from headrace.errors import HeadraceError
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from headrace.protocol.schema import Uuid


async def handle(ctx: Context, request: DeleteTopicsRequest) -> DeleteTopicsResponse:
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
            topic = ctx.broker.topic(state.name or "", state.topic_id, by_id=state.name is None)
            result.name, result.topic_id = topic.name, Uuid(topic.id)
            await ctx.broker.delete_topic(topic)
        except HeadraceError as error:
            result.error_code, result.error_message = code_of(error), str(error)
        except KeyError:  # another request removed it first
            result.error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return response
