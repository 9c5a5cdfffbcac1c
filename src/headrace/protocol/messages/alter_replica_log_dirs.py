"""AlterReplicaLogDirs (API 34): move replicas between the disks of a broker (KIP-113)."""

from headrace.protocol import schema as wire
from headrace.protocol.messages.shared import PartitionOutcome


class AlterReplicaLogDirTopic(wire.Struct):
    name: str = wire.string()
    partitions: list[int] = wire.array(wire.INT32)


class AlterReplicaLogDir(wire.Struct):
    path: str = wire.string()
    topics: list[AlterReplicaLogDirTopic] = wire.array(AlterReplicaLogDirTopic)


class AlterReplicaLogDirsRequest(wire.Message, api_key=34, versions=range(1, 3), flexible_since=2):
    dirs: list[AlterReplicaLogDir] = wire.array(AlterReplicaLogDir)


class AlterReplicaLogDirTopicResult(wire.Struct):
    topic_name: str = wire.string()
    partitions: list[PartitionOutcome] = wire.array(PartitionOutcome)


class AlterReplicaLogDirsResponse(wire.Message, api_key=34, versions=range(1, 3), flexible_since=2):
    throttle_time_ms: int = wire.int32()
    results: list[AlterReplicaLogDirTopicResult] = wire.array(AlterReplicaLogDirTopicResult)
