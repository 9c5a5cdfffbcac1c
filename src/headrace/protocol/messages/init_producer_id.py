"""InitProducerId (API 22): get a producer id and epoch, and take over a transactional id.

With a transactional id, whatever the id's last producer left open is aborted and that producer is fenced. Since 3 a
producer may ask for a new epoch of the id it has (KIP-360); 4 may answer PRODUCER_FENCED (KIP-588), 5
TRANSACTION_ABORTABLE (KIP-890). Version 6, two-phase commit (KIP-939), is unstable in Kafka 4.3 and not declared.
"""

from headrace.protocol import schema as wire


class InitProducerIdRequest(wire.Message, api_key=22, versions=range(6), flexible_since=2):
    transactional_id: str | None = wire.nullable_string()
    transaction_timeout_ms: int = wire.int32()
    producer_id: int = wire.int64(since=3, default=-1)
    producer_epoch: int = wire.int16(since=3, default=-1)


class InitProducerIdResponse(wire.Message, api_key=22, versions=range(6), flexible_since=2):
    throttle_time_ms: int = wire.int32()
    error_code: int = wire.int16()
    producer_id: int = wire.int64(default=-1)
    producer_epoch: int = wire.int16()
