"""DescribeTransactions and ListTransactions: what there is, without changing any of it (KIP-664)."""

from collections.abc import Mapping

from headrace.coordinator.expression import Expression, InvalidExpression
from headrace.coordinator.transaction.machine import STATES_BY_LABEL, Transaction, by_topic
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages import describe_transactions as described
from headrace.protocol.messages import list_transactions as listed
from headrace.protocol.messages.shared import TopicPartitions


def describe_transactions(
    transactions: Mapping[str, Transaction], message: described.DescribeTransactionsRequest
) -> described.DescribeTransactionsResponse:
    """Each transactional id that is asked for, once."""
    states = [
        _described(transactional_id, transactions) for transactional_id in dict.fromkeys(message.transactional_ids)
    ]
    return described.DescribeTransactionsResponse(transaction_states=states)


def list_transactions(
    transactions: Mapping[str, Transaction], message: listed.ListTransactionsRequest, now_ms: int
) -> listed.ListTransactionsResponse:
    """The transactional ids that pass all filters; the shell joins those of all coordinators."""
    try:
        pattern = Expression(message.transactional_id_pattern) if message.transactional_id_pattern else None
    except InvalidExpression:
        return listed.ListTransactionsResponse(error_code=ErrorCode.INVALID_REGULAR_EXPRESSION)
    unknown = [label for label in message.state_filters if label not in STATES_BY_LABEL]
    wanted_producers = frozenset(message.producer_id_filters)
    wanted_states = {STATES_BY_LABEL[label] for label in message.state_filters if label in STATES_BY_LABEL}

    def passes(transaction: Transaction) -> bool:
        if wanted_producers and transaction.producer_id not in wanted_producers:
            return False
        if message.state_filters and transaction.state not in wanted_states:
            return False
        # One that has never begun has been open since 1969, as in Kafka.
        if message.duration_filter >= 0 and now_ms - transaction.started_ms <= message.duration_filter:
            return False
        return pattern is None or pattern.matches(transaction.transactional_id)

    return listed.ListTransactionsResponse(
        unknown_state_filters=unknown,
        transaction_states=[
            listed.TransactionState(
                transactional_id=transaction.transactional_id,
                producer_id=transaction.producer_id,
                transaction_state=transaction.state.label,
            )
            for transaction in transactions.values()
            if passes(transaction)
        ],
    )


def _described(transactional_id: str, transactions: Mapping[str, Transaction]) -> described.TransactionState:
    if not transactional_id:
        return described.TransactionState(error_code=ErrorCode.INVALID_REQUEST)
    known = transactions.get(transactional_id)
    if known is None:
        return described.TransactionState(
            transactional_id=transactional_id, error_code=ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
        )
    return described.TransactionState(
        transactional_id=transactional_id,
        transaction_state=known.state.label,
        transaction_timeout_ms=known.timeout_ms,
        transaction_start_time_ms=known.started_ms,
        producer_id=known.producer_id,
        producer_epoch=known.producer_epoch,
        topics=[
            TopicPartitions(topic=topic, partitions=numbers) for topic, numbers in by_topic(known.partitions).items()
        ],
    )
