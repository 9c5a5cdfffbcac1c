"""InitProducerId, AddPartitionsToTxn, TxnOffsetCommit, WriteTxnMarkers: what belongs to a transaction.

What a transaction writes to is part of it before the write: partitions that are named with AddPartitionsToTxn, and for
TxnOffsetCommit the group's partition of `__consumer_offsets`, named with AddOffsetsToTxn or since version 5 added here
(KIP-890). WriteTxnMarkers, with which Kafka's brokers end transactions, serves administrators here, whose tools abort
a transaction that nobody ends any more with it (`kafka-transactions abort`).
"""

from collections.abc import Iterable

from headrace.broker.errors import code_of
from headrace.broker.groups import OFFSETS_TOPIC
from headrace.broker.handler import Answer, Context
from headrace.broker.handlers.groups import store_offsets
from headrace.broker.transactions import Asked
from headrace.broker.turns import Deferred, Steps
from headrace.coordinator.transaction.events import TransactionRequest, WriterSupport
from headrace.errors import HeadraceError
from headrace.model import TopicPartition
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTopicResult,
)
from headrace.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from headrace.protocol.messages.shared import PartitionOutcome, TopicOutcome
from headrace.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitResponse,
)
from headrace.protocol.messages.write_txn_markers import (
    WritableTxnMarkerResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from headrace.protocol.schema import Message


def ask_transactions(ctx: Context, request: TransactionRequest) -> Answer:
    """Ask the transaction coordinator; its answer waits for the disk."""
    return ctx.broker.transactions.ask(request, ctx.version)


def init_producer_id(ctx: Context, request: InitProducerIdRequest) -> Answer:
    """Give out the next id; which ids are given out is on disk before they are."""
    if request.transactional_id is not None:
        return ask_transactions(ctx, request)
    return _reserve_producer_id(ctx)


async def _reserve_producer_id(ctx: Context) -> InitProducerIdResponse:
    return InitProducerIdResponse(producer_id=await ctx.broker.next_producer_id(), producer_epoch=0)


MANY_SINCE = 4


def add_partitions(ctx: Context, request: AddPartitionsToTxnRequest) -> Answer:
    named = [topic for transaction in request.transactions for topic in transaction.topics]
    named += request.v3_and_below_topics
    if all(_exists(ctx, topic.name, index) for topic in named for index in topic.partitions):
        return ask_transactions(ctx, request)
    if ctx.version < MANY_SINCE:
        return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=_refuse_all(ctx, request.v3_and_below_topics))
    return AddPartitionsToTxnResponse(
        results_by_transaction=[
            AddPartitionsToTxnResult(
                transactional_id=transaction.transactional_id, topic_results=_refuse_all(ctx, transaction.topics)
            )
            for transaction in request.transactions
        ]
    )


def _exists(ctx: Context, name: str, index: int) -> bool:
    topic = ctx.broker.topics.by_name.get(name)
    return topic is not None and 0 <= index < len(topic.partitions)


def _refuse_all(ctx: Context, topics: Iterable[AddPartitionsToTxnTopic]) -> list[AddPartitionsToTxnTopicResult]:
    return [
        AddPartitionsToTxnTopicResult(
            name=topic.name,
            results_by_partition=[
                AddPartitionsToTxnPartitionResult(
                    partition_index=index,
                    partition_error_code=ErrorCode.OPERATION_NOT_ATTEMPTED
                    if _exists(ctx, topic.name, index)
                    else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                )
                for index in topic.partitions
            ],
        )
        for topic in topics
    ]


def commit_offsets(ctx: Context, request: TxnOffsetCommitRequest) -> Answer:
    """Ask the transaction coordinator whether this may be written, then the group coordinator to write it."""
    return ctx.broker.transactions.after_end([request.transactional_id], lambda: _commit_offsets(ctx, request))


def _commit_offsets(ctx: Context, request: TxnOffsetCommitRequest) -> Asked:
    unknown = _without_unknown(ctx, request)
    if unknown and not request.topics:
        return TxnOffsetCommitResponse(topics=unknown)
    groups = ctx.broker.groups
    groups.log.make()
    error, _ = ctx.broker.transactions.check_write(
        request.transactional_id,
        request.producer_id,
        request.producer_epoch,
        TopicPartition(OFFSETS_TOPIC, groups.log.partition_of(request.group_id)),
        WriterSupport.of_txn_offset_commit(ctx.version),
    )
    if error is not ErrorCode.NONE:
        refused = [_refuse(topic.name, topic.partitions, error) for topic in request.topics]
        return TxnOffsetCommitResponse(topics=refused + unknown)

    def add_unknown(response: Message | None) -> None:
        if isinstance(response, TxnOffsetCommitResponse):
            response.topics += unknown

    answer: Deferred[Message | None] = ctx.broker.turns.deferred(store_offsets(ctx, request))
    return answer.after(add_unknown) if unknown else answer


def _without_unknown(ctx: Context, request: TxnOffsetCommitRequest) -> list[TopicOutcome]:
    """Take what does not exist out of the request; the answers to that."""
    refused = []
    for topic in request.topics:
        known = ctx.broker.topics.by_name.get(topic.name)
        count = len(known.partitions) if known else 0
        unknown = [partition for partition in topic.partitions if not 0 <= partition.partition_index < count]
        if unknown:
            refused.append(_refuse(topic.name, unknown, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
            topic.partitions = [each for each in topic.partitions if 0 <= each.partition_index < count]
    request.topics = [topic for topic in request.topics if topic.partitions]
    return refused


def _refuse(name: str, partitions: list[TxnOffsetCommitRequestPartition], error: ErrorCode) -> TopicOutcome:
    outcomes = [
        PartitionOutcome(partition_index=partition.partition_index, error_code=error) for partition in partitions
    ]
    return TopicOutcome(name=name, partitions=outcomes)


def write_markers(ctx: Context, request: WriteTxnMarkersRequest) -> Steps[Answer]:
    """Write each marker; one that is refused does not touch the others."""
    response = WriteTxnMarkersResponse()
    for marker in request.markers:
        result = WritableTxnMarkerResult(producer_id=marker.producer_id)
        response.markers.append(result)
        for topic in marker.topics:
            answers = TopicOutcome(name=topic.name)
            result.topics.append(answers)
            for index in topic.partition_indexes:
                answer = PartitionOutcome(partition_index=index)
                answers.partitions.append(answer)
                try:
                    log = ctx.broker.log(ctx.broker.topic(topic.name), index)
                    ctx.broker.transactions.append_marker(
                        log,
                        marker.producer_id,
                        marker.producer_epoch,
                        marker.coordinator_epoch,
                        committed=marker.transaction_result,
                    )
                    ctx.broker.appended(log, log.end_offset)
                except HeadraceError as error:
                    answer.error_code = code_of(error)
                yield
    return response
