"""DescribeTransactions (API 65): the state of transactions, from their coordinator (KIP-664).

There is one version.
"""

from headrace.protocol.messages.shared import TopicPartitions
from headrace.protocol.schema import STRING, Message, Struct, array, int16, int32, int64, string


class DescribeTransactionsRequest(Message, api_key=65, versions=range(1), flexible_since=0):
    transactional_ids: list[str] = array(STRING)


class TransactionState(Struct):
    error_code: int = int16()
    transactional_id: str = string()
    transaction_state: str = string()
    transaction_timeout_ms: int = int32()
    transaction_start_time_ms: int = int64()
    producer_id: int = int64()
    producer_epoch: int = int16()
    topics: list[TopicPartitions] = array(TopicPartitions)


class DescribeTransactionsResponse(Message, api_key=65, versions=range(1), flexible_since=0):
    throttle_time_ms: int = int32()
    transaction_states: list[TransactionState] = array(TransactionState)
