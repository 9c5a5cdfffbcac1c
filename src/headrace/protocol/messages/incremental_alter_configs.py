"""IncrementalAlterConfigs (API 44): change single settings, and leave the others alone (KIP-339).

Version 1 is flexible; nothing else has changed.
"""

from headrace.protocol import schema as wire
from headrace.protocol.messages.shared import ResourceOutcome


class AlterableConfig(wire.Struct):
    name: str = wire.string()
    config_operation: int = wire.int8()
    value: str | None = wire.nullable_string()


class AlterConfigsResource(wire.Struct):
    resource_type: int = wire.int8()
    resource_name: str = wire.string()
    configs: list[AlterableConfig] = wire.array(AlterableConfig)


class IncrementalAlterConfigsRequest(wire.Message, api_key=44, versions=range(2), flexible_since=1):
    resources: list[AlterConfigsResource] = wire.array(AlterConfigsResource)
    validate_only: bool = wire.boolean()


class IncrementalAlterConfigsResponse(wire.Message, api_key=44, versions=range(2), flexible_since=1):
    throttle_time_ms: int = wire.int32()
    responses: list[ResourceOutcome] = wire.array(ResourceOutcome)
