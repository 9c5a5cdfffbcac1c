"""InitProducerId, AddPartitionsToTxn, TxnOffsetCommit, WriteTxnMarkers: what belongs to a transaction.

What a transaction writes to is part of it before the write: partitions that are named with AddPartitionsToTxn, and for
TxnOffsetCommit the group's partition of `__consumer_offsets`, named with AddOffsetsToTxn or since version 5 added here
(KIP-890). WriteTxnMarkers, with which Kafka's brokers end transactions, serves administrators here, whose tools abort
a transaction that nobody ends any more with it (`kafka-transactions abort`).
"""

from collections.abc import Callable, Iterable

from headrace.broker.errors import code_of
from headrace.broker.groups import OFFSETS_TOPIC
from headrace.broker.handler import CLUSTER, TOPIC, TRANSACTIONAL_ID, Answer, Context, denial
from headrace.broker.handlers.offsets import count_partitions, store_offsets
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
from headrace.protocol.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TransactionState,
)
from headrace.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from headrace.protocol.messages.list_transactions import ListTransactionsRequest, ListTransactionsResponse
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
from headrace.security.acl import Operation


def ask_transactions(ctx: Context, request: TransactionRequest) -> Asked:
    """Ask the transaction coordinator; its answer waits for the disk."""
    return ctx.broker.transactions.ask(request, ctx.version)


def _amend(answer: Asked, change: Callable[[Message | None], None]) -> Asked:
    if isinstance(answer, Deferred):
        return answer.after(change)
    change(answer)
    return answer


def init_producer_id(ctx: Context, request: InitProducerIdRequest) -> Answer:
    """Give out the next id; which ids are given out is on disk before they are."""
    if request.transactional_id is not None:
        return ask_transactions(ctx, request)
    # Whoever may write to some topic may do so without doubles (KIP-679).
    if not ctx.may(Operation.IDEMPOTENT_WRITE, CLUSTER) and not ctx.may_some(Operation.WRITE, TOPIC):
        return InitProducerIdResponse(error_code=ctx.deny(Operation.IDEMPOTENT_WRITE, CLUSTER).code)
    return _reserve_producer_id(ctx)


async def _reserve_producer_id(ctx: Context) -> InitProducerIdResponse:
    return InitProducerIdResponse(producer_id=await ctx.broker.next_producer_id(), producer_epoch=0)


MANY_SINCE = 4  # and then for brokers among themselves


def add_partitions(ctx: Context, request: AddPartitionsToTxnRequest) -> Steps[Answer]:
    if ctx.version >= MANY_SINCE and not ctx.allows(CLUSTER):
        return AddPartitionsToTxnResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    if ctx.version < MANY_SINCE and not ctx.allows(TRANSACTIONAL_ID, request.v3_and_below_transactional_id):
        ctx.refused = denial(TRANSACTIONAL_ID)
    named = [topic for transaction in request.transactions for topic in transaction.topics]
    named += request.v3_and_below_topics
    if not (yield from _refuses_any(ctx, named)):
        return ask_transactions(ctx, request)
    if ctx.version < MANY_SINCE:
        refused = yield from _refuse_all(ctx, request.v3_and_below_topics)
        return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=refused)
    response = AddPartitionsToTxnResponse()
    for transaction in request.transactions:
        refused = yield from _refuse_all(ctx, transaction.topics)
        response.results_by_transaction.append(
            AddPartitionsToTxnResult(transactional_id=transaction.transactional_id, topic_results=refused)
        )
    return response


def _refuses_any(ctx: Context, topics: Iterable[AddPartitionsToTxnTopic]) -> Steps[bool]:
    for topic in topics:
        for index in topic.partitions:
            yield
            if _refuse_partition(ctx, topic.name, index):
                return True
    return False


