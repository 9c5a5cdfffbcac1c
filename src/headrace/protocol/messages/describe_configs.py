"""DescribeConfigs (API 32): the settings of topics, brokers and groups.

Version 0 went with Kafka 4.0. A setting comes with its source and, if asked for, with every place that it could have
come from; 3 adds its type and its documentation (KIP-569); 4 is flexible.
"""

from headrace.protocol.schema import (
    STRING,
    Message,
    Struct,
    array,
    boolean,
    int8,
    int16,
    int32,
    nullable_array,
    nullable_string,
    string,
)


class DescribeConfigsResource(Struct):
    """A topic, broker or group, and the settings wanted of it; null means all."""

    resource_type: int = int8()
    resource_name: str = string()
    configuration_keys: list[str] | None = nullable_array(STRING)


class DescribeConfigsRequest(Message, api_key=32, versions=range(1, 5), flexible_since=4):
    resources: list[DescribeConfigsResource] = array(DescribeConfigsResource)
    include_synonyms: bool = boolean()
    include_documentation: bool = boolean(since=3)


class DescribeConfigsSynonym(Struct):
    name: str = string()
    value: str | None = nullable_string()
    source: int = int8()


class DescribeConfigsResourceResult(Struct):
    name: str = string()
    value: str | None = nullable_string()
    read_only: bool = boolean()
    config_source: int = int8(default=-1)
    is_sensitive: bool = boolean()
    synonyms: list[DescribeConfigsSynonym] = array(DescribeConfigsSynonym)
    config_type: int = int8(since=3, ignorable=True)
    documentation: str | None = nullable_string(since=3, ignorable=True)


class DescribeConfigsResult(Struct):
    error_code: int = int16()
    error_message: str | None = nullable_string()
    resource_type: int = int8()
    resource_name: str = string()
    configs: list[DescribeConfigsResourceResult] = array(DescribeConfigsResourceResult)


class DescribeConfigsResponse(Message, api_key=32, versions=range(1, 5), flexible_since=4):
    throttle_time_ms: int = int32()
    results: list[DescribeConfigsResult] = array(DescribeConfigsResult)
