"""What a transaction coordinator is asked with, and the one thing that it asks the shell to do."""

from dataclasses import dataclass
from enum import Enum, auto
from typing import NamedTuple

from headrace.coordinator.decision import RequestToken
from headrace.model import NO_PRODUCER_ID, TopicPartition
from headrace.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from headrace.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest
from headrace.protocol.messages.describe_transactions import DescribeTransactionsRequest
from headrace.protocol.messages.end_txn import EndTxnRequest
from headrace.protocol.messages.init_producer_id import InitProducerIdRequest
from headrace.protocol.messages.list_transactions import ListTransactionsRequest

TransactionRequest = (
    InitProducerIdRequest
    | AddPartitionsToTxnRequest
    | AddOffsetsToTxnRequest
    | EndTxnRequest
    | DescribeTransactionsRequest
    | ListTransactionsRequest
)


class TransactionTimeout(NamedTuple):
    transactional_id: str


class ExpirySweep(NamedTuple):
    """The timer that looks for transactional ids that nobody uses any more; there is one for all."""


@dataclass(frozen=True, slots=True)
class Request:
    """A client's request, or another broker's, that the shell has authorised.

    Of a request that names many transactional ids, the shell leaves in those that are this coordinator's. Partitions
    that do not exist are the shell's to refuse. `fresh_producer_id` has to be an id that no producer was ever given,
    wherever `needs_producer_id` says that one may be needed.
    """

    token: RequestToken
    message: TransactionRequest
    version: int
    fresh_producer_id: int = NO_PRODUCER_ID


class WriterSupport(Enum):
    """What the client that writes in a transaction understands (KIP-890)."""

    DEFAULT_ERRORS = auto()  # its partitions are verified, and it does not know TRANSACTION_ABORTABLE
    ABORTABLE_ERROR = auto()  # its partitions are verified
    ADDS_PARTITIONS = auto()  # its partitions are added by writing to them

    @classmethod
    def of_produce(cls, version: int) -> "WriterSupport":
        return cls._of(version, abortable_since=11)

    @classmethod
    def of_txn_offset_commit(cls, version: int) -> "WriterSupport":
        """That of a client that sends this version of TxnOffsetCommit."""
        return cls._of(version, abortable_since=4)

    @classmethod
    def _of(cls, version: int, *, abortable_since: int) -> "WriterSupport":
        if version > abortable_since:
            return cls.ADDS_PARTITIONS
        return cls.ABORTABLE_ERROR if version == abortable_since else cls.DEFAULT_ERRORS


@dataclass(frozen=True, slots=True)
class VerifyOrAdd:
    """A producer is about to write to these partitions: do they belong to its transaction, or can they be added?

    The answer is an AddPartitionsToTxnResponse as version 4 has it; `adding.errors_in` reads it. Its errors are those
    that the writer is to be told. Of CONCURRENT_TRANSACTIONS for a writer that adds partitions it is worth asking again
    after the markers are written, before the writer is bothered with it.
    """

    token: RequestToken
    transactional_id: str
    producer_id: int
    producer_epoch: int
    partitions: frozenset[TopicPartition]
    support: WriterSupport


@dataclass(frozen=True, slots=True)
class TimerFired:
    """A timer's time has come; `fresh_producer_id` as with a request."""

    key: TransactionTimeout | ExpirySweep
    fresh_producer_id: int = NO_PRODUCER_ID


@dataclass(frozen=True, slots=True)
class MarkersWritten:
    """The markers of a `WriteMarkers` with these three are durable in all of its partitions that still exist."""

    transactional_id: str
    producer_id: int
    producer_epoch: int


@dataclass(frozen=True, slots=True)
class Loaded:
    """All records have been applied after a start: timers are wanted again, and what was prepared has to be ended."""


Event = Request | VerifyOrAdd | TimerFired | MarkersWritten | Loaded


@dataclass(frozen=True, slots=True)
class WriteMarkers:
    """End a transaction: a control batch for each partition, then `MarkersWritten`.

    Not before the decision's records are durable: a marker must not say what a crash could make untrue. Writing a
    marker again does no harm, so whatever a crash leaves undone is simply done again after `Loaded`. There may be no
    partitions at all, and then there is nothing to wait for.
    """

    transactional_id: str
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    partitions: frozenset[TopicPartition]
    committed: bool
    transaction_version: int  # since 2 a marker has an epoch of its own, above that of the records (KIP-1228)
