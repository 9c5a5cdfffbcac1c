"""Metadata (API 3): which brokers there are, and who leads which partition.

An empty list of topics means all of them in version 0; since 1 null means all, and an empty list means none. Since 4
the client says whether a topic may be created by asking for it; 5 tells of replicas that are offline; 7 tells leader
epochs; 8 tells what the client may do (11 leaves the cluster's part to DescribeCluster, KIP-700); 10 and 12 bring topic
ids (KIP-516); 13 has an error for the whole answer (KIP-1102).
"""

from headrace.protocol import schema as wire


class MetadataRequestTopic(wire.Struct):
    topic_id: wire.Uuid = wire.uuid(since=10, ignorable=True)
    name: str | None = wire.nullable_string(nullable_since=10)


class MetadataRequest(wire.Message, api_key=3, versions=range(14), flexible_since=9):
    topics: list[MetadataRequestTopic] | None = wire.nullable_array(MetadataRequestTopic, nullable_since=1)
    allow_auto_topic_creation: bool = wire.boolean(since=4, default=True)
    include_cluster_authorized_operations: bool = wire.boolean(since=8, until=10)
    include_topic_authorized_operations: bool = wire.boolean(since=8)


class MetadataResponseBroker(wire.Struct):
    node_id: int = wire.int32()
    host: str = wire.string()
    port: int = wire.int32()
    rack: str | None = wire.nullable_string(since=1, default=None, ignorable=True)


class MetadataResponsePartition(wire.Struct):
    error_code: int = wire.int16()
    partition_index: int = wire.int32()
    leader_id: int = wire.int32()
    leader_epoch: int = wire.int32(since=7, default=-1, ignorable=True)
    replica_nodes: list[int] = wire.array(wire.INT32)
    isr_nodes: list[int] = wire.array(wire.INT32)
    offline_replicas: list[int] = wire.array(wire.INT32, since=5, ignorable=True)


class MetadataResponseTopic(wire.Struct):
    error_code: int = wire.int16()
    name: str | None = wire.nullable_string(nullable_since=12)
    topic_id: wire.Uuid = wire.uuid(since=10, ignorable=True)
    is_internal: bool = wire.boolean(since=1, ignorable=True)
    partitions: list[MetadataResponsePartition] = wire.array(MetadataResponsePartition)
    topic_authorized_operations: int = wire.int32(since=8, default=-(2**31))


class MetadataResponse(wire.Message, api_key=3, versions=range(14), flexible_since=9):
    throttle_time_ms: int = wire.int32(since=3, ignorable=True)
    brokers: list[MetadataResponseBroker] = wire.array(MetadataResponseBroker)
    cluster_id: str | None = wire.nullable_string(since=2, default=None, ignorable=True)
    controller_id: int = wire.int32(since=1, default=-1, ignorable=True)
    topics: list[MetadataResponseTopic] = wire.array(MetadataResponseTopic)
    cluster_authorized_operations: int = wire.int32(since=8, until=10, default=-(2**31))
    error_code: int = wire.int16(since=13, ignorable=True)
