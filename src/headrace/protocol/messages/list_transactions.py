"""ListTransactions (API 66): the transactions that this broker coordinates (KIP-664).

Since 1 by age (KIP-994), since 2 by a pattern of the transactional id (KIP-1152).
"""

from headrace.protocol.schema import INT64, STRING, Message, Struct, array, int16, int32, int64, nullable_string, string


class ListTransactionsRequest(Message, api_key=66, versions=range(3), flexible_since=0):
    """Which transactions are wanted; no filter means all."""

    state_filters: list[str] = array(STRING)
    producer_id_filters: list[int] = array(INT64)
    duration_filter: int = int64(since=1, default=-1)
    transactional_id_pattern: str | None = nullable_string(since=2, default=None)


class TransactionState(Struct):
    transactional_id: str = string()
    producer_id: int = int64()
    transaction_state: str = string()


class ListTransactionsResponse(Message, api_key=66, versions=range(3), flexible_since=0):
    throttle_time_ms: int = int32()
    error_code: int = int16()
    unknown_state_filters: list[str] = array(STRING)
    transaction_states: list[TransactionState] = array(TransactionState)
