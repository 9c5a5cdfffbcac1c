"""OffsetForLeaderEpoch (API 23): where a leader epoch ends in the log.

With it followers and consumers find out whether the log they know has been cut behind their back (KIP-101, KIP-279,
KIP-320). Versions 0 and 1 went with Kafka 4.0; 3 says who asks; 4 is flexible.
"""

from headrace.protocol.schema import Message, Struct, array, int16, int32, int64, string


class OffsetForLeaderPartition(Struct):
    partition: int = int32()
    current_leader_epoch: int = int32(default=-1)
    leader_epoch: int = int32()


class OffsetForLeaderTopic(Struct):
    topic: str = string()
    partitions: list[OffsetForLeaderPartition] = array(OffsetForLeaderPartition)


class OffsetForLeaderEpochRequest(Message, api_key=23, versions=range(2, 5), flexible_since=4):
    replica_id: int = int32(since=3, default=-2, ignorable=True)
    topics: list[OffsetForLeaderTopic] = array(OffsetForLeaderTopic)


class EpochEndOffset(Struct):
    error_code: int = int16()
    partition: int = int32()
    leader_epoch: int = int32(default=-1)
    end_offset: int = int64(default=-1)


class OffsetForLeaderTopicResult(Struct):
    topic: str = string()
    partitions: list[EpochEndOffset] = array(EpochEndOffset)


class OffsetForLeaderEpochResponse(Message, api_key=23, versions=range(2, 5), flexible_since=4):
    throttle_time_ms: int = int32()
    topics: list[OffsetForLeaderTopicResult] = array(OffsetForLeaderTopicResult)
