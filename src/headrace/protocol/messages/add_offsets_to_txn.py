"""AddOffsetsToTxn (API 25): say that a transaction is going to commit offsets of a group.

It adds the group's partition of the offsets topic to the transaction. 2 may answer PRODUCER_FENCED, 4
TRANSACTION_ABORTABLE (KIP-890); 3 is flexible.
"""

from headrace.protocol import schema as wire


class AddOffsetsToTxnRequest(wire.Message, api_key=25, versions=range(5), flexible_since=3):
    transactional_id: str = wire.string()
    producer_id: int = wire.int64()
    producer_epoch: int = wire.int16()
    group_id: str = wire.string()


class AddOffsetsToTxnResponse(wire.Message, api_key=25, versions=range(5), flexible_since=3):
    throttle_time_ms: int = wire.int32()
    error_code: int = wire.int16()
