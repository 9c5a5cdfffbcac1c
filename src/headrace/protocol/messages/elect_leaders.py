"""ElectLeaders (API 43): have the preferred replica lead, or any that is left (KIP-183, KIP-460).

Version 1 has the type of election, 2 is flexible.
"""

from headrace.protocol.messages.shared import TopicPartitions
from headrace.protocol.schema import (
    Message,
    Struct,
    array,
    int8,
    int16,
    int32,
    nullable_array,
    nullable_string,
    string,
)


class ElectLeadersRequest(Message, api_key=43, versions=range(3), flexible_since=2):
    """The partitions, null for all; type 0 prefers the first replica, type 1 takes any."""

    election_type: int = int8(since=1)
    topic_partitions: list[TopicPartitions] | None = nullable_array(TopicPartitions)
    timeout_ms: int = int32(default=60_000)


class PartitionResult(Struct):
    partition_id: int = int32()
    error_code: int = int16()
    error_message: str | None = nullable_string()


class ReplicaElectionResult(Struct):
    topic: str = string()
    partition_result: list[PartitionResult] = array(PartitionResult)


class ElectLeadersResponse(Message, api_key=43, versions=range(3), flexible_since=2):
    throttle_time_ms: int = int32()
    error_code: int = int16(since=1)
    replica_election_results: list[ReplicaElectionResult] = array(ReplicaElectionResult)
