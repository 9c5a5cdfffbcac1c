"""DeleteTopics (API 20): delete topics.

Version 0 went with Kafka 4.0. Since 3 the answer may be TOPIC_DELETION_DISABLED; 5 brings a message with the error and
throttling (KIP-599); 6 takes topics by id as well (KIP-516), in a field of its own.
"""

from headrace.protocol import schema as wire


class DeleteTopicState(wire.Struct):
    name: str | None = wire.nullable_string(default=None)
    topic_id: wire.Uuid = wire.uuid()


class DeleteTopicsRequest(wire.Message, api_key=20, versions=range(1, 7), flexible_since=4):
    """The topics: by name until version 5, by name or id since 6."""

    topics: list[DeleteTopicState] = wire.array(DeleteTopicState, since=6)
    topic_names: list[str] = wire.array(wire.STRING, until=5, ignorable=True)
    timeout_ms: int = wire.int32()


class DeletableTopicResult(wire.Struct):
    name: str | None = wire.nullable_string(nullable_since=6)
    topic_id: wire.Uuid = wire.uuid(since=6, ignorable=True)
    error_code: int = wire.int16()
    error_message: str | None = wire.nullable_string(since=5, default=None, ignorable=True)


class DeleteTopicsResponse(wire.Message, api_key=20, versions=range(1, 7), flexible_since=4):
    throttle_time_ms: int = wire.int32()
    responses: list[DeletableTopicResult] = wire.array(DeletableTopicResult)
