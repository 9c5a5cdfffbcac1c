"""DeleteRecords (API 21): move the start of partitions forward, so that older records are gone (KIP-107).

An offset of -1 means the high watermark: everything. Version 2 is flexible; nothing else has changed.
"""

from headrace.protocol import schema as wire


class DeleteRecordsPartition(wire.Struct):
    partition_index: int = wire.int32()
    offset: int = wire.int64()


class DeleteRecordsTopic(wire.Struct):
    name: str = wire.string()
    partitions: list[DeleteRecordsPartition] = wire.array(DeleteRecordsPartition)


class DeleteRecordsRequest(wire.Message, api_key=21, versions=range(3), flexible_since=2):
    topics: list[DeleteRecordsTopic] = wire.array(DeleteRecordsTopic)
    timeout_ms: int = wire.int32()


class DeleteRecordsPartitionResult(wire.Struct):
    partition_index: int = wire.int32()
    low_watermark: int = wire.int64()
    error_code: int = wire.int16()


class DeleteRecordsTopicResult(wire.Struct):
    name: str = wire.string()
    partitions: list[DeleteRecordsPartitionResult] = wire.array(DeleteRecordsPartitionResult)


class DeleteRecordsResponse(wire.Message, api_key=21, versions=range(3), flexible_since=2):
    throttle_time_ms: int = wire.int32()
    topics: list[DeleteRecordsTopicResult] = wire.array(DeleteRecordsTopicResult)
