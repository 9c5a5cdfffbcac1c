"""Transactions, step by step, each step possible from another process than the one before.

A transaction is known by its `Transaction`: transactional id, producer id, epoch. Whoever has these three can write in
it and end it, which is what lets one process write and another decide.

The steps are those from before KIP-890's second part: partitions are added by name and the epoch stays when a
transaction ends. That is what makes an end repeatable: committing what is committed already is answered with success,
and committing what was aborted is refused, so after a crash the outcome can be asked for by committing again. Every
Kafka from 0.11 to today takes these versions.
"""

import time
from collections.abc import Callable, Collection, Iterable, Mapping
from enum import Enum, auto
from typing import Final, NamedTuple, TypeVar

from headrace.client.cluster import Cluster
from headrace.client.connection import Connection
from headrace.client.coordinators import Coordinators, CoordinatorType
from headrace.client.errors import Refused
from headrace.client.leaders import by_topic
from headrace.model import TopicPartition
from headrace.protocol.api import ApiKey
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from headrace.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
)
from headrace.protocol.messages.describe_transactions import DescribeTransactionsRequest, DescribeTransactionsResponse
from headrace.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from headrace.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from headrace.protocol.messages.list_transactions import ListTransactionsRequest, ListTransactionsResponse
from headrace.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
)

_LAST_ADD, _LAST_END, _LAST_OFFSETS = 3, 4, 4  # the versions before KIP-890's second part
_COMPARES_AGES = 1  # of ListTransactions
_ENDED_OTHERWISE = (
    ErrorCode.INVALID_TXN_STATE,  # it was aborted by its own producer
    ErrorCode.PRODUCER_FENCED,  # it ran out of time, or the id was taken over: both abort it
    ErrorCode.INVALID_PRODUCER_EPOCH,
)
# A transaction that has just ended is busy until its markers are written, which takes the broker a few milliseconds:
# much less than a pause after real trouble.
_BUSY_PAUSES_S: Final = (0.001, 0.002, 0.004, 0.008, 0.016, 0.032)
R = TypeVar("R")


class Transaction(NamedTuple):
    transactional_id: str
    producer_id: int
    epoch: int


class TransactionStatus(Enum):
    OPEN = auto()
    COMMITTED = auto()  # or about to be: it is decided at the coordinator
    LOST = auto()  # aborted, by whomever, or its id was taken over
    FORGOTTEN = auto()  # the id was not used for so long that nobody knows


_STATUSES: Final = {
    "Ongoing": TransactionStatus.OPEN,
    "PrepareCommit": TransactionStatus.COMMITTED,
    "CompleteCommit": TransactionStatus.COMMITTED,
}


class Look(NamedTuple):
    """What a coordinator says about a transaction; the times mean something while it is open, and are by its clock."""

    status: TransactionStatus
    started_ms: int = -1
    timeout_ms: int = 0


