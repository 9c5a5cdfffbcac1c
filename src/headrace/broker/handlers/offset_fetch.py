"""OffsetFetch: how far groups have read; by name, and since version 10 by topic id."""

from headrace.broker.context import Context
from headrace.broker.group_requests import ask_groups
from headrace.broker.handler import Answer, Handler
from headrace.protocol.api import ApiKey
from headrace.protocol.messages.offset_fetch import OffsetFetchRequest

BY_ID_SINCE = 10


def handle(ctx: Context, request: OffsetFetchRequest) -> Answer:
    """Give topics that came by id their names, and ask the coordinator."""
    if ctx.version >= BY_ID_SINCE:
        for group in request.groups:
            for topic in group.topics or ():
                found = ctx.broker.topics.by_id.get(topic.topic_id)
                topic.name = found.name if found else ""
    return ask_groups(ctx, request)


HANDLER = Handler.of(ApiKey.OFFSET_FETCH, handle)
