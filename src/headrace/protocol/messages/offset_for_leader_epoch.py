"""OffsetForLeaderEpoch (API 23): where a leader epoch ends in the log.

With it followers and consumers find out whether the log they know has been cut behind their back (KIP-101, KIP-279,
KIP-320). Versions 0 and 1 went with Kafka 4.0; 3 says who asks; 4 is flexible.
"""

from headrace.protocol import schema as wire


class OffsetForLeaderPartition(wire.Struct):
    partition: int = wire.int32()
    current_leader_epoch: int = wire.int32(default=-1)
    leader_epoch: int = wire.int32()


class OffsetForLeaderTopic(wire.Struct):
    topic: str = wire.string()
    partitions: list[OffsetForLeaderPartition] = wire.array(OffsetForLeaderPartition)


class OffsetForLeaderEpochRequest(wire.Message, api_key=23, versions=range(2, 5), flexible_since=4):
    replica_id: int = wire.int32(since=3, default=-2, ignorable=True)
    topics: list[OffsetForLeaderTopic] = wire.array(OffsetForLeaderTopic)


class EpochEndOffset(wire.Struct):
    error_code: int = wire.int16()
    partition: int = wire.int32()
    leader_epoch: int = wire.int32(default=-1)
    end_offset: int = wire.int64(default=-1)


class OffsetForLeaderTopicResult(wire.Struct):
    topic: str = wire.string()
    partitions: list[EpochEndOffset] = wire.array(EpochEndOffset)


class OffsetForLeaderEpochResponse(wire.Message, api_key=23, versions=range(2, 5), flexible_since=4):
    throttle_time_ms: int = wire.int32()
    topics: list[OffsetForLeaderTopicResult] = wire.array(OffsetForLeaderTopicResult)
