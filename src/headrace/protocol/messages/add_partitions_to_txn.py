"""AddPartitionsToTxn (API 24): name the partitions that a transaction is going to write to.

Clients use versions 0 to 3, with one transaction in the message itself; brokers use 4 and 5, with many transactions, to
verify that a partition belongs to one (KIP-890). 2 may answer PRODUCER_FENCED, 5 TRANSACTION_ABORTABLE.
"""

from headrace.protocol.schema import INT32, Message, Struct, array, boolean, int16, int32, int64, string


class AddPartitionsToTxnTopic(Struct):
    name: str = string()
    partitions: list[int] = array(INT32)


class AddPartitionsToTxnTransaction(Struct):
    transactional_id: str = string()
    producer_id: int = int64()
    producer_epoch: int = int16()
    verify_only: bool = boolean()
    topics: list[AddPartitionsToTxnTopic] = array(AddPartitionsToTxnTopic)


class AddPartitionsToTxnRequest(Message, api_key=24, versions=range(6), flexible_since=3):
    """The partitions: of one transaction until version 3, of many since 4."""

    transactions: list[AddPartitionsToTxnTransaction] = array(AddPartitionsToTxnTransaction, since=4)
    v3_and_below_transactional_id: str = string(until=3)
    v3_and_below_producer_id: int = int64(until=3)
    v3_and_below_producer_epoch: int = int16(until=3)
    v3_and_below_topics: list[AddPartitionsToTxnTopic] = array(AddPartitionsToTxnTopic, until=3)


class AddPartitionsToTxnPartitionResult(Struct):
    partition_index: int = int32()
    partition_error_code: int = int16()


class AddPartitionsToTxnTopicResult(Struct):
    name: str = string()
    results_by_partition: list[AddPartitionsToTxnPartitionResult] = array(AddPartitionsToTxnPartitionResult)


class AddPartitionsToTxnResult(Struct):
    transactional_id: str = string()
    topic_results: list[AddPartitionsToTxnTopicResult] = array(AddPartitionsToTxnTopicResult)


class AddPartitionsToTxnResponse(Message, api_key=24, versions=range(6), flexible_since=3):
    throttle_time_ms: int = int32()
    error_code: int = int16(since=4, ignorable=True)
    results_by_transaction: list[AddPartitionsToTxnResult] = array(AddPartitionsToTxnResult, since=4)
    results_by_topic_v3_and_below: list[AddPartitionsToTxnTopicResult] = array(AddPartitionsToTxnTopicResult, until=3)
