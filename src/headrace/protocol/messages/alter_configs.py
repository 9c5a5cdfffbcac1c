"""AlterConfigs (API 33): replace the settings of topics and brokers as a whole.

What is not named goes back to its default, which is why IncrementalAlterConfigs has taken its place. Version 2 is
flexible; nothing else has changed.
"""

from headrace.protocol.schema import Message, Struct, array, boolean, int8, int16, int32, nullable_string, string


class AlterableConfig(Struct):
    """One setting."""

    name: str = string()
    value: str | None = nullable_string()


class AlterConfigsResource(Struct):
    """A topic or broker, and all the settings that it is to have."""

    resource_type: int = int8()
    resource_name: str = string()
    configs: list[AlterableConfig] = array(AlterableConfig)


class AlterConfigsRequest(Message, api_key=33, versions=range(3), flexible_since=2):
    """The new settings, and whether to set them or only to check."""

    resources: list[AlterConfigsResource] = array(AlterConfigsResource)
    validate_only: bool = boolean()


class AlterConfigsResourceResponse(Struct):
    """The outcome for one resource."""

    error_code: int = int16()
    error_message: str | None = nullable_string()
    resource_type: int = int8()
    resource_name: str = string()


class AlterConfigsResponse(Message, api_key=33, versions=range(3), flexible_since=2):
    """What became of each resource."""

    throttle_time_ms: int = int32()
    responses: list[AlterConfigsResourceResponse] = array(AlterConfigsResourceResponse)
