"""DescribeCluster (API 60): the cluster's id, its brokers and its controller (KIP-700).

Since 1 controllers can be asked for as well (KIP-919); 2 tells of brokers that are fenced, if asked (KIP-1073).
"""

from headrace.protocol import schema as wire


class DescribeClusterRequest(wire.Message, api_key=60, versions=range(3), flexible_since=0):
    include_cluster_authorized_operations: bool = wire.boolean()
    endpoint_type: int = wire.int8(since=1, default=1)
    include_fenced_brokers: bool = wire.boolean(since=2)


class DescribeClusterBroker(wire.Struct):
    broker_id: int = wire.int32()
    host: str = wire.string()
    port: int = wire.int32()
    rack: str | None = wire.nullable_string(default=None)
    is_fenced: bool = wire.boolean(since=2)


class DescribeClusterResponse(wire.Message, api_key=60, versions=range(3), flexible_since=0):
    throttle_time_ms: int = wire.int32()
    error_code: int = wire.int16()
    error_message: str | None = wire.nullable_string(default=None)
    endpoint_type: int = wire.int8(since=1, default=1)
    cluster_id: str = wire.string()
    controller_id: int = wire.int32(default=-1)
    brokers: list[DescribeClusterBroker] = wire.array(DescribeClusterBroker)
    cluster_authorized_operations: int = wire.int32(default=-(2**31))
