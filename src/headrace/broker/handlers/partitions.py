"""ListOffsets, DeleteRecords, OffsetForLeaderEpoch, DescribeProducers, DescribeLogDirs …: what single logs are asked.

Looking for a time reads indexes and batches, so ListOffsets does that in a thread, for all partitions of the request
together. DeleteRecords makes everything before an offset unreadable, for good; -1 stands for all there is. One
partition that fails does not touch the others.
"""

import asyncio
import os
from collections.abc import Callable

from headrace.broker.errors import BrokerError, code_of
from headrace.broker.handler import Answer, Context
from headrace.broker.turns import Steps
from headrace.errors import HeadraceError
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopicResult,
)
from headrace.protocol.messages.delete_records import (
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)
from headrace.protocol.messages.describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)
from headrace.protocol.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicResponse,
)
from headrace.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from headrace.protocol.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderTopicResult,
)
from headrace.protocol.messages.shared import PartitionOutcome
from headrace.protocol.schema import Message
from headrace.storage.log import Log
from headrace.storage.reading import first_at_or_after, youngest

LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED, EARLIEST_PENDING_UPLOAD = -1, -2, -3, -4, -5, -6
# Since which version each may be asked for.
_SINCE = {LATEST: 0, EARLIEST: 0, MAX_TIMESTAMP: 7, EARLIEST_LOCAL: 8, LATEST_TIERED: 9, EARLIEST_PENDING_UPLOAD: 11}
READ_COMMITTED = 1
EPOCH_SINCE = 4


def list_offsets(ctx: Context, request: ListOffsetsRequest) -> Steps[Answer]:
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
    ctx: Context, topic: str, partition: ListOffsetsPartition, answer: ListOffsetsPartitionResponse, *, committed: bool
) -> Callable[[], None] | None:
    """Look up a partition's ends; what has to be looked for by time is returned."""
    broker = ctx.broker
    if partition.timestamp < 0 and ctx.version < _SINCE.get(partition.timestamp, 1 << 15):
        raise BrokerError(
            ErrorCode.UNSUPPORTED_VERSION, f"version {ctx.version} knows no special time {partition.timestamp}"
        )
    log = broker.log(ctx.topic(topic), partition.partition_index)
    broker.check_epoch(partition.current_leader_epoch)
    end = broker.last_stable_offset(log) if committed else broker.high_watermark(log)
    if partition.timestamp == LATEST:
        answer.offset, answer.leader_epoch = end, max(log.epochs.latest, 0)
    elif partition.timestamp in (EARLIEST, EARLIEST_LOCAL):
        answer.offset, answer.leader_epoch = log.start_offset, max(log.epochs.epoch_at(log.start_offset), 0)
    elif partition.timestamp in (LATEST_TIERED, EARLIEST_PENDING_UPLOAD):
        answer.offset = -1  # there is no second tier
    else:
        return lambda: _look_up_time(ctx, log, partition.timestamp, end, answer)
    return None


def _look_up_time(ctx: Context, log: Log, timestamp: int, end: int, answer: ListOffsetsPartitionResponse) -> None:
    try:
        found = youngest(log) if timestamp == MAX_TIMESTAMP else first_at_or_after(log, timestamp)
    except HeadraceError as error:
        answer.error_code = code_of(error)
        return
    if found and found.offset < end:
        answer.offset, answer.timestamp, answer.leader_epoch = found
    if ctx.version < EPOCH_SINCE:
        answer.leader_epoch = -1


HIGH_WATERMARK = -1


async def delete_records(ctx: Context, request: DeleteRecordsRequest) -> DeleteRecordsResponse:
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
                known = ctx.topic(topic.name)
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
                ctx.broker.waiting.appended(log)  # share groups leave behind what they had of it
            except HeadraceError as error:
                result.error_code = code_of(error)
    return response


