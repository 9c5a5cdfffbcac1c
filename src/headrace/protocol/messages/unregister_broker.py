"""UnregisterBroker (API 64): forget a broker that left the cluster for good (KIP-631)."""

from headrace.protocol import schema as wire


class UnregisterBrokerRequest(wire.Message, api_key=64, versions=range(1), flexible_since=0):
    broker_id: int = wire.int32()


class UnregisterBrokerResponse(wire.Message, api_key=64, versions=range(1), flexible_since=0):
    throttle_time_ms: int = wire.int32()
    error_code: int = wire.int16()
    error_message: str | None = wire.nullable_string()
