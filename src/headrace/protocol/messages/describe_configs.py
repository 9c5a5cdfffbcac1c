"""DescribeConfigs (API 32): the settings of topics, brokers and groups.

Version 0 went with Kafka 4.0. A setting comes with its source and, if asked for, with every place that it could have
come from; 3 adds its type and its documentation (KIP-569); 4 is flexible.
"""

from headrace.protocol import schema as wire


class DescribeConfigsResource(wire.Struct):
    """A topic, broker or group, and the settings wanted of it; null means all."""

    resource_type: int = wire.int8()
    resource_name: str = wire.string()
    configuration_keys: list[str] | None = wire.nullable_array(wire.STRING)


class DescribeConfigsRequest(wire.Message, api_key=32, versions=range(1, 5), flexible_since=4):
    resources: list[DescribeConfigsResource] = wire.array(DescribeConfigsResource)
    include_synonyms: bool = wire.boolean()
    include_documentation: bool = wire.boolean(since=3)


class DescribeConfigsSynonym(wire.Struct):
    name: str = wire.string()
    value: str | None = wire.nullable_string()
    source: int = wire.int8()


class DescribeConfigsResourceResult(wire.Struct):
    name: str = wire.string()
    value: str | None = wire.nullable_string()
    read_only: bool = wire.boolean()
    config_source: int = wire.int8(default=-1)
    is_sensitive: bool = wire.boolean()
    synonyms: list[DescribeConfigsSynonym] = wire.array(DescribeConfigsSynonym)
    config_type: int = wire.int8(since=3, ignorable=True)
    documentation: str | None = wire.nullable_string(since=3, ignorable=True)


class DescribeConfigsResult(wire.Struct):
    error_code: int = wire.int16()
    error_message: str | None = wire.nullable_string()
    resource_type: int = wire.int8()
    resource_name: str = wire.string()
    configs: list[DescribeConfigsResourceResult] = wire.array(DescribeConfigsResourceResult)


class DescribeConfigsResponse(wire.Message, api_key=32, versions=range(1, 5), flexible_since=4):
    throttle_time_ms: int = wire.int32()
    results: list[DescribeConfigsResult] = wire.array(DescribeConfigsResult)
