"""InitProducerId: a number for an idempotent producer, so that what it sends twice is stored once.

Transactional ids are answered with COORDINATOR_NOT_AVAILABLE until there is a transaction coordinator.
"""

from headrace.broker.context import Context
from headrace.broker.handler import Handler
from headrace.protocol.api import ApiKey
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse


async def handle(ctx: Context, request: InitProducerIdRequest) -> InitProducerIdResponse:
    """Give out the next id; which ids are given out is on disk before they are."""
    if request.transactional_id is not None:
        return InitProducerIdResponse(error_code=ErrorCode.COORDINATOR_NOT_AVAILABLE, producer_epoch=-1)
    producer_id = await ctx.broker.in_thread(ctx.broker.identity.next_producer_id)
    return InitProducerIdResponse(producer_id=producer_id, producer_epoch=0)


HANDLER = Handler.of(ApiKey.INIT_PRODUCER_ID, handle)
