"""DescribeCluster (API 60): the cluster's id, its brokers and its controller (KIP-700).

Since 1 controllers can be asked for as well (KIP-919); 2 tells of brokers that are fenced, if asked (KIP-1073).
"""

from headrace.protocol.schema import Message, Struct, array, boolean, int8, int16, int32, nullable_string, string


class DescribeClusterRequest(Message, api_key=60, versions=range(3), flexible_since=0):
    include_cluster_authorized_operations: bool = boolean()
    endpoint_type: int = int8(since=1, default=1)
    include_fenced_brokers: bool = boolean(since=2)


class DescribeClusterBroker(Struct):
    broker_id: int = int32()
    host: str = string()
    port: int = int32()
    rack: str | None = nullable_string(default=None)
    is_fenced: bool = boolean(since=2)


class DescribeClusterResponse(Message, api_key=60, versions=range(3), flexible_since=0):
    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = nullable_string(default=None)
    endpoint_type: int = int8(since=1, default=1)
    cluster_id: str = string()
    controller_id: int = int32(default=-1)
    brokers: list[DescribeClusterBroker] = array(DescribeClusterBroker)
    cluster_authorized_operations: int = int32(default=-(2**31))
