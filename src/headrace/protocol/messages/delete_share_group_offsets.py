"""DeleteShareGroupOffsets (API 92): have a share group without members forget its state of whole topics (KIP-932)."""

from headrace.protocol import schema as wire


class DeleteShareGroupOffsetsRequestTopic(wire.Struct):
    topic_name: str = wire.string()


class DeleteShareGroupOffsetsRequest(wire.Message, api_key=92, versions=range(1), flexible_since=0):
    group_id: str = wire.string()
    topics: list[DeleteShareGroupOffsetsRequestTopic] = wire.array(DeleteShareGroupOffsetsRequestTopic)


class DeleteShareGroupOffsetsResponseTopic(wire.Struct):
    topic_name: str = wire.string()
    topic_id: wire.Uuid = wire.uuid()
    error_code: int = wire.int16()
    error_message: str | None = wire.nullable_string(default=None)


class DeleteShareGroupOffsetsResponse(wire.Message, api_key=92, versions=range(1), flexible_since=0):
    throttle_time_ms: int = wire.int32()
    error_code: int = wire.int16()
    error_message: str | None = wire.nullable_string(default=None)
    responses: list[DeleteShareGroupOffsetsResponseTopic] = wire.array(DeleteShareGroupOffsetsResponseTopic)
