"""WriteTxnMarkers: end a transaction in single partitions.

Between Kafka's brokers this is how a coordinator ends a transaction; here it serves administrators, whose tools abort a
transaction that nobody ends any more with it (`kafka-transactions abort`).
"""

from headrace.broker.context import Context
from headrace.broker.errors import code_of
from headrace.broker.handler import Answer
from headrace.broker.turns import Steps
from headrace.errors import HeadraceError
from headrace.protocol.messages.shared import PartitionOutcome, TopicOutcome
from headrace.protocol.messages.write_txn_markers import (
    WritableTxnMarkerResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)


def handle(ctx: Context, request: WriteTxnMarkersRequest) -> Steps[Answer]:
    """Write each marker; one that is refused does not touch the others."""
    response = WriteTxnMarkersResponse()
    for marker in request.markers:
        result = WritableTxnMarkerResult(producer_id=marker.producer_id)
        response.markers.append(result)
        for topic in marker.topics:
            answers = TopicOutcome(name=topic.name)
            result.topics.append(answers)
            for index in topic.partition_indexes:
                answer = PartitionOutcome(partition_index=index)
                answers.partitions.append(answer)
                try:
                    log = ctx.broker.log(ctx.broker.topic(topic.name, b"", by_id=False), index)
                    ctx.broker.transactions.append_marker(
                        log,
                        marker.producer_id,
                        marker.producer_epoch,
                        marker.coordinator_epoch,
                        committed=marker.transaction_result,
                    )
                    ctx.broker.appended(log, log.end_offset)
                except HeadraceError as error:
                    answer.error_code = code_of(error)
                yield
    return response
