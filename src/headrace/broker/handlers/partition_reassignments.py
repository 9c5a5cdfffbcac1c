"""AlterPartitionReassignments, ListPartitionReassignments: the one broker is the only place for a partition."""

from headrace.broker.context import Context
from headrace.broker.errors import BrokerError, code_of
from headrace.errors import HeadraceError
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)
from headrace.protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)


def alter(ctx: Context, request: AlterPartitionReassignmentsRequest) -> AlterPartitionReassignmentsResponse:
    """Check each partition; there is nothing to do."""
    response = AlterPartitionReassignmentsResponse(
        allow_replication_factor_change=request.allow_replication_factor_change
    )
    for topic in request.topics:
        answers = ReassignableTopicResponse(name=topic.name)
        response.responses.append(answers)
        for partition in topic.partitions:
            answer = ReassignablePartitionResponse(partition_index=partition.partition_index)
            answers.partitions.append(answer)
            try:
                _check(ctx, topic.name, partition)
            except HeadraceError as error:
                answer.error_code, answer.error_message = code_of(error), str(error)
    return response


def list_all(_: Context, __: ListPartitionReassignmentsRequest) -> ListPartitionReassignmentsResponse:
    """List none: on one broker nothing is ever being moved."""
    return ListPartitionReassignmentsResponse()


def _check(ctx: Context, topic: str, partition: ReassignablePartition) -> None:
    ctx.broker.log(ctx.broker.topic(topic, b"", by_id=False), partition.partition_index)
    if partition.replicas is None:
        raise BrokerError(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, "the partition is not being moved")
    if partition.replicas != [ctx.broker.node_id]:
        raise BrokerError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"a partition is on broker {ctx.broker.node_id}, the only one"
        )
