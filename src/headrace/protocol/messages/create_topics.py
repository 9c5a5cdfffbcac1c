"""CreateTopics (API 19): create topics.

Versions 0 and 1 went with Kafka 4.0. Since 4 partitions and replication may be left to the broker with -1 (KIP-464); 5
tells the settings that the topic was made with (KIP-525); 6 may be throttled (KIP-599); 7 tells the topic's id
(KIP-516).
"""

from headrace.protocol.schema import (
    INT32,
    Message,
    Struct,
    Uuid,
    array,
    boolean,
    int8,
    int16,
    int32,
    nullable_array,
    nullable_string,
    string,
    uuid,
)


class CreatableReplicaAssignment(Struct):
    partition_index: int = int32()
    broker_ids: list[int] = array(INT32)


class CreatableTopicConfig(Struct):
    name: str = string()
    value: str | None = nullable_string()


class CreatableTopic(Struct):
    """One topic: its size or its replicas by hand, and its settings."""

    name: str = string()
    num_partitions: int = int32()
    replication_factor: int = int16()
    assignments: list[CreatableReplicaAssignment] = array(CreatableReplicaAssignment)
    configs: list[CreatableTopicConfig] = array(CreatableTopicConfig)


class CreateTopicsRequest(Message, api_key=19, versions=range(2, 8), flexible_since=5):
    topics: list[CreatableTopic] = array(CreatableTopic)
    timeout_ms: int = int32(default=60000)
    validate_only: bool = boolean()


class CreatableTopicConfigs(Struct):
    name: str = string()
    value: str | None = nullable_string()
    read_only: bool = boolean()
    config_source: int = int8(default=-1)
    is_sensitive: bool = boolean()


class CreatableTopicResult(Struct):
    name: str = string()
    topic_id: Uuid = uuid(since=7, ignorable=True)
    error_code: int = int16()
    error_message: str | None = nullable_string()
    topic_config_error_code: int = int16(since=5, ignorable=True, tag=0)
    num_partitions: int = int32(since=5, default=-1, ignorable=True)
    replication_factor: int = int16(since=5, default=-1, ignorable=True)
    configs: list[CreatableTopicConfigs] | None = nullable_array(CreatableTopicConfigs, since=5, ignorable=True)


class CreateTopicsResponse(Message, api_key=19, versions=range(2, 8), flexible_since=5):
    throttle_time_ms: int = int32()
    topics: list[CreatableTopicResult] = array(CreatableTopicResult)
