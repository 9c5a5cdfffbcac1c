"""IncrementalAlterConfigs (API 44): change single settings, and leave the others alone (KIP-339).

Version 1 is flexible; nothing else has changed.
"""

from headrace.protocol.schema import Message, Struct, array, boolean, int8, int16, int32, nullable_string, string


class AlterableConfig(Struct):
    """One change: 0 sets, 1 deletes, 2 appends to a list, 3 takes from a list."""

    name: str = string()
    config_operation: int = int8()
    value: str | None = nullable_string()


class AlterConfigsResource(Struct):
    """A topic, broker or group, and the changes to it."""

    resource_type: int = int8()
    resource_name: str = string()
    configs: list[AlterableConfig] = array(AlterableConfig)


class IncrementalAlterConfigsRequest(Message, api_key=44, versions=range(2), flexible_since=1):
    """The changes, and whether to make them or only to check."""

    resources: list[AlterConfigsResource] = array(AlterConfigsResource)
    validate_only: bool = boolean()


class AlterConfigsResourceResponse(Struct):
    """The outcome for one resource."""

    error_code: int = int16()
    error_message: str | None = nullable_string()
    resource_type: int = int8()
    resource_name: str = string()


class IncrementalAlterConfigsResponse(Message, api_key=44, versions=range(2), flexible_since=1):
    """What became of each resource."""

    throttle_time_ms: int = int32()
    responses: list[AlterConfigsResourceResponse] = array(AlterConfigsResourceResponse)
