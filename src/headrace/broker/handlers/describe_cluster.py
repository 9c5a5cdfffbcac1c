"""DescribeCluster: the cluster's id and its one broker, at the address that the client came by."""

from headrace.broker.authorized_operations import CLUSTER_OPERATIONS
from headrace.broker.context import Context
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.describe_cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)

BROKERS, CONTROLLERS = 1, 2


def handle(ctx: Context, request: DescribeClusterRequest) -> DescribeClusterResponse:
    """Describe the cluster to whoever asked a broker's listener, the only kind there is."""
    if request.endpoint_type not in (BROKERS, CONTROLLERS):
        return DescribeClusterResponse(
            error_code=ErrorCode.UNSUPPORTED_ENDPOINT_TYPE,
            error_message=f"endpoint type {request.endpoint_type} is unknown",
        )
    if request.endpoint_type != BROKERS:
        return DescribeClusterResponse(
            error_code=ErrorCode.MISMATCHED_ENDPOINT_TYPE,
            error_message="this is a broker's listener; there is no separate controller",
        )
    host, port = ctx.advertised
    response = DescribeClusterResponse(
        cluster_id=ctx.broker.identity.cluster_id,
        controller_id=ctx.broker.node_id,
        brokers=[DescribeClusterBroker(broker_id=ctx.broker.node_id, host=host, port=port)],
    )
    if request.include_cluster_authorized_operations:
        response.cluster_authorized_operations = CLUSTER_OPERATIONS
    return response
