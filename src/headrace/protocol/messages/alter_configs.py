"""AlterConfigs (API 33): replace the settings of topics and brokers as a whole.

What is not named goes back to its default, which is why IncrementalAlterConfigs has taken its place. Version 2 is
flexible; nothing else has changed.
"""

from headrace.protocol import schema as wire
from headrace.protocol.messages.shared import ResourceOutcome


class AlterableConfig(wire.Struct):
    name: str = wire.string()
    value: str | None = wire.nullable_string()


class AlterConfigsResource(wire.Struct):
    resource_type: int = wire.int8()
    resource_name: str = wire.string()
    configs: list[AlterableConfig] = wire.array(AlterableConfig)


class AlterConfigsRequest(wire.Message, api_key=33, versions=range(3), flexible_since=2):
    resources: list[AlterConfigsResource] = wire.array(AlterConfigsResource)
    validate_only: bool = wire.boolean()


class AlterConfigsResponse(wire.Message, api_key=33, versions=range(3), flexible_since=2):
    throttle_time_ms: int = wire.int32()
    responses: list[ResourceOutcome] = wire.array(ResourceOutcome)
