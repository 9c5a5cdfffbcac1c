"""ListOffsets (API 2): find the offset for a time, or the log's ends.

Negative timestamps are questions of their own: -1 the end, -2 the start, -3 the record with the greatest timestamp
(since 7, KIP-734), -4 the start of what is on local disk (8, KIP-405), -5 the last tiered offset (9, KIP-1005), -6 the
first one not yet tiered (11, KIP-1023). Since 2 the isolation level decides which end is meant; 4 fences by leader
epoch; 10 has a timeout for answers that have to come from remote storage (KIP-1075).
"""

from headrace.protocol import schema as wire


class ListOffsetsPartition(wire.Struct):
    partition_index: int = wire.int32()
    current_leader_epoch: int = wire.int32(since=4, default=-1, ignorable=True)
    timestamp: int = wire.int64()


class ListOffsetsTopic(wire.Struct):
    name: str = wire.string()
    partitions: list[ListOffsetsPartition] = wire.array(ListOffsetsPartition)


class ListOffsetsRequest(wire.Message, api_key=2, versions=range(1, 12), flexible_since=6):
    replica_id: int = wire.int32()
    isolation_level: int = wire.int8(since=2)
    topics: list[ListOffsetsTopic] = wire.array(ListOffsetsTopic)
    timeout_ms: int = wire.int32(since=10, ignorable=True)


class ListOffsetsPartitionResponse(wire.Struct):
    """The first offset at or after the time, and its own timestamp; -1 if there is none."""

    partition_index: int = wire.int32()
    error_code: int = wire.int16()
    timestamp: int = wire.int64(default=-1)
    offset: int = wire.int64(default=-1)
    leader_epoch: int = wire.int32(since=4, default=-1)


class ListOffsetsTopicResponse(wire.Struct):
    name: str = wire.string()
    partitions: list[ListOffsetsPartitionResponse] = wire.array(ListOffsetsPartitionResponse)


class ListOffsetsResponse(wire.Message, api_key=2, versions=range(1, 12), flexible_since=6):
    throttle_time_ms: int = wire.int32(since=2, ignorable=True)
    topics: list[ListOffsetsTopicResponse] = wire.array(ListOffsetsTopicResponse)
