"""DescribeLogDirs (API 35): how large partitions are, and in which directory they lie.

Version 0 went with Kafka 4.0. Since 3 there is an error for the whole answer; 4 tells the volume's size and free bytes
(KIP-827); 5 tells directories that take no new partitions (KIP-1066).
"""

from headrace.protocol.schema import INT32, Message, Struct, array, boolean, int16, int32, int64, nullable_array, string


class DescribableLogDirTopic(Struct):
    """The partitions of one topic."""

    topic: str = string()
    partitions: list[int] = array(INT32)


class DescribeLogDirsRequest(Message, api_key=35, versions=range(1, 6), flexible_since=2):
    """The partitions in question; null means all."""

    topics: list[DescribableLogDirTopic] | None = nullable_array(DescribableLogDirTopic)


class DescribeLogDirsPartition(Struct):
    """One partition's size, and how far it lags behind if it is being moved here."""

    partition_index: int = int32()
    partition_size: int = int64()
    offset_lag: int = int64()
    is_future_key: bool = boolean()


class DescribeLogDirsTopic(Struct):
    """The partitions of one topic."""

    name: str = string()
    partitions: list[DescribeLogDirsPartition] = array(DescribeLogDirsPartition)


class DescribeLogDirsResult(Struct):
    """One directory and the partitions in it."""

    error_code: int = int16()
    log_dir: str = string()
    topics: list[DescribeLogDirsTopic] = array(DescribeLogDirsTopic)
    total_bytes: int = int64(since=4, default=-1, ignorable=True)
    usable_bytes: int = int64(since=4, default=-1, ignorable=True)
    is_cordoned: bool = boolean(since=5, ignorable=True)


class DescribeLogDirsResponse(Message, api_key=35, versions=range(1, 6), flexible_since=2):
    """The log directories."""

    throttle_time_ms: int = int32()
    error_code: int = int16(since=3, ignorable=True)
    results: list[DescribeLogDirsResult] = array(DescribeLogDirsResult)
