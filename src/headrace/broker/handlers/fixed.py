"""Leader elections and partition reassignments: APIs that one broker has a fixed answer to.

It leads every partition already, and is the only place for one.
"""

from headrace.broker.errors import BrokerError, code_of
from headrace.broker.handler import Answer, Context
from headrace.broker.turns import Steps
from headrace.errors import HeadraceError
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)
from headrace.protocol.messages.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
)
from headrace.protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)
from headrace.protocol.messages.shared import TopicPartitions

_ELECTION_TYPES = (0, 1)  # of the preferred replica, of any


def elect_leaders(ctx: Context, request: ElectLeadersRequest) -> Steps[Answer]:
    """Answer for each partition; asked for all, as in Kafka, each topic is named with none that needed an election."""
    kind = request.election_type
    error = ErrorCode.NONE if kind in _ELECTION_TYPES else ErrorCode.INVALID_REQUEST
    if ctx.refused:
        error = ctx.refused.code
    if request.topic_partitions is None and not ctx.refused:
        asked = [TopicPartitions(topic=name, partitions=[]) for name in ctx.broker.topics.by_name]
    else:
        asked = request.topic_partitions or []
    response = ElectLeadersResponse(error_code=error)
    for each in asked:
        result = ReplicaElectionResult(topic=each.topic)
        response.replica_election_results.append(result)
        for partition in each.partitions:
            yield
            result.partition_result.append(_elect(ctx, each.topic, partition, kind))
    return response


def _elect(ctx: Context, topic: str, partition: int, kind: int) -> PartitionResult:
    try:
        if kind not in _ELECTION_TYPES and not ctx.refused:
            raise BrokerError(ErrorCode.INVALID_REQUEST, f"there is no type {kind} of elections: 0 and 1 are known")
        ctx.broker.log(ctx.topic(topic), partition)
    except HeadraceError as error:
        return PartitionResult(partition_id=partition, error_code=code_of(error), error_message=str(error))
    return PartitionResult(
        partition_id=partition,
        error_code=ErrorCode.ELECTION_NOT_NEEDED,
        error_message=f"broker {ctx.broker.node_id}, the only one, leads the partition",
    )


def reassign_partitions(ctx: Context, request: AlterPartitionReassignmentsRequest) -> Steps[Answer]:
    """Check each partition; there is nothing to do."""
    response = AlterPartitionReassignmentsResponse(
        allow_replication_factor_change=request.allow_replication_factor_change,
        error_code=ctx.refused.code if ctx.refused else ErrorCode.NONE,
        error_message=str(ctx.refused) if ctx.refused else None,
    )
    for topic in request.topics:
        answers = ReassignableTopicResponse(name=topic.name)
        response.responses.append(answers)
        for partition in topic.partitions:
            yield
            answer = ReassignablePartitionResponse(partition_index=partition.partition_index)
            answers.partitions.append(answer)
            try:
                _check_move(ctx, topic.name, partition)
            except HeadraceError as error:
                answer.error_code, answer.error_message = code_of(error), str(error)
    return response


def list_reassignments(_: Context, __: ListPartitionReassignmentsRequest) -> ListPartitionReassignmentsResponse:
    """List none: on one broker nothing is ever being moved."""
    return ListPartitionReassignmentsResponse()


def _check_move(ctx: Context, topic: str, partition: ReassignablePartition) -> None:
    ctx.broker.log(ctx.topic(topic), partition.partition_index)
    if partition.replicas is None:
        raise BrokerError(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, "the partition is not being moved")
    if partition.replicas != [ctx.broker.node_id]:
        raise BrokerError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"a partition is on broker {ctx.broker.node_id}, the only one"
        )
