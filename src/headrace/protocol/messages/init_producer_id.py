"""InitProducerId (API 22): get a producer id and epoch, and take over a transactional id.

With a transactional id, whatever the id's last producer left open is aborted and that producer is fenced. Since 3 a
producer may ask for a new epoch of the id it has (KIP-360); 4 may answer PRODUCER_FENCED (KIP-588), 5
TRANSACTION_ABORTABLE (KIP-890). Version 6, two-phase commit (KIP-939), is unstable in Kafka 4.3 and not declared.
"""

from headrace.protocol.schema import Message, int16, int32, int64, nullable_string


class InitProducerIdRequest(Message, api_key=22, versions=range(6), flexible_since=2):
    transactional_id: str | None = nullable_string()
    transaction_timeout_ms: int = int32()
    producer_id: int = int64(since=3, default=-1)
    producer_epoch: int = int16(since=3, default=-1)


class InitProducerIdResponse(Message, api_key=22, versions=range(6), flexible_since=2):
    throttle_time_ms: int = int32()
    error_code: int = int16()
    producer_id: int = int64(default=-1)
    producer_epoch: int = int16()
