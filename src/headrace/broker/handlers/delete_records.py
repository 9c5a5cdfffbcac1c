"""DeleteRecords: make everything before an offset unreadable, for good; -1 stands for all there is."""

import asyncio

from headrace.broker.context import Context
from headrace.broker.errors import BrokerError, code_of
from headrace.errors import HeadraceError
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.delete_records import (
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)

HIGH_WATERMARK = -1


async def handle(ctx: Context, request: DeleteRecordsRequest) -> DeleteRecordsResponse:
    """Move each log's start; it is on disk when the answer comes."""
    response = DeleteRecordsResponse()
    for topic in request.topics:
        results = DeleteRecordsTopicResult(name=topic.name)
        response.topics.append(results)
        for partition in topic.partitions:
            await asyncio.sleep(0)  # there may be many, and those that are refused wait for nothing
            result = DeleteRecordsPartitionResult(partition_index=partition.partition_index, low_watermark=-1)
            results.partitions.append(result)
            try:
                known = ctx.broker.topic(topic.name, b"", by_id=False)
                log = ctx.broker.log(known, partition.partition_index)
                if known.is_internal:
                    raise BrokerError(
                        ErrorCode.INVALID_TOPIC_EXCEPTION, f"Cannot delete records of internal topic {topic.name}"
                    )
                if partition.offset < HIGH_WATERMARK:
                    raise BrokerError(ErrorCode.OFFSET_OUT_OF_RANGE, f"there is no offset {partition.offset}")
                before = ctx.broker.high_watermark(log) if partition.offset == HIGH_WATERMARK else partition.offset
                result.low_watermark = await ctx.broker.in_thread(
                    lambda log=log, before=before: ctx.broker.directory.delete_records(  # type: ignore[misc]
                        log.topic_partition, before, log=log
                    )
                )
            except HeadraceError as error:
                result.error_code = code_of(error)
    return response
