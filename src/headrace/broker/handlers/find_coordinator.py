"""FindCoordinator: who looks after a group or a transaction; with one broker, always this one."""

from headrace.broker.context import Context
from headrace.broker.coordinator_log import CoordinatorLog
from headrace.broker.handler import Answer
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse

GROUP, TRANSACTION = 0, 1
KEYS_SINCE = 4


def handle(ctx: Context, request: FindCoordinatorRequest) -> Answer:
    """Name this broker; the first one to ask has the coordinator's topic made before it is answered."""
    log = {GROUP: ctx.broker.groups.log, TRANSACTION: ctx.broker.transactions.log}.get(request.key_type)
    return _make_and_answer(ctx, request, log) if log and not log.is_made else _answer(ctx, request)


async def _make_and_answer(
    ctx: Context, request: FindCoordinatorRequest, log: CoordinatorLog
) -> FindCoordinatorResponse:
    await ctx.broker.in_thread(log.make)
    return _answer(ctx, request)


def _answer(ctx: Context, request: FindCoordinatorRequest) -> FindCoordinatorResponse:
    is_known = request.key_type in (GROUP, TRANSACTION)
    host, port = ctx.advertised if is_known else ("", -1)
    node_id = ctx.broker.node_id if is_known else -1
    error = ErrorCode.NONE if is_known else ErrorCode.INVALID_REQUEST
    message = None if is_known else f"coordinator type {request.key_type} is unknown"
    if ctx.version < KEYS_SINCE:
        return FindCoordinatorResponse(error_code=error, error_message=message, node_id=node_id, host=host, port=port)
    return FindCoordinatorResponse(
        coordinators=[
            Coordinator(key=key, node_id=node_id, host=host, port=port, error_code=error, error_message=message)
            for key in request.coordinator_keys
        ]
    )
