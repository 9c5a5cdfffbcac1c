"""IncrementalAlterConfigs (API 44): change single settings, and leave the others alone (KIP-339).

Version 1 is flexible; nothing else has changed.
"""

from headrace.protocol.messages.shared import ResourceOutcome
from headrace.protocol.schema import Message, Struct, array, boolean, int8, int32, nullable_string, string


class AlterableConfig(Struct):
    name: str = string()
    config_operation: int = int8()
    value: str | None = nullable_string()


class AlterConfigsResource(Struct):
    resource_type: int = int8()
    resource_name: str = string()
    configs: list[AlterableConfig] = array(AlterableConfig)


class IncrementalAlterConfigsRequest(Message, api_key=44, versions=range(2), flexible_since=1):
    resources: list[AlterConfigsResource] = array(AlterConfigsResource)
    validate_only: bool = boolean()


class IncrementalAlterConfigsResponse(Message, api_key=44, versions=range(2), flexible_since=1):
    throttle_time_ms: int = int32()
    responses: list[ResourceOutcome] = array(ResourceOutcome)
