"""TxnOffsetCommit: store how far a group has read, if and when a transaction commits.

The group's partition of `__consumer_offsets` is part of the transaction: it was named with AddOffsetsToTxn, or since
version 5 is added here (KIP-890).
"""

from headrace.broker.context import Context
from headrace.broker.group_requests import ask_groups
from headrace.broker.groups import OFFSETS_TOPIC
from headrace.broker.handler import Answer, Handler
from headrace.coordinator.transaction.events import WriterSupport
from headrace.model import TopicPartition
from headrace.protocol.api import ApiKey
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)


def handle(ctx: Context, request: TxnOffsetCommitRequest) -> Answer:
    """Ask the transaction coordinator whether this may be written, then the group coordinator to write it."""
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
        return _refused(request, error)
    return ask_groups(ctx, request)


def _refused(request: TxnOffsetCommitRequest, error: ErrorCode) -> TxnOffsetCommitResponse:
    return TxnOffsetCommitResponse(
        topics=[
            TxnOffsetCommitResponseTopic(
                name=topic.name,
                partitions=[
                    TxnOffsetCommitResponsePartition(partition_index=partition.partition_index, error_code=error)
                    for partition in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


HANDLER = Handler.of(ApiKey.TXN_OFFSET_COMMIT, handle)
