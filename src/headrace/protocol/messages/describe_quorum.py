"""DescribeQuorum (API 55): who keeps the cluster's metadata log, and how far each of them is (KIP-595).

Since 1 it says when each was heard of and when it was last caught up (KIP-836); 2 names their directories and their
addresses (KIP-853).
"""

from headrace.protocol import schema as wire
from headrace.protocol.messages.shared import Listener


class QuorumPartition(wire.Struct):
    partition_index: int = wire.int32()


class QuorumTopic(wire.Struct):
    topic_name: str = wire.string()
    partitions: list[QuorumPartition] = wire.array(QuorumPartition)


class DescribeQuorumRequest(wire.Message, api_key=55, versions=range(3), flexible_since=0):
    topics: list[QuorumTopic] = wire.array(QuorumTopic)


class ReplicaState(wire.Struct):
    replica_id: int = wire.int32()
    replica_directory_id: wire.Uuid = wire.uuid(since=2)
    log_end_offset: int = wire.int64()
    last_fetch_timestamp: int = wire.int64(since=1, default=-1, ignorable=True)
    last_caught_up_timestamp: int = wire.int64(since=1, default=-1, ignorable=True)


class QuorumPartitionState(wire.Struct):
    partition_index: int = wire.int32()
    error_code: int = wire.int16()
    error_message: str | None = wire.nullable_string(since=2, ignorable=True)
    leader_id: int = wire.int32()
    leader_epoch: int = wire.int32()
    high_watermark: int = wire.int64()
    current_voters: list[ReplicaState] = wire.array(ReplicaState)
    observers: list[ReplicaState] = wire.array(ReplicaState)


class QuorumTopicState(wire.Struct):
    topic_name: str = wire.string()
    partitions: list[QuorumPartitionState] = wire.array(QuorumPartitionState)


class QuorumNode(wire.Struct):
    node_id: int = wire.int32()
    listeners: list[Listener] = wire.array(Listener)


class DescribeQuorumResponse(wire.Message, api_key=55, versions=range(3), flexible_since=0):
    error_code: int = wire.int16()
    error_message: str | None = wire.nullable_string(since=2, ignorable=True)
    topics: list[QuorumTopicState] = wire.array(QuorumTopicState)
    nodes: list[QuorumNode] = wire.array(QuorumNode, since=2)
