"""The life of one transactional id: its states, and every way from one to the next.

Everything that moves a transaction is in this file. A move makes a new value of an old one, checked against the one
table of what may follow what; who may ask for a move, and what is answered, is decided elsewhere.

    Empty ──► Ongoing ──► PrepareCommit ──► CompleteCommit ──► Ongoing, Empty, Dead …
                 │  └───► PrepareAbort  ──► CompleteAbort  ──► Ongoing, Empty, Dead …
                 └──► PrepareEpochFence ──► PrepareAbort

What always holds: a producer id and its epoch never go back; a transaction that is prepared ends the way that it was
prepared; PrepareEpochFence and Dead are passed through within one decision and are never written.

Since transaction version 2 (KIP-890) every end moves the epoch on, so that nothing a producer sent for one transaction
can land in the next. A producer that has no epochs left goes on under a new id, which the transaction gets when its
markers are written.
"""

from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from enum import IntEnum
from types import MappingProxyType
from typing import NamedTuple

from headrace.errors import HeadraceError
from headrace.model import NO_PRODUCER_ID, NO_TIMESTAMP, TopicPartition


class TransactionError(HeadraceError):
    """Something about the state of a transaction that must not be."""


class IllegalTransition(TransactionError):
    """A transaction was asked to go from one state to another that it cannot reach from there."""

    def __init__(self, transactional_id: str, source: str, target: str) -> None:
        super().__init__(f"transaction {transactional_id!r} cannot go from {source} to {target}")
        self.transactional_id = transactional_id
        self.source = source
        self.target = target


class InvalidTransactionRecord(TransactionError):
    """A record of `__transaction_state` that means nothing: `what` is wrong about it."""

    def __init__(self, transactional_id: str, what: str) -> None:
        super().__init__(f"the record of transaction {transactional_id!r} in __transaction_state {what}")
        self.transactional_id = transactional_id
        self.what = what


class ProducerIdMissing(TransactionError):
    """An event came without the fresh producer id that `needs_producer_id` asks for."""

    def __init__(self, transactional_id: str | None) -> None:
        super().__init__(f"transactional id {transactional_id!r} needs a fresh producer id, and the event has none")
        self.transactional_id = transactional_id


@dataclass(frozen=True, slots=True)
class TransactionConfig:
    """How long transactions and transactional ids may last, and how often that is looked at."""

    max_timeout_ms: int = 15 * 60 * 1000  # transaction.max.timeout.ms
    id_expiration_ms: int = 7 * 24 * 60 * 60 * 1000  # transactional.id.expiration.ms
    # transaction.abort.timed.out.transaction.cleanup.interval.ms
    abort_timed_out_interval_ms: int = 10 * 1000
    # transaction.remove.expired.transaction.cleanup.interval.ms
    remove_expired_interval_ms: int = 60 * 60 * 1000
    offsets_topic_partitions: int = 50  # offsets.topic.num.partitions


NO_EPOCH = -1
MAX_EPOCH = 32767  # never given to a producer, so that any producer can be fenced
LAST_USABLE_EPOCH = MAX_EPOCH - 1

# Versions of the transaction protocol (`transaction.version`); 1 differs from 0 in the format of the records alone.
OLD_TRANSACTIONS = 0
EPOCH_BUMP_TRANSACTIONS = 2


class TransactionState(IntEnum):
    """The states, by the numbers that records have for them."""

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5
    DEAD = 6
    PREPARE_EPOCH_FENCE = 7

    @property
    def label(self) -> str:
        return _LABELS[self]


_LABELS = {state: state.name.title().replace("_", "") for state in TransactionState}
STATES_BY_LABEL: Mapping[str, TransactionState] = MappingProxyType({label: state for state, label in _LABELS.items()})

_EMPTY, _ONGOING = TransactionState.EMPTY, TransactionState.ONGOING
_COMPLETE = frozenset({TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT})
_PREPARED = frozenset({TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT})
_AT_REST = _COMPLETE | {_EMPTY}

# From where each state can be reached.
LEGAL_SOURCES: Mapping[TransactionState, frozenset[TransactionState]] = MappingProxyType(
    {
        TransactionState.EMPTY: _AT_REST,
        TransactionState.ONGOING: _AT_REST | {_ONGOING},
        TransactionState.PREPARE_COMMIT: frozenset({_ONGOING}),
        # At rest too: a producer may abort before the broker has heard of any partition (KIP-890).
        TransactionState.PREPARE_ABORT: _AT_REST | {_ONGOING, TransactionState.PREPARE_EPOCH_FENCE},
        TransactionState.COMPLETE_COMMIT: frozenset({TransactionState.PREPARE_COMMIT}),
        TransactionState.COMPLETE_ABORT: frozenset({TransactionState.PREPARE_ABORT}),
        TransactionState.DEAD: _AT_REST,
        TransactionState.PREPARE_EPOCH_FENCE: frozenset({_ONGOING}),
    }
)


