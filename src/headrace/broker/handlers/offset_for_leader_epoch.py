"""OffsetForLeaderEpoch: where an epoch ended, so that a client finds out whether what it read was cut off since."""

from headrace.broker.context import Context
from headrace.broker.errors import code_of
from headrace.broker.handler import Answer
from headrace.broker.turns import Steps
from headrace.errors import HeadraceError
from headrace.protocol.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderTopicResult,
)


def handle(ctx: Context, request: OffsetForLeaderEpochRequest) -> Steps[Answer]:
    """Look up each partition."""
    broker = ctx.broker
    response = OffsetForLeaderEpochResponse()
    for topic in request.topics:
        answers = OffsetForLeaderTopicResult(topic=topic.topic)
        response.topics.append(answers)
        for partition in topic.partitions:
            answer = EpochEndOffset(partition=partition.partition)
            answers.partitions.append(answer)
            try:
                log = broker.log(broker.topic(topic.topic, b"", by_id=False), partition.partition)
                broker.check_epoch(partition.current_leader_epoch)
                answer.leader_epoch, answer.end_offset = broker.end_of_epoch(log, partition.leader_epoch)
            except HeadraceError as error:
                answer.error_code = code_of(error)
            yield
    return response
