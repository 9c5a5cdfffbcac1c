"""DescribeTransactions (API 65): the state of transactions, from their coordinator (KIP-664).

There is one version.
"""

from headrace.protocol import schema as wire
from headrace.protocol.messages.shared import TopicPartitions


class DescribeTransactionsRequest(wire.Message, api_key=65, versions=range(1), flexible_since=0):
    transactional_ids: list[str] = wire.array(wire.STRING)


class TransactionState(wire.Struct):
    error_code: int = wire.int16()
    transactional_id: str = wire.string()
    transaction_state: str = wire.string()
    transaction_timeout_ms: int = wire.int32()
    transaction_start_time_ms: int = wire.int64()
    producer_id: int = wire.int64()
    producer_epoch: int = wire.int16()
    topics: list[TopicPartitions] = wire.array(TopicPartitions)


class DescribeTransactionsResponse(wire.Message, api_key=65, versions=range(1), flexible_since=0):
    throttle_time_ms: int = wire.int32()
    transaction_states: list[TransactionState] = wire.array(TransactionState)
