"""AlterShareGroupOffsets (API 91): have a share group without members begin elsewhere in its partitions (KIP-932)."""

from headrace.protocol import schema as wire


class AlterShareGroupOffsetsRequestPartition(wire.Struct):
    partition_index: int = wire.int32()
    start_offset: int = wire.int64()


class AlterShareGroupOffsetsRequestTopic(wire.Struct):
    topic_name: str = wire.string()
    partitions: list[AlterShareGroupOffsetsRequestPartition] = wire.array(AlterShareGroupOffsetsRequestPartition)


class AlterShareGroupOffsetsRequest(wire.Message, api_key=91, versions=range(1), flexible_since=0):
    group_id: str = wire.string()
    topics: list[AlterShareGroupOffsetsRequestTopic] = wire.array(AlterShareGroupOffsetsRequestTopic)


class AlterShareGroupOffsetsResponsePartition(wire.Struct):
    partition_index: int = wire.int32()
    error_code: int = wire.int16()
    error_message: str | None = wire.nullable_string(default=None)


class AlterShareGroupOffsetsResponseTopic(wire.Struct):
    topic_name: str = wire.string()
    topic_id: wire.Uuid = wire.uuid()
    partitions: list[AlterShareGroupOffsetsResponsePartition] = wire.array(AlterShareGroupOffsetsResponsePartition)


class AlterShareGroupOffsetsResponse(wire.Message, api_key=91, versions=range(1), flexible_since=0):
    throttle_time_ms: int = wire.int32()
    error_code: int = wire.int16()
    error_message: str | None = wire.nullable_string(default=None)
    responses: list[AlterShareGroupOffsetsResponseTopic] = wire.array(AlterShareGroupOffsetsResponseTopic)
