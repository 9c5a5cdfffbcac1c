"""PushTelemetry (API 72): a client's metrics, as OTLP's protobuf (KIP-714)."""

from headrace.protocol import schema as wire


class PushTelemetryRequest(wire.Message, api_key=72, versions=range(1), flexible_since=0):
    client_instance_id: wire.Uuid = wire.uuid()
    subscription_id: int = wire.int32()
    terminating: bool = wire.boolean()
    compression_type: int = wire.int8()
    metrics: bytes = wire.blob()


class PushTelemetryResponse(wire.Message, api_key=72, versions=range(1), flexible_since=0):
    throttle_time_ms: int = wire.int32()
    error_code: int = wire.int16()
