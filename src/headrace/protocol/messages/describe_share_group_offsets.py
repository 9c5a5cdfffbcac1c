"""DescribeShareGroupOffsets (API 90): where share groups begin in each partition, and since 1 how far behind they are.

Everything before the start offset is finished for the group (KIP-932); the lag is what it has yet to finish (KIP-1226).
The tagged fields are ours: a Kafka skips what is asked with them, and answers none.
"""

from headrace.protocol import schema as wire


class DescribeShareGroupOffsetsRequestTopic(wire.Struct):
    topic_name: str = wire.string()
    partitions: list[int] = wire.array(wire.INT32)


class DescribeShareGroupOffsetsRequestGroup(wire.Struct):
    """A group and the topics that are asked for; null means all that it has offsets of."""

    group_id: str = wire.string()
    topics: list[DescribeShareGroupOffsetsRequestTopic] | None = wire.nullable_array(
        DescribeShareGroupOffsetsRequestTopic
    )


class DescribeShareGroupOffsetsRequest(wire.Message, api_key=90, versions=range(2), flexible_since=0):
    groups: list[DescribeShareGroupOffsetsRequestGroup] = wire.array(DescribeShareGroupOffsetsRequestGroup)
    include_runs: bool = wire.boolean(tag=10_000)  # whether `runs` are wanted


class DescribeShareGroupOffsetsResponsePartition(wire.Struct):
    partition_index: int = wire.int32()
    start_offset: int = wire.int64()
    leader_epoch: int = wire.int32()
    lag: int = wire.int64(since=1, default=-1, ignorable=True)
    error_code: int = wire.int16()
    error_message: str | None = wire.nullable_string(default=None)
    in_flight: int = wire.int32(default=-1, tag=10_000)  # records that a member holds now
    redeliveries: int = wire.int64(default=-1, tag=10_001)  # since the broker started
    # From the start offset on, four numbers for each stretch of records in one state: first and last offset, the state
    # (0 available, 1 acquired, 2 acknowledged, 4 archived), how often they were delivered. What follows is available.
    runs: list[int] = wire.array(wire.INT64, tag=10_002)


class DescribeShareGroupOffsetsResponseTopic(wire.Struct):
    topic_name: str = wire.string()
    topic_id: wire.Uuid = wire.uuid()
    partitions: list[DescribeShareGroupOffsetsResponsePartition] = wire.array(
        DescribeShareGroupOffsetsResponsePartition
    )


class DescribeShareGroupOffsetsResponseGroup(wire.Struct):
    group_id: str = wire.string()
    topics: list[DescribeShareGroupOffsetsResponseTopic] = wire.array(DescribeShareGroupOffsetsResponseTopic)
    error_code: int = wire.int16()
    error_message: str | None = wire.nullable_string(default=None)


class DescribeShareGroupOffsetsResponse(wire.Message, api_key=90, versions=range(2), flexible_since=0):
    throttle_time_ms: int = wire.int32()
    groups: list[DescribeShareGroupOffsetsResponseGroup] = wire.array(DescribeShareGroupOffsetsResponseGroup)
