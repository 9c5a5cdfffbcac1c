"""GetTelemetrySubscriptions (API 71): which of its metrics a client is to push, and how often (KIP-714)."""

from headrace.protocol import schema as wire


class GetTelemetrySubscriptionsRequest(wire.Message, api_key=71, versions=range(1), flexible_since=0):
    client_instance_id: wire.Uuid = wire.uuid()


class GetTelemetrySubscriptionsResponse(wire.Message, api_key=71, versions=range(1), flexible_since=0):
    throttle_time_ms: int = wire.int32()
    error_code: int = wire.int16()
    client_instance_id: wire.Uuid = wire.uuid()
    subscription_id: int = wire.int32()
    accepted_compression_types: list[int] = wire.array(wire.INT8)
    push_interval_ms: int = wire.int32()
    telemetry_max_bytes: int = wire.int32()
    delta_temporality: bool = wire.boolean()
    requested_metrics: list[str] = wire.array(wire.STRING)