class Transaction(NamedTuple):
    transactional_id: str
    producer_id: int
    producer_epoch: int
    timeout_ms: int
    state: TransactionState
    updated_ms: int
    started_ms: int = NO_TIMESTAMP
    partitions: frozenset[TopicPartition] = frozenset()
    previous_producer_id: int = NO_PRODUCER_ID  # whose it was before the last move: the same, or the one that ran out
    next_producer_id: int = NO_PRODUCER_ID  # whose it will be once the markers are written
    last_producer_epoch: int = NO_EPOCH  # the epoch before, if a repeated request may still name it (KIP-360)
    client_version: int = OLD_TRANSACTIONS  # the transaction version that the last part of it was spoken in

    @property
    def is_ongoing(self) -> bool:
        """Whether partitions have been added and no end is decided."""
        return self.state is _ONGOING

    @property
    def is_prepared(self) -> bool:
        """Whether its end is decided and its markers are being written."""
        return self.state in _PREPARED

    @property
    def is_at_rest(self) -> bool:
        return self.state in _AT_REST

    @property
    def is_epoch_exhausted(self) -> bool:
        return self.producer_epoch >= LAST_USABLE_EPOCH

    @property
    def timed_out_from_ms(self) -> int:
        """The first millisecond at which it has been open for too long."""
        return self.started_ms + self.timeout_ms + 1


def by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    """The numbers of the partitions under their topics, all in order."""
    grouped: dict[str, list[int]] = {}
    for topic, number in sorted(partitions):
        grouped.setdefault(topic, []).append(number)
    return grouped


def create(transactional_id: str, producer_id: int, timeout_ms: int, now_ms: int) -> Transaction:
    """A transactional id that nobody has used; it has no epoch until its producer is initialised."""
    return Transaction(transactional_id, producer_id, NO_EPOCH, timeout_ms, _EMPTY, now_ms)


def initialise(
    before: Transaction, *, producer_id: int, epoch: int, last_epoch: int, timeout_ms: int, now_ms: int
) -> Transaction:
    """Nothing is open, and the producer goes on with this id and epoch."""
    return _move(before, _EMPTY)._replace(
        producer_id=producer_id,
        producer_epoch=epoch,
        last_producer_epoch=last_epoch,
        timeout_ms=timeout_ms,
        partitions=frozenset(),
        started_ms=NO_TIMESTAMP,
        updated_ms=now_ms,
    )


def add_partitions(
    before: Transaction, partitions: AbstractSet[TopicPartition], *, client_version: int, now_ms: int
) -> Transaction:
    """More partitions belong to the transaction, which begins if none is open."""
    return _move(before, _ONGOING)._replace(
        partitions=before.partitions | partitions,
        started_ms=before.started_ms if before.is_ongoing else now_ms,
        updated_ms=now_ms,
        client_version=client_version,
    )


def fence(before: Transaction) -> Transaction:
    """The producer loses its transaction: all that may follow is an abort, which moves the epoch on."""
    return _move(before, TransactionState.PREPARE_EPOCH_FENCE)


def prepare(
    before: Transaction, *, committed: bool, client_version: int, next_producer_id: int, now_ms: int
) -> Transaction:
    """The end is decided: from here on it can only be completed."""
    target = TransactionState.PREPARE_COMMIT if committed else TransactionState.PREPARE_ABORT
    prepared = _move(before, target)._replace(updated_ms=now_ms, client_version=client_version)
    if client_version < EPOCH_BUMP_TRANSACTIONS:
        if before.is_at_rest:
            raise _illegal(before, target)  # without a new epoch it could not be told from the transaction before it
        return prepared
    if before.producer_epoch >= MAX_EPOCH and committed:
        raise _illegal(before, target)  # a producer with this epoch was fenced, and has nothing to commit
    epoch = min(before.producer_epoch + 1, MAX_EPOCH)
    return prepared._replace(
        producer_epoch=epoch,
        last_producer_epoch=epoch - 1,
        next_producer_id=next_producer_id,
        started_ms=now_ms if before.is_at_rest else before.started_ms,
    )


def complete(before: Transaction, now_ms: int) -> Transaction:
    is_commit = before.state is TransactionState.PREPARE_COMMIT
    done = _move(before, TransactionState.COMPLETE_COMMIT if is_commit else TransactionState.COMPLETE_ABORT)._replace(
        next_producer_id=NO_PRODUCER_ID, partitions=frozenset(), updated_ms=now_ms
    )
    if before.next_producer_id == NO_PRODUCER_ID:
        return done
    return done._replace(producer_id=before.next_producer_id, producer_epoch=0)


def expire(before: Transaction) -> Transaction:
    """Nobody has used the transactional id for so long that it is forgotten."""
    return _move(before, TransactionState.DEAD)._replace(partitions=frozenset())


def _move(before: Transaction, target: TransactionState) -> Transaction:
    if before.state not in LEGAL_SOURCES[target]:
        raise _illegal(before, target)
    return before._replace(state=target, previous_producer_id=before.producer_id)


def _illegal(before: Transaction, target: TransactionState) -> IllegalTransition:
    return IllegalTransition(before.transactional_id, before.state.label, target.label)
