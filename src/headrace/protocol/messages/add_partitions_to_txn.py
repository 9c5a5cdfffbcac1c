"""AddPartitionsToTxn (API 24): name the partitions that a transaction is going to write to.

Clients use versions 0 to 3, with one transaction in the message itself; brokers use 4 and 5, with many transactions, to
verify that a partition belongs to one (KIP-890). 2 may answer PRODUCER_FENCED, 5 TRANSACTION_ABORTABLE.
"""

from headrace.protocol import schema as wire


class AddPartitionsToTxnTopic(wire.Struct):
    name: str = wire.string()
    partitions: list[int] = wire.array(wire.INT32)


class AddPartitionsToTxnTransaction(wire.Struct):
    transactional_id: str = wire.string()
    producer_id: int = wire.int64()
    producer_epoch: int = wire.int16()
    verify_only: bool = wire.boolean()
    topics: list[AddPartitionsToTxnTopic] = wire.array(AddPartitionsToTxnTopic)


class AddPartitionsToTxnRequest(wire.Message, api_key=24, versions=range(6), flexible_since=3):
    """The partitions: of one transaction until version 3, of many since 4."""

    transactions: list[AddPartitionsToTxnTransaction] = wire.array(AddPartitionsToTxnTransaction, since=4)
    v3_and_below_transactional_id: str = wire.string(until=3)
    v3_and_below_producer_id: int = wire.int64(until=3)
    v3_and_below_producer_epoch: int = wire.int16(until=3)
    v3_and_below_topics: list[AddPartitionsToTxnTopic] = wire.array(AddPartitionsToTxnTopic, until=3)


class AddPartitionsToTxnPartitionResult(wire.Struct):
    partition_index: int = wire.int32()
    partition_error_code: int = wire.int16()


class AddPartitionsToTxnTopicResult(wire.Struct):
    name: str = wire.string()
    results_by_partition: list[AddPartitionsToTxnPartitionResult] = wire.array(AddPartitionsToTxnPartitionResult)


class AddPartitionsToTxnResult(wire.Struct):
    transactional_id: str = wire.string()
    topic_results: list[AddPartitionsToTxnTopicResult] = wire.array(AddPartitionsToTxnTopicResult)


class AddPartitionsToTxnResponse(wire.Message, api_key=24, versions=range(6), flexible_since=3):
    throttle_time_ms: int = wire.int32()
    error_code: int = wire.int16(since=4, ignorable=True)
    results_by_transaction: list[AddPartitionsToTxnResult] = wire.array(AddPartitionsToTxnResult, since=4)
    results_by_topic_v3_and_below: list[AddPartitionsToTxnTopicResult] = wire.array(
        AddPartitionsToTxnTopicResult, until=3
    )
