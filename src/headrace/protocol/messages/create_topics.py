"""CreateTopics (API 19): create topics.

Versions 0 and 1 went with Kafka 4.0. Since 4 partitions and replication may be left to the broker with -1 (KIP-464); 5
tells the settings that the topic was made with (KIP-525); 6 may be throttled (KIP-599); 7 tells the topic's id
(KIP-516).
"""

from headrace.protocol import schema as wire


class CreatableReplicaAssignment(wire.Struct):
    partition_index: int = wire.int32()
    broker_ids: list[int] = wire.array(wire.INT32)


class CreatableTopicConfig(wire.Struct):
    name: str = wire.string()
    value: str | None = wire.nullable_string()


class CreatableTopic(wire.Struct):
    name: str = wire.string()
    num_partitions: int = wire.int32()
    replication_factor: int = wire.int16()
    assignments: list[CreatableReplicaAssignment] = wire.array(CreatableReplicaAssignment)
    configs: list[CreatableTopicConfig] = wire.array(CreatableTopicConfig)


class CreateTopicsRequest(wire.Message, api_key=19, versions=range(2, 8), flexible_since=5):
    topics: list[CreatableTopic] = wire.array(CreatableTopic)
    timeout_ms: int = wire.int32(default=60000)
    validate_only: bool = wire.boolean()


class CreatableTopicConfigs(wire.Struct):
    name: str = wire.string()
    value: str | None = wire.nullable_string()
    read_only: bool = wire.boolean()
    config_source: int = wire.int8(default=-1)
    is_sensitive: bool = wire.boolean()


class CreatableTopicResult(wire.Struct):
    name: str = wire.string()
    topic_id: wire.Uuid = wire.uuid(since=7, ignorable=True)
    error_code: int = wire.int16()
    error_message: str | None = wire.nullable_string()
    topic_config_error_code: int = wire.int16(since=5, ignorable=True, tag=0)
    num_partitions: int = wire.int32(since=5, default=-1, ignorable=True)
    replication_factor: int = wire.int16(since=5, default=-1, ignorable=True)
    configs: list[CreatableTopicConfigs] | None = wire.nullable_array(CreatableTopicConfigs, since=5, ignorable=True)


class CreateTopicsResponse(wire.Message, api_key=19, versions=range(2, 8), flexible_since=5):
    throttle_time_ms: int = wire.int32()
    topics: list[CreatableTopicResult] = wire.array(CreatableTopicResult)
