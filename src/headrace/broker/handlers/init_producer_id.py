"""InitProducerId: a number for an idempotent producer, so that what it sends twice is stored once.

With a transactional id it is the transaction coordinator that answers: it fences older instances of the producer, and
ends what they left open.
"""

from headrace.broker.context import Context
from headrace.broker.coordinator_requests import ask_transactions
from headrace.broker.handler import Answer
from headrace.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse


def handle(ctx: Context, request: InitProducerIdRequest) -> Answer:
    """Give out the next id; which ids are given out is on disk before they are."""
    if request.transactional_id is not None:
        return ask_transactions(ctx, request)
    return _next(ctx)


async def _next(ctx: Context) -> InitProducerIdResponse:
    return InitProducerIdResponse(producer_id=await ctx.broker.next_producer_id(), producer_epoch=0)
