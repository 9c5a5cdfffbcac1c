"""Partitions into a transaction: AddPartitionsToTxn, AddOffsetsToTxn, and the writes that add or verify by themselves.

A client of transaction version 0 names its partitions before it writes to them, and each write is verified against
what it named; since version 2 the write itself adds them (KIP-890). The first partition begins the transaction. What is
asked of one transaction is done for all of its partitions or for none.
"""

from collections.abc import Mapping
from collections.abc import Set as AbstractSet

from headrace.coordinator.decision import Answer, CoordinatorRecord, Decision, Timer
from headrace.coordinator.transaction import machine
from headrace.coordinator.transaction.events import Request, TransactionTimeout, VerifyOrAdd, WriterSupport
from headrace.coordinator.transaction.machine import (
    EPOCH_BUMP_TRANSACTIONS,
    OLD_TRANSACTIONS,
    Transaction,
    TransactionConfig,
    by_topic,
)
from headrace.coordinator.transaction.records import partition_for, records_of
from headrace.model import TopicPartition
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from headrace.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTopicResult,
    AddPartitionsToTxnTransaction,
)

OFFSETS_TOPIC = "__consumer_offsets"

_FROM_BROKERS = 4  # since this version the request holds many transactions, of clients that speak version 2
_KNOWS_PRODUCER_FENCED = 2

PartitionErrors = Mapping[TopicPartition, ErrorCode]


class Addition:
    """What is added to several transactions within one decision, each seeing what was added before it."""

    def __init__(self, transactions: Mapping[str, Transaction], config: TransactionConfig, now_ms: int) -> None:
        self._transactions = transactions
        self._config = config
        self._now_ms = now_ms
        self._changed: dict[str, Transaction] = {}
        self._timers: list[Timer] = []

    def add(
        self, wanted: AddPartitionsToTxnTransaction, partitions: AbstractSet[TopicPartition], version: int
    ) -> ErrorCode:
        known, error = self._open_for(wanted)
        if known is None:
            return error
        if known.is_ongoing and partitions <= known.partitions:
            return ErrorCode.NONE
        after = machine.add_partitions(known, partitions, client_version=version, now_ms=self._now_ms)
        self._changed[after.transactional_id] = after
        if not known.is_ongoing:
            self._timers.append(timeout_timer(after, self._config))
        return ErrorCode.NONE

    def verify(self, wanted: AddPartitionsToTxnTransaction, partitions: AbstractSet[TopicPartition]) -> PartitionErrors:
        known, error = self._open_for(wanted)
        if known is None:
            return dict.fromkeys(partitions, error)
        return {
            partition: ErrorCode.NONE if partition in known.partitions else ErrorCode.TRANSACTION_ABORTABLE
            for partition in partitions
        }

    def decision(self, answer: Answer) -> Decision:
        records: list[CoordinatorRecord] = []
        for transaction in self._changed.values():
            records.extend(records_of(transaction))
        return Decision(answers=(answer,), records=tuple(records), timers=tuple(self._timers))

    def _open_for(self, wanted: AddPartitionsToTxnTransaction) -> tuple[Transaction | None, ErrorCode]:
        """The transaction, if this producer may write in it; or the reason why not."""
        transactional_id = wanted.transactional_id
        if not transactional_id:
            return None, ErrorCode.INVALID_REQUEST
        known = self._changed.get(transactional_id) or self._transactions.get(transactional_id)
        if known is None:
            return None, ErrorCode.INVALID_PRODUCER_ID_MAPPING
        # Asked first: the producer may already go on with the id and epoch that it will have when this is over.
        if known.is_prepared and not wanted.verify_only:
            return None, ErrorCode.CONCURRENT_TRANSACTIONS
        if wanted.producer_id != known.producer_id:
            return None, ErrorCode.INVALID_PRODUCER_ID_MAPPING
        if wanted.producer_epoch != known.producer_epoch:
            return None, ErrorCode.PRODUCER_FENCED
        if known.is_prepared:
            return None, ErrorCode.CONCURRENT_TRANSACTIONS
        return known, ErrorCode.NONE


