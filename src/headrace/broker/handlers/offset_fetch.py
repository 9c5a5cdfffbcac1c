"""OffsetFetch: how far groups have read; by name, and since version 10 by topic id."""

from headrace.broker.context import Context
from headrace.broker.coordinator_requests import ask_group_by_group
from headrace.broker.handler import Answer
from headrace.broker.turns import Steps
from headrace.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchResponse
from headrace.protocol.schema import ZERO_UUID, Message, Uuid

BY_ID_SINCE = 10


_ask = ask_group_by_group("groups", "groups")


def handle(ctx: Context, request: OffsetFetchRequest) -> Steps[Answer]:
    """Give topics that came by id their names, ask the coordinator, and give what it found its ids."""
    if ctx.version < BY_ID_SINCE:
        return (yield from _ask(ctx, request))
    topics = ctx.broker.topics
    for group in request.groups:
        yield
        for topic in group.topics or ():
            known = topics.by_id.get(topic.topic_id)
            topic.name = known.name if known else ""

    def fill_in_ids(response: Message | None) -> None:
        if isinstance(response, OffsetFetchResponse):
            for group in response.groups:
                for topic in group.topics:
                    known = topics.by_name.get(topic.name)
                    if topic.topic_id == ZERO_UUID and known:
                        topic.topic_id = Uuid(known.id)

    answer = yield from _ask(ctx, request)
    return answer.after(fill_in_ids)
