"""DescribeLogDirs (API 35): how large partitions are, and in which directory they lie.

Version 0 went with Kafka 4.0. Since 3 there is an error for the whole answer; 4 tells the volume's size and free bytes
(KIP-827); 5 tells directories that take no new partitions (KIP-1066).
"""

from headrace.protocol import schema as wire
from headrace.protocol.messages.shared import TopicPartitions


class DescribeLogDirsRequest(wire.Message, api_key=35, versions=range(1, 6), flexible_since=2):
    """The partitions in question; null means all."""

    topics: list[TopicPartitions] | None = wire.nullable_array(TopicPartitions)


class DescribeLogDirsPartition(wire.Struct):
    partition_index: int = wire.int32()
    partition_size: int = wire.int64()
    offset_lag: int = wire.int64()
    is_future_key: bool = wire.boolean()


class DescribeLogDirsTopic(wire.Struct):
    name: str = wire.string()
    partitions: list[DescribeLogDirsPartition] = wire.array(DescribeLogDirsPartition)


class DescribeLogDirsResult(wire.Struct):
    error_code: int = wire.int16()
    log_dir: str = wire.string()
    topics: list[DescribeLogDirsTopic] = wire.array(DescribeLogDirsTopic)
    total_bytes: int = wire.int64(since=4, default=-1, ignorable=True)
    usable_bytes: int = wire.int64(since=4, default=-1, ignorable=True)
    is_cordoned: bool = wire.boolean(since=5, ignorable=True)


class DescribeLogDirsResponse(wire.Message, api_key=35, versions=range(1, 6), flexible_since=2):
    throttle_time_ms: int = wire.int32()
    error_code: int = wire.int16(since=3, ignorable=True)
    results: list[DescribeLogDirsResult] = wire.array(DescribeLogDirsResult)