def _refuse_partition(ctx: Context, name: str, index: int) -> ErrorCode | None:
    """Why a partition cannot be written to; what a broker asks for, a client was allowed by that broker."""
    try:
        topic = ctx.topic(name) if ctx.version < MANY_SINCE else ctx.broker.topic(name)
        ctx.broker.log(topic, index)
    except HeadraceError as error:
        return code_of(error)
    return None


def _refuse_all(ctx: Context, topics: Iterable[AddPartitionsToTxnTopic]) -> Steps[list[AddPartitionsToTxnTopicResult]]:
    results = []
    for topic in topics:
        result = AddPartitionsToTxnTopicResult(name=topic.name)
        results.append(result)
        for index in topic.partitions:
            yield
            code = _refuse_partition(ctx, topic.name, index) or ErrorCode.OPERATION_NOT_ATTEMPTED
            result.results_by_partition.append(
                AddPartitionsToTxnPartitionResult(partition_index=index, partition_error_code=code)
            )
    return results


def commit_offsets(ctx: Context, request: TxnOffsetCommitRequest) -> Answer:
    """Ask the transaction coordinator whether this may be written, then the group coordinator to write it."""
    if not ctx.broker.groups.log.is_made:  # nobody has asked for the group's coordinator
        return _make_and_commit(ctx, request)
    return ctx.broker.transactions.after_end([request.transactional_id], lambda: _commit_offsets(ctx, request))


async def _make_and_commit(ctx: Context, request: TxnOffsetCommitRequest) -> Message | None:
    await ctx.broker.in_thread(ctx.broker.groups.log.make)
    asked = ctx.broker.transactions.after_end([request.transactional_id], lambda: _commit_offsets(ctx, request))
    return await asked if isinstance(asked, Deferred) else asked


def _commit_offsets(ctx: Context, request: TxnOffsetCommitRequest) -> Asked:
    unknown = _without_unknown(ctx, request)
    if (unknown and not request.topics) or ctx.refused:
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
    """Take what does not exist, or is not allowed, out of the request; the answers to that."""
    refused = []
    for topic in request.topics:
        count, code = count_partitions(ctx, topic.name)
        unknown = [partition for partition in topic.partitions if not 0 <= partition.partition_index < count]
        if unknown:
            refused.append(_refuse(topic.name, unknown, code))
            topic.partitions = [each for each in topic.partitions if 0 <= each.partition_index < count]
    request.topics = [topic for topic in request.topics if topic.partitions]
    return refused


def _refuse(name: str, partitions: list[TxnOffsetCommitRequestPartition], error: ErrorCode) -> TopicOutcome:
    outcomes = [
        PartitionOutcome(partition_index=partition.partition_index, error_code=error) for partition in partitions
    ]
    return TopicOutcome(name=name, partitions=outcomes)


def describe_transactions(ctx: Context, request: DescribeTransactionsRequest) -> Steps[Answer]:
    """Describe those that the client may know of, and of each the partitions that it may know of."""
    allowed, denied = [], []
    for name in request.transactional_ids:
        yield
        if ctx.allows(TRANSACTIONAL_ID, name):
            allowed.append(name)
        else:
            code = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
            denied.append(TransactionState(transactional_id=name, error_code=code))
    request.transactional_ids = allowed

    def restrict(response: Message | None) -> None:
        if isinstance(response, DescribeTransactionsResponse):
            for state in response.transaction_states:
                state.topics = [topic for topic in state.topics if ctx.sees(TOPIC, topic.topic)]
            response.transaction_states += denied

    return _amend(ask_transactions(ctx, request), restrict)


def list_transactions(ctx: Context, request: ListTransactionsRequest) -> Answer:
    def restrict(response: Message | None) -> None:
        if isinstance(response, ListTransactionsResponse):
            response.transaction_states = [
                state for state in response.transaction_states if ctx.sees(TRANSACTIONAL_ID, state.transactional_id)
            ]

    return _amend(ask_transactions(ctx, request), restrict)


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
                    log = ctx.broker.log(ctx.topic(topic.name), index)
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
