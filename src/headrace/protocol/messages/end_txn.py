"""EndTxn (API 26): commit or abort a transaction.

2 may answer PRODUCER_FENCED, 4 TRANSACTION_ABORTABLE; since 5 the epoch moves on with every transaction, and the answer
tells the next one (KIP-890).
"""

from headrace.protocol import schema as wire


class EndTxnRequest(wire.Message, api_key=26, versions=range(6), flexible_since=3):
    transactional_id: str = wire.string()
    producer_id: int = wire.int64()
    producer_epoch: int = wire.int16()
    committed: bool = wire.boolean()


class EndTxnResponse(wire.Message, api_key=26, versions=range(6), flexible_since=3):
    throttle_time_ms: int = wire.int32()
    error_code: int = wire.int16()
    producer_id: int = wire.int64(since=5, default=-1, ignorable=True)
    producer_epoch: int = wire.int16(since=5, default=-1, ignorable=True)
