"""TxnOffsetCommit: store how far a group has read, if and when a transaction commits.

The group's partition of `__consumer_offsets` is part of the transaction: it was named with AddOffsetsToTxn, or since
version 5 is added here (KIP-890). Offsets of topics or partitions that do not exist are refused, as by OffsetCommit.
"""

from headrace.broker.context import Context
from headrace.broker.coordinator_requests import commit_offsets
from headrace.broker.deferred import Deferred
from headrace.broker.groups import OFFSETS_TOPIC
from headrace.broker.handler import Answer
from headrace.broker.transactions import Asked
from headrace.coordinator.transaction.events import WriterSupport
from headrace.model import TopicPartition
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.shared import PartitionOutcome, TopicOutcome
from headrace.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitResponse,
)
from headrace.protocol.schema import Message


def handle(ctx: Context, request: TxnOffsetCommitRequest) -> Answer:
    """Ask the transaction coordinator whether this may be written, then the group coordinator to write it."""
    return ctx.broker.transactions.after_end([request.transactional_id], lambda: _commit(ctx, request))


def _commit(ctx: Context, request: TxnOffsetCommitRequest) -> Asked:
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
        refused = [_refused(topic.name, topic.partitions, error) for topic in request.topics]
        return TxnOffsetCommitResponse(topics=refused + unknown)

    def add_unknown(response: Message | None) -> None:
        if isinstance(response, TxnOffsetCommitResponse):
            response.topics += unknown

    answer: Deferred[Message | None] = ctx.broker.turns.deferred(commit_offsets(ctx, request))
    return answer.after(add_unknown) if unknown else answer


def _without_unknown(ctx: Context, request: TxnOffsetCommitRequest) -> list[TopicOutcome]:
    """Take what does not exist out of the request; the answers to that."""
    refused = []
    for topic in request.topics:
        known = ctx.broker.topics.by_name.get(topic.name)
        count = len(known.partitions) if known else 0
        unknown = [partition for partition in topic.partitions if not 0 <= partition.partition_index < count]
        if unknown:
            refused.append(_refused(topic.name, unknown, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
            topic.partitions = [each for each in topic.partitions if 0 <= each.partition_index < count]
    request.topics = [topic for topic in request.topics if topic.partitions]
    return refused


def _refused(name: str, partitions: list[TxnOffsetCommitRequestPartition], error: ErrorCode) -> TopicOutcome:
    outcomes = [
        PartitionOutcome(partition_index=partition.partition_index, error_code=error) for partition in partitions
    ]
    return TopicOutcome(name=name, partitions=outcomes)
