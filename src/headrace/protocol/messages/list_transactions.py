"""ListTransactions (API 66): the transactions that this broker coordinates (KIP-664).

Since 1 by age (KIP-994), since 2 by a pattern of the transactional id (KIP-1152).
"""

from headrace.protocol import schema as wire


class ListTransactionsRequest(wire.Message, api_key=66, versions=range(3), flexible_since=0):
    """Which transactions are wanted; no filter means all."""

    state_filters: list[str] = wire.array(wire.STRING)
    producer_id_filters: list[int] = wire.array(wire.INT64)
    duration_filter: int = wire.int64(since=1, default=-1)
    transactional_id_pattern: str | None = wire.nullable_string(since=2, default=None)


class TransactionState(wire.Struct):
    transactional_id: str = wire.string()
    producer_id: int = wire.int64()
    transaction_state: str = wire.string()


class ListTransactionsResponse(wire.Message, api_key=66, versions=range(3), flexible_since=0):
    throttle_time_ms: int = wire.int32()
    error_code: int = wire.int16()
    unknown_state_filters: list[str] = wire.array(wire.STRING)
    transaction_states: list[TransactionState] = wire.array(TransactionState)
