"""ElectLeaders: the one broker leads every partition already, so there is never an election to hold."""

from headrace.broker.context import Context
from headrace.broker.errors import BrokerError, code_of
from headrace.errors import HeadraceError
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
)
from headrace.protocol.messages.shared import TopicPartitions

_TYPES = (0, 1)  # of the preferred replica, of any


def handle(ctx: Context, request: ElectLeadersRequest) -> ElectLeadersResponse:
    """Answer for each partition; asked for all, as in Kafka, each topic is named with none that needed an election."""
    if request.topic_partitions is None:
        asked = [TopicPartitions(topic=name, partitions=[]) for name in ctx.broker.topics.by_name]
    else:
        asked = request.topic_partitions
    kind = request.election_type
    return ElectLeadersResponse(
        error_code=ErrorCode.NONE if kind in _TYPES else ErrorCode.INVALID_REQUEST,
        replica_election_results=[
            ReplicaElectionResult(
                topic=each.topic,
                partition_result=[_result(ctx, each.topic, partition, kind) for partition in each.partitions],
            )
            for each in asked
        ],
    )


def _result(ctx: Context, topic: str, partition: int, kind: int) -> PartitionResult:
    try:
        if kind not in _TYPES:
            raise BrokerError(ErrorCode.INVALID_REQUEST, f"there is no type {kind} of elections: 0 and 1 are known")
        ctx.broker.log(ctx.broker.topic(topic, b"", by_id=False), partition)
    except HeadraceError as error:
        return PartitionResult(partition_id=partition, error_code=code_of(error), error_message=str(error))
    return PartitionResult(
        partition_id=partition,
        error_code=ErrorCode.ELECTION_NOT_NEEDED,
        error_message=f"broker {ctx.broker.node_id}, the only one, leads the partition",
    )
