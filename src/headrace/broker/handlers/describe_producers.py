"""DescribeProducers: the producers that a partition remembers, and their open transactions."""

from headrace.broker.context import Context
from headrace.broker.errors import code_of
from headrace.broker.handler import Answer
from headrace.broker.turns import Steps
from headrace.errors import HeadraceError
from headrace.protocol.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicResponse,
)


def handle(ctx: Context, request: DescribeProducersRequest) -> Steps[Answer]:
    """Look into each partition, once: an answer is in proportion to what there is, not to how often it is asked for."""
    response = DescribeProducersResponse()
    described = set()
    for topic in request.topics:
        answers = TopicResponse(name=topic.name)
        response.topics.append(answers)
        for index in topic.partition_indexes:
            yield
            if (topic.name, index) in described:
                continue
            described.add((topic.name, index))
            answer = PartitionResponse(partition_index=index)
            answers.partitions.append(answer)
            try:
                log = ctx.broker.log(ctx.broker.topic(topic.name, b"", by_id=False), index)
            except HeadraceError as error:
                answer.error_code, answer.error_message = code_of(error), str(error)
                continue
            answer.active_producers = [
                ProducerState(
                    producer_id=producer.producer_id,
                    producer_epoch=producer.epoch,
                    last_sequence=producer.last_sequence,
                    last_timestamp=producer.last_timestamp,
                    coordinator_epoch=producer.coordinator_epoch,
                    current_txn_start_offset=-1 if producer.transaction_start is None else producer.transaction_start,
                )
                for producer in list(log.producers.producers.values())
            ]
    return response
