"""AlterConfigs (API 33): replace the settings of topics and brokers as a whole.

What is not named goes back to its default, which is why IncrementalAlterConfigs has taken its place. Version 2 is
flexible; nothing else has changed.
"""

from headrace.protocol.messages.shared import ResourceOutcome
from headrace.protocol.schema import Message, Struct, array, boolean, int8, int32, nullable_string, string


class AlterableConfig(Struct):
    name: str = string()
    value: str | None = nullable_string()


class AlterConfigsResource(Struct):
    resource_type: int = int8()
    resource_name: str = string()
    configs: list[AlterableConfig] = array(AlterableConfig)


class AlterConfigsRequest(Message, api_key=33, versions=range(3), flexible_since=2):
    """The new settings, and whether to set them or only to check."""

    resources: list[AlterConfigsResource] = array(AlterConfigsResource)
    validate_only: bool = boolean()


class AlterConfigsResponse(Message, api_key=33, versions=range(3), flexible_since=2):
    throttle_time_ms: int = int32()
    responses: list[ResourceOutcome] = array(ResourceOutcome)
