"""DescribeLogDirs (API 35): how large partitions are, and in which directory they lie.

Version 0 went with Kafka 4.0. Since 3 there is an error for the whole answer; 4 tells the volume's size and free bytes
(KIP-827); 5 tells directories that take no new partitions (KIP-1066).
"""

from headrace.protocol.messages.shared import TopicPartitions
from headrace.protocol.schema import Message, Struct, array, boolean, int16, int32, int64, nullable_array, string


class DescribeLogDirsRequest(Message, api_key=35, versions=range(1, 6), flexible_since=2):
    """The partitions in question; null means all."""

    topics: list[TopicPartitions] | None = nullable_array(TopicPartitions)


class DescribeLogDirsPartition(Struct):
    partition_index: int = int32()
    partition_size: int = int64()
    offset_lag: int = int64()
    is_future_key: bool = boolean()


class DescribeLogDirsTopic(Struct):
    name: str = string()
    partitions: list[DescribeLogDirsPartition] = array(DescribeLogDirsPartition)


class DescribeLogDirsResult(Struct):
    error_code: int = int16()
    log_dir: str = string()
    topics: list[DescribeLogDirsTopic] = array(DescribeLogDirsTopic)
    total_bytes: int = int64(since=4, default=-1, ignorable=True)
    usable_bytes: int = int64(since=4, default=-1, ignorable=True)
    is_cordoned: bool = boolean(since=5, ignorable=True)


class DescribeLogDirsResponse(Message, api_key=35, versions=range(1, 6), flexible_since=2):
    throttle_time_ms: int = int32()
    error_code: int = int16(since=3, ignorable=True)
    results: list[DescribeLogDirsResult] = array(DescribeLogDirsResult)