def find_epoch_end(ctx: Context, request: OffsetForLeaderEpochRequest) -> Steps[Answer]:
    broker = ctx.broker
    response = OffsetForLeaderEpochResponse()
    for topic in request.topics:
        answers = OffsetForLeaderTopicResult(topic=topic.topic)
        response.topics.append(answers)
        for partition in topic.partitions:
            answer = EpochEndOffset(partition=partition.partition)
            answers.partitions.append(answer)
            try:
                log = broker.log(ctx.topic(topic.topic), partition.partition)
                broker.check_epoch(partition.current_leader_epoch)
                answer.leader_epoch, answer.end_offset = broker.end_of_epoch(log, partition.leader_epoch)
            except HeadraceError as error:
                answer.error_code = code_of(error)
            yield
    return response


def describe_producers(ctx: Context, request: DescribeProducersRequest) -> Steps[Answer]:
    """Look into each partition, once: an answer is in proportion to what there is, not to how often it is asked for."""
    response = DescribeProducersResponse()
    described = set()
    for topic in request.topics:
        answers = TopicResponse(name=topic.name)
        response.topics.append(answers)
        for index in topic.partition_indexes:
            yield
            if (topic.name, index) in described:
                continue
            described.add((topic.name, index))
            answer = PartitionResponse(partition_index=index)
            answers.partitions.append(answer)
            try:
                log = ctx.broker.log(ctx.topic(topic.name), index)
            except HeadraceError as error:
                answer.error_code, answer.error_message = code_of(error), str(error)
                continue
            answer.active_producers = [
                ProducerState(
                    producer_id=producer.producer_id,
                    producer_epoch=producer.epoch,
                    last_sequence=producer.last_sequence,
                    last_timestamp=producer.last_timestamp,
                    coordinator_epoch=producer.coordinator_epoch,
                    current_txn_start_offset=-1 if producer.transaction_start is None else producer.transaction_start,
                )
                for producer in list(log.producers.producers.values())
            ]
    return response


def describe_log_dirs(ctx: Context, request: DescribeLogDirsRequest) -> Steps[Answer]:
    wanted = None if request.topics is None else {topic.topic: set(topic.partitions) for topic in request.topics}
    path = ctx.broker.directory.path
    disk = os.statvfs(path)
    result = DescribeLogDirsResult(
        log_dir=path, total_bytes=disk.f_blocks * disk.f_frsize, usable_bytes=disk.f_bavail * disk.f_frsize
    )
    for topic in list(ctx.broker.topics.by_name.values()):
        yield
        partitions = [
            DescribeLogDirsPartition(partition_index=index, partition_size=log.size_bytes, offset_lag=0)
            for index, log in enumerate(topic.partitions)
            if wanted is None or index in wanted.get(topic.name, ())
        ]
        if partitions:
            result.topics.append(DescribeLogDirsTopic(name=topic.name, partitions=partitions))
    return DescribeLogDirsResponse(results=[result])


def move_logs(ctx: Context, request: AlterReplicaLogDirsRequest) -> Steps[Answer]:
    """Check that each partition is to be where it is: there is one directory. A topic is answered for once."""
    outcomes: dict[str, dict[int, ErrorCode]] = {}
    for directory in request.dirs:
        is_ours = directory.path == ctx.broker.directory.path
        for topic in directory.topics:
            yield
            known = ctx.broker.topics.by_name.get(topic.name)
            count = len(known.partitions) if known else 0
            outcome = outcomes.setdefault(topic.name, {})
            for partition in topic.partitions:
                if ctx.refused:
                    outcome[partition] = ctx.refused.code
                elif not is_ours:
                    outcome[partition] = ErrorCode.LOG_DIR_NOT_FOUND
                elif not 0 <= partition < count:
                    outcome[partition] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                else:
                    outcome[partition] = ErrorCode.NONE
    results = [
        AlterReplicaLogDirTopicResult(
            topic_name=name,
            partitions=[PartitionOutcome(partition_index=index, error_code=code) for index, code in outcome.items()],
        )
        for name, outcome in outcomes.items()
    ]
    return AlterReplicaLogDirsResponse(results=results)
