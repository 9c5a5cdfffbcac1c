"""ListConfigResources (API 74): what has settings of its own (KIP-1142); in version 0 client metrics (KIP-714)."""

from headrace.protocol import schema as wire


class ListConfigResourcesRequest(wire.Message, api_key=74, versions=range(2), flexible_since=0):
    resource_types: list[int] = wire.array(wire.INT8, since=1)


class ConfigResource(wire.Struct):
    resource_name: str = wire.string()
    resource_type: int = wire.int8(since=1, default=16, ignorable=True)


class ListConfigResourcesResponse(wire.Message, api_key=74, versions=range(2), flexible_since=0):
    throttle_time_ms: int = wire.int32()
    error_code: int = wire.int16()
    config_resources: list[ConfigResource] = wire.array(ConfigResource)
