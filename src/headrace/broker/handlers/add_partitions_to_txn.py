"""AddPartitionsToTxn: name the partitions that a transaction is about to write to.

A request that names a partition that does not exist is refused as a whole, as in Kafka: the others were not attempted.
"""

from collections.abc import Iterable

from headrace.broker.context import Context
from headrace.broker.coordinator_requests import ask_transactions
from headrace.broker.handler import Answer
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTopicResult,
)

MANY_SINCE = 4


def handle(ctx: Context, request: AddPartitionsToTxnRequest) -> Answer:
    """Ask the coordinator, unless a partition is not there."""
    named = [topic for transaction in request.transactions for topic in transaction.topics]
    named += request.v3_and_below_topics
    if all(_exists(ctx, topic.name, index) for topic in named for index in topic.partitions):
        return ask_transactions(ctx, request)
    if ctx.version < MANY_SINCE:
        return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=_refused(ctx, request.v3_and_below_topics))
    return AddPartitionsToTxnResponse(
        results_by_transaction=[
            AddPartitionsToTxnResult(
                transactional_id=transaction.transactional_id, topic_results=_refused(ctx, transaction.topics)
            )
            for transaction in request.transactions
        ]
    )


def _exists(ctx: Context, name: str, index: int) -> bool:
    topic = ctx.broker.topics.by_name.get(name)
    return topic is not None and 0 <= index < len(topic.partitions)


def _refused(ctx: Context, topics: Iterable[AddPartitionsToTxnTopic]) -> list[AddPartitionsToTxnTopicResult]:
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
