"""ElectLeaders (API 43): have the preferred replica lead, or any that is left (KIP-183, KIP-460).

Version 1 has the type of election, 2 is flexible.
"""

from headrace.protocol import schema as wire
from headrace.protocol.messages.shared import TopicPartitions


class ElectLeadersRequest(wire.Message, api_key=43, versions=range(3), flexible_since=2):
    """The partitions, null for all; type 0 prefers the first replica, type 1 takes any."""

    election_type: int = wire.int8(since=1)
    topic_partitions: list[TopicPartitions] | None = wire.nullable_array(TopicPartitions)
    timeout_ms: int = wire.int32(default=60_000)


class PartitionResult(wire.Struct):
    partition_id: int = wire.int32()
    error_code: int = wire.int16()
    error_message: str | None = wire.nullable_string()


class ReplicaElectionResult(wire.Struct):
    topic: str = wire.string()
    partition_result: list[PartitionResult] = wire.array(PartitionResult)


class ElectLeadersResponse(wire.Message, api_key=43, versions=range(3), flexible_since=2):
    throttle_time_ms: int = wire.int32()
    error_code: int = wire.int16(since=1)
    replica_election_results: list[ReplicaElectionResult] = wire.array(ReplicaElectionResult)