def timeout_timer(ongoing: Transaction, config: TransactionConfig) -> Timer:
    """When to look whether the transaction has been open for too long: at the next look that finds it so."""
    interval = config.abort_timed_out_interval_ms
    looks = -(-ongoing.timed_out_from_ms // interval)
    return Timer(TransactionTimeout(ongoing.transactional_id), looks * interval)


def add_partitions_to_txn(addition: Addition, request: Request, message: AddPartitionsToTxnRequest) -> Decision:
    """Add or verify what a client names for one transaction, or a broker for many."""
    if request.version < _FROM_BROKERS:
        wanted = AddPartitionsToTxnTransaction(
            transactional_id=message.v3_and_below_transactional_id,
            producer_id=message.v3_and_below_producer_id,
            producer_epoch=message.v3_and_below_producer_epoch,
            topics=message.v3_and_below_topics,
        )
        error = _for_old_clients(addition.add(wanted, _partitions(wanted), OLD_TRANSACTIONS), request.version)
        told = _topic_results(dict.fromkeys(_partitions(wanted), error))
        response = AddPartitionsToTxnResponse(results_by_topic_v3_and_below=told)
    else:
        results = [
            AddPartitionsToTxnResult(
                transactional_id=wanted.transactional_id, topic_results=_topic_results(_of_broker(addition, wanted))
            )
            for wanted in message.transactions
        ]
        response = AddPartitionsToTxnResponse(results_by_transaction=results)
    return addition.decision(Answer(request.token, response))


def add_offsets_to_txn(
    addition: Addition, request: Request, message: AddOffsetsToTxnRequest, config: TransactionConfig
) -> Decision:
    partition = TopicPartition(OFFSETS_TOPIC, partition_for(message.group_id, config.offsets_topic_partitions))
    wanted = AddPartitionsToTxnTransaction(
        transactional_id=message.transactional_id,
        producer_id=message.producer_id,
        producer_epoch=message.producer_epoch,
    )
    error = addition.add(wanted, {partition}, OLD_TRANSACTIONS)
    response = AddOffsetsToTxnResponse(error_code=_for_old_clients(error, request.version))
    return addition.decision(Answer(request.token, response))


def verify_or_add(addition: Addition, event: VerifyOrAdd) -> Decision:
    """Let a write into its transaction, or tell the writer why not."""
    adds = event.support is WriterSupport.ADDS_PARTITIONS
    wanted = AddPartitionsToTxnTransaction(
        transactional_id=event.transactional_id,
        producer_id=event.producer_id,
        producer_epoch=event.producer_epoch,
        verify_only=not adds,
        topics=[
            AddPartitionsToTxnTopic(name=topic, partitions=numbers)
            for topic, numbers in by_topic(event.partitions).items()
        ],
    )
    errors = _of_broker(addition, wanted)
    told = _topic_results({partition: _for_writers(error, event.support) for partition, error in errors.items()})
    result = AddPartitionsToTxnResult(transactional_id=event.transactional_id, topic_results=told)
    return addition.decision(Answer(event.token, AddPartitionsToTxnResponse(results_by_transaction=[result])))


def errors_in(response: AddPartitionsToTxnResponse) -> dict[TopicPartition, ErrorCode]:
    """What the answer to `VerifyOrAdd` says of each partition."""
    return {
        TopicPartition(topic.name, result.partition_index): ErrorCode.of(result.partition_error_code)
        for transaction in response.results_by_transaction
        for topic in transaction.topic_results
        for result in topic.results_by_partition
    }


def _of_broker(addition: Addition, wanted: AddPartitionsToTxnTransaction) -> PartitionErrors:
    partitions = _partitions(wanted)
    if wanted.verify_only:
        return addition.verify(wanted, partitions)
    return dict.fromkeys(partitions, addition.add(wanted, partitions, EPOCH_BUMP_TRANSACTIONS))


def _partitions(wanted: AddPartitionsToTxnTransaction) -> frozenset[TopicPartition]:
    return frozenset(TopicPartition(topic.name, number) for topic in wanted.topics for number in topic.partitions)


def _topic_results(errors: PartitionErrors) -> list[AddPartitionsToTxnTopicResult]:
    return [
        AddPartitionsToTxnTopicResult(
            name=topic,
            results_by_partition=[
                AddPartitionsToTxnPartitionResult(
                    partition_index=number, partition_error_code=errors[TopicPartition(topic, number)]
                )
                for number in numbers
            ],
        )
        for topic, numbers in by_topic(errors).items()
    ]


def _for_old_clients(error: ErrorCode, version: int) -> ErrorCode:
    is_unknown = error is ErrorCode.PRODUCER_FENCED and version < _KNOWS_PRODUCER_FENCED
    return ErrorCode.INVALID_PRODUCER_EPOCH if is_unknown else error


def _for_writers(error: ErrorCode, support: WriterSupport) -> ErrorCode:
    """The error in the words that whoever produces or commits offsets expects."""
    if error is ErrorCode.PRODUCER_FENCED:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    if error is ErrorCode.TRANSACTION_ABORTABLE and support is WriterSupport.DEFAULT_ERRORS:
        return ErrorCode.INVALID_TXN_STATE
    return error
