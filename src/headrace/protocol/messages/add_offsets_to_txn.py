"""AddOffsetsToTxn (API 25): say that a transaction is going to commit offsets of a group.

It adds the group's partition of the offsets topic to the transaction. 2 may answer PRODUCER_FENCED, 4
TRANSACTION_ABORTABLE (KIP-890); 3 is flexible.
"""

from headrace.protocol.schema import Message, int16, int32, int64, string


class AddOffsetsToTxnRequest(Message, api_key=25, versions=range(5), flexible_since=3):
    transactional_id: str = string()
    producer_id: int = int64()
    producer_epoch: int = int16()
    group_id: str = string()


class AddOffsetsToTxnResponse(Message, api_key=25, versions=range(5), flexible_since=3):
    throttle_time_ms: int = int32()
    error_code: int = int16()