class Transactions:
    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._coordinators = Coordinators(cluster, CoordinatorType.TRANSACTION)

    def begin(self, transactional_id: str, timeout_ms: int) -> Transaction:
        """A new transaction; whatever was open under this id is aborted, and its writer can write no more."""

        def ask(connection: Connection) -> Transaction:
            request = InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=timeout_ms)
            response = connection.request(request, InitProducerIdResponse)
            _check(transactional_id, response.error_code)
            return Transaction(transactional_id, response.producer_id, response.producer_epoch)

        return self._ask(transactional_id, ask)

    def add(self, transaction: Transaction, partitions: Iterable[TopicPartition]) -> None:
        """Make these partitions part of the transaction, before anything is written to them."""
        topics = [
            AddPartitionsToTxnTopic(name=name, partitions=indexes) for name, indexes in by_topic(partitions).items()
        ]

        def ask(connection: Connection) -> None:
            request = AddPartitionsToTxnRequest(
                v3_and_below_transactional_id=transaction.transactional_id,
                v3_and_below_producer_id=transaction.producer_id,
                v3_and_below_producer_epoch=transaction.epoch,
                v3_and_below_topics=topics,
            )
            response = connection.request(request, AddPartitionsToTxnResponse, highest=_LAST_ADD)
            codes = [
                result.partition_error_code
                for topic in response.results_by_topic_v3_and_below
                for result in topic.results_by_partition
            ]
            # With one that is refused the others are not tried, and whether that may pass only the one can say.
            for code in sorted(codes, key=lambda each: each == ErrorCode.OPERATION_NOT_ATTEMPTED):
                _check(transaction.transactional_id, code)

        self._ask(transaction.transactional_id, ask)

    def add_offsets(self, transaction: Transaction, group: str, offsets: Mapping[TopicPartition, int]) -> None:
        """Have a group's offsets be part of the transaction: they are committed with it, or not at all."""

        def ask_to_add(connection: Connection) -> None:
            request = AddOffsetsToTxnRequest(
                transactional_id=transaction.transactional_id,
                producer_id=transaction.producer_id,
                producer_epoch=transaction.epoch,
                group_id=group,
            )
            response = connection.request(request, AddOffsetsToTxnResponse, highest=_LAST_ADD)
            _check(transaction.transactional_id, response.error_code)

        def ask_to_commit(connection: Connection) -> None:
            request = TxnOffsetCommitRequest(
                transactional_id=transaction.transactional_id,
                group_id=group,
                producer_id=transaction.producer_id,
                producer_epoch=transaction.epoch,
                topics=[
                    TxnOffsetCommitRequestTopic(
                        name=name,
                        partitions=[
                            TxnOffsetCommitRequestPartition(
                                partition_index=index,
                                committed_offset=offsets[TopicPartition(name, index)],
                                committed_metadata="",
                            )
                            for index in indexes
                        ],
                    )
                    for name, indexes in by_topic(offsets).items()
                ],
            )
            response = connection.request(request, TxnOffsetCommitResponse, highest=_LAST_OFFSETS)
            for topic in response.topics:
                for result in topic.partitions:
                    _check(transaction.transactional_id, result.error_code)

        self._ask(transaction.transactional_id, ask_to_add)
        Coordinators(self._cluster).ask(group, ask_to_commit)

    def commit(self, transaction: Transaction) -> bool:
        """Commit; whether it is committed now, be it by this call or an earlier one. If not, it was aborted.

        An id that was not used for so long that the broker has forgotten it (seven days by default) is an error: nobody
        knows any more how its last transaction ended.
        """
        try:
            self._end(transaction, committed=True)
        except Refused as refusal:
            if refusal.code in _ENDED_OTHERWISE:
                return False
            raise
        return True

    def abort(self, transaction: Transaction) -> bool:
        """Abort; whether it is aborted now, be it by this call or before, or by its time. If not, it was committed."""
        try:
            self._end(transaction, committed=False)
        except Refused as refusal:
            if refusal.code not in _ENDED_OTHERWISE:
                raise
            return self.look(transaction).status is not TransactionStatus.COMMITTED
        return True

    def _end(self, transaction: Transaction, *, committed: bool) -> None:
        def ask(connection: Connection) -> None:
            request = EndTxnRequest(
                transactional_id=transaction.transactional_id,
                producer_id=transaction.producer_id,
                producer_epoch=transaction.epoch,
                committed=committed,
            )
            response = connection.request(request, EndTxnResponse, highest=_LAST_END)
            _check(transaction.transactional_id, response.error_code)

        self._ask(transaction.transactional_id, ask)

    def look(self, transaction: Transaction) -> Look:
        """Whether a transaction is open, or how it ended (KIP-664: Kafka 3.0)."""

        def ask(connection: Connection) -> Look:
            request = DescribeTransactionsRequest(transactional_ids=[transaction.transactional_id])
            (found,) = connection.request(request, DescribeTransactionsResponse).transaction_states
            if found.error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
                return Look(TransactionStatus.FORGOTTEN)
            _check(transaction.transactional_id, found.error_code)
            is_mine = (found.producer_id, found.producer_epoch) == (transaction.producer_id, transaction.epoch)
            status = (
                _STATUSES.get(found.transaction_state, TransactionStatus.LOST) if is_mine else TransactionStatus.LOST
            )
            return Look(status, found.transaction_start_time_ms, found.transaction_timeout_ms)

        return self._ask(transaction.transactional_id, ask)

    def has_older(self, transactions: Iterable[tuple[Transaction, Look]], age_ms: int) -> bool:
        """Whether one of these open transactions has been so for longer, by its coordinator's clock.

        A coordinator from before KIP-994 (Kafka 3.8) does not compare ages itself: then this machine's clock has to do.
        """
        asked = {transaction: look.started_ms for transaction, look in transactions}
        for node in {self._coordinators.node_of(transaction.transactional_id) for transaction in asked}:
            compares = self._cluster.broker(node).version_of(ApiKey.LIST_TRANSACTIONS) >= _COMPARES_AGES
            if not compares:
                now_ms = time.time_ns() // 1_000_000
                return any(now_ms - started_ms > age_ms for started_ms in asked.values())
            old = set(self._open_at(node, [transaction.producer_id for transaction in asked], age_ms))
            if any(transaction.transactional_id in old for transaction in asked):
                return True
        return False

    def _ask(self, transactional_id: str, question: Callable[[Connection], R]) -> R:
        """What the id's coordinator answers, once it is no longer busy with the transaction before."""

        def patient(connection: Connection) -> R:
            for pause_s in _BUSY_PAUSES_S:
                try:
                    return question(connection)
                except Refused as refusal:
                    if refusal.code is not ErrorCode.CONCURRENT_TRANSACTIONS:
                        raise
                self._cluster.pause(pause_s)
            return question(connection)

        return self._coordinators.ask(transactional_id, patient)

    def open_ids(self, prefix: str, *, but: Collection[str] = ()) -> list[str]:
        """The transactional ids that begin so and have a transaction open, anywhere in the cluster."""
        nodes = self._cluster.brokers(refresh=True).addresses  # one that is down for long is not among them
        found = {name for node in nodes for name in self._open_at(node)}
        return sorted(name for name in found if name.startswith(prefix) and name not in but)

    def _open_at(self, node: int, producer_ids: Collection[int] = (), age_ms: int = -1) -> list[str]:
        def ask() -> list[str]:
            request = ListTransactionsRequest(
                state_filters=["Ongoing"], producer_id_filters=list(producer_ids), duration_filter=age_ms
            )
            response = self._cluster.broker(node).request(request, ListTransactionsResponse)
            if response.error_code:
                raise Refused(f"transactions of broker {node}", ErrorCode.of(response.error_code))
            return [state.transactional_id for state in response.transaction_states]

        return self._cluster.run_with_retries(ask)


def _check(transactional_id: str, code: int) -> None:
    if code:
        raise Refused(f"transaction {transactional_id!r}", ErrorCode.of(code))
