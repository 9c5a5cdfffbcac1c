"""ListOffsets: the offset for a time, or for one of the ends of a log.

Looking for a time reads indexes and batches, so that is done in a thread, for all partitions of the request together.
"""

from collections.abc import Callable

from headrace.broker.context import Context
from headrace.broker.errors import BrokerError, code_of
from headrace.broker.handler import Answer
from headrace.broker.turns import Steps
from headrace.errors import HeadraceError
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from headrace.protocol.schema import Message
from headrace.storage.log import Log
from headrace.storage.lookup import first_at_or_after, youngest

LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED, EARLIEST_PENDING_UPLOAD = -1, -2, -3, -4, -5, -6
# Since which version each may be asked for.
_SINCE = {LATEST: 0, EARLIEST: 0, MAX_TIMESTAMP: 7, EARLIEST_LOCAL: 8, LATEST_TIERED: 9, EARLIEST_PENDING_UPLOAD: 11}
READ_COMMITTED = 1
EPOCH_SINCE = 4


def handle(ctx: Context, request: ListOffsetsRequest) -> Steps[Answer]:
    """Look up each partition; one that fails does not touch the others."""
    committed = request.isolation_level == READ_COMMITTED
    response = ListOffsetsResponse()
    by_time: list[Callable[[], None]] = []
    for topic in request.topics:
        answers = ListOffsetsTopicResponse(name=topic.name)
        response.topics.append(answers)
        for partition in topic.partitions:
            answer = ListOffsetsPartitionResponse(partition_index=partition.partition_index)
            answers.partitions.append(answer)
            try:
                search = _look_up(ctx, topic.name, partition, answer, committed=committed)
                if search:
                    by_time.append(search)
                elif ctx.version < EPOCH_SINCE:
                    answer.leader_epoch = -1
            except HeadraceError as error:
                answer.error_code = code_of(error)
            yield
    return _search(ctx, by_time, response) if by_time else response


async def _search(ctx: Context, by_time: list[Callable[[], None]], response: ListOffsetsResponse) -> Message:
    for search in by_time:
        await ctx.broker.look_up(search)
    return response


def _look_up(
    ctx: Context,
    topic: str,
    partition: ListOffsetsPartition,
    answer: ListOffsetsPartitionResponse,
    *,
    committed: bool,
) -> Callable[[], None] | None:
    """Look up a partition's ends; what has to be looked for by time is returned."""
    broker = ctx.broker
    if partition.timestamp < 0 and ctx.version < _SINCE.get(partition.timestamp, 1 << 15):
        raise BrokerError(
            ErrorCode.UNSUPPORTED_VERSION, f"version {ctx.version} knows no special time {partition.timestamp}"
        )
    log = broker.log(broker.topic(topic, b"", by_id=False), partition.partition_index)
    broker.check_epoch(partition.current_leader_epoch)
    end = broker.last_stable_offset(log) if committed else broker.high_watermark(log)
    if partition.timestamp == LATEST:
        answer.offset, answer.leader_epoch = end, max(log.epochs.latest, 0)
    elif partition.timestamp in (EARLIEST, EARLIEST_LOCAL):
        answer.offset, answer.leader_epoch = log.start_offset, max(log.epochs.epoch_at(log.start_offset), 0)
    elif partition.timestamp in (LATEST_TIERED, EARLIEST_PENDING_UPLOAD):
        answer.offset = -1  # there is no second tier
    else:
        return lambda: _by_time(ctx, log, partition.timestamp, end, answer)
    return None


def _by_time(ctx: Context, log: Log, timestamp: int, end: int, answer: ListOffsetsPartitionResponse) -> None:
    try:
        found = youngest(log) if timestamp == MAX_TIMESTAMP else first_at_or_after(log, timestamp)
    except HeadraceError as error:
        answer.error_code = code_of(error)
        return
    if found and found.offset < end:
        answer.offset, answer.timestamp, answer.leader_epoch = found
    if ctx.version < EPOCH_SINCE:
        answer.leader_epoch = -1
