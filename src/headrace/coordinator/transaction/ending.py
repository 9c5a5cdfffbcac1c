"""The end of a transaction: EndTxn, the time-out, fencing, and what follows once the markers are written.

An end is decided once: the record that prepares it is the decision, and from there on markers are written, again after
a crash, until the record that completes it. EndTxn is answered when the first of the two is durable.

Clients speak two versions here. Until EndTxn v4 a producer keeps its epoch, and a repeated request is known by the
state. Since v5 (transaction version 2, KIP-890) the end moves the epoch on and the answer tells the new one: a request
that names the epoch before it is a repetition, and one that names the new one is about the next transaction.
"""

from headrace.coordinator.decision import Answer, Decision, Timer
from headrace.coordinator.transaction import machine
from headrace.coordinator.transaction.events import MarkersWritten, Request, TransactionTimeout, WriteMarkers
from headrace.coordinator.transaction.machine import (
    EPOCH_BUMP_TRANSACTIONS,
    LAST_USABLE_EPOCH,
    NO_EPOCH,
    OLD_TRANSACTIONS,
    ProducerIdMissing,
    Transaction,
    TransactionState,
)
from headrace.coordinator.transaction.records import records_of
from headrace.model import NO_PRODUCER_ID
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse

_KNOWS_PRODUCER_FENCED = 2
_BUMPS_EPOCH = 5


def end_txn(
    known: Transaction | None, request: Request, message: EndTxnRequest, *, coordinator_epoch: int, now_ms: int
) -> Decision:
    bumps_epoch = request.version >= _BUMPS_EPOCH
    if not message.transactional_id:
        return _refuse(request, ErrorCode.INVALID_REQUEST)
    if known is None:
        return _refuse(request, ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    verdict = _verdict(known, message) if bumps_epoch else _old_verdict(known, message)
    if verdict is ErrorCode.NONE:
        return Decision(answers=(_answer_end(request, known),))
    if verdict is not None:
        return _refuse(request, verdict)
    prepared = machine.prepare(
        known,
        committed=message.committed,
        client_version=EPOCH_BUMP_TRANSACTIONS if bumps_epoch else OLD_TRANSACTIONS,
        next_producer_id=_next_producer_id(known, request.fresh_producer_id) if bumps_epoch else NO_PRODUCER_ID,
        now_ms=now_ms,
    )
    # The producer goes on with what the transaction will have once it is complete.
    answers = (_answer_end(request, machine.complete(prepared, now_ms)),)
    return _decide_end(prepared, coordinator_epoch, answers)


def fence_and_abort(
    known: Transaction, *, fresh_producer_id: int, coordinator_epoch: int, now_ms: int, answers: tuple[Answer, ...] = ()
) -> Decision:
    """End an open transaction that is its producer's no more, in the newest way, since no client asks for it."""
    prepared = machine.prepare(
        machine.fence(known),
        committed=False,
        client_version=EPOCH_BUMP_TRANSACTIONS,
        next_producer_id=_next_producer_id(known, fresh_producer_id),
        now_ms=now_ms,
    )
    return _decide_end(prepared, coordinator_epoch, answers)


def markers_written(known: Transaction | None, event: MarkersWritten, now_ms: int) -> Decision:
    """Complete the transaction, unless that was said of another one, or said before."""
    if known is None or not known.is_prepared:
        return Decision()
    if (known.producer_id, known.producer_epoch) != (event.producer_id, event.producer_epoch):
        return Decision()
    return Decision(records=records_of(machine.complete(known, now_ms)))


def markers_of(prepared: Transaction, coordinator_epoch: int) -> WriteMarkers:
    return WriteMarkers(
        transactional_id=prepared.transactional_id,
        producer_id=prepared.producer_id,
        producer_epoch=prepared.producer_epoch,
        coordinator_epoch=coordinator_epoch,
        partitions=prepared.partitions,
        committed=prepared.state is TransactionState.PREPARE_COMMIT,
        transaction_version=prepared.client_version,
    )


def _verdict(known: Transaction, message: EndTxnRequest) -> ErrorCode | None:
    """What to answer a producer whose epoch moves on with every end; None if the transaction is to be ended now."""
    if known.is_prepared:
        return ErrorCode.CONCURRENT_TRANSACTIONS
    is_repeated = _is_repeated(known, message)
    if message.producer_id != known.producer_id and not is_repeated:
        return ErrorCode.INVALID_PRODUCER_ID_MAPPING
    if is_repeated:
        return ErrorCode.NONE if message.committed == _was_committed(known) else ErrorCode.INVALID_TXN_STATE
    if message.producer_epoch != known.producer_epoch:
        return ErrorCode.PRODUCER_FENCED
    # With nothing open an abort is let through: what was written may be on its way, and has to be fenced off.
    return None if known.is_ongoing or not message.committed else ErrorCode.INVALID_TXN_STATE


def _is_repeated(known: Transaction, message: EndTxnRequest) -> bool:
    """Whether the request is about the transaction that has just ended, from before its epoch moved on.

    The end must have moved it: the version is looked at, which Kafka does not. Otherwise a producer that was fenced
    could take the end of its successor, which has the next epoch and kept it, for its own.
    """
    if known.state is TransactionState.EMPTY or known.is_ongoing or known.client_version < EPOCH_BUMP_TRANSACTIONS:
        return False
    if message.producer_id == known.producer_id and message.producer_epoch + 1 == known.producer_epoch:
        return True
    has_new_id = known.producer_epoch == 0 and message.producer_epoch == LAST_USABLE_EPOCH
    return has_new_id and message.producer_id == known.previous_producer_id


def _old_verdict(known: Transaction, message: EndTxnRequest) -> ErrorCode | None:
    """What to answer a producer that keeps its epoch; None if the transaction is to be ended now."""
    if message.producer_id != known.producer_id:
        return ErrorCode.INVALID_PRODUCER_ID_MAPPING
    if message.producer_epoch != known.producer_epoch:
        return ErrorCode.PRODUCER_FENCED
    if known.is_prepared:
        return ErrorCode.CONCURRENT_TRANSACTIONS
    if known.is_ongoing:
        return None
    is_repeated = known.state is not TransactionState.EMPTY and message.committed == _was_committed(known)
    return ErrorCode.NONE if is_repeated else ErrorCode.INVALID_TXN_STATE


def _was_committed(known: Transaction) -> bool:
    return known.state is TransactionState.COMPLETE_COMMIT


def _next_producer_id(known: Transaction, fresh_producer_id: int) -> int:
    """The id to go on with if this end takes the last epoch of the present one."""
    if not known.is_epoch_exhausted:
        return NO_PRODUCER_ID
    if fresh_producer_id == NO_PRODUCER_ID:
        raise ProducerIdMissing(known.transactional_id)
    return fresh_producer_id


def _decide_end(prepared: Transaction, coordinator_epoch: int, answers: tuple[Answer, ...]) -> Decision:
    return Decision(
        answers=answers,
        records=records_of(prepared),
        timers=(Timer(TransactionTimeout(prepared.transactional_id), None),),
        effects=(markers_of(prepared, coordinator_epoch),),
    )


def _answer_end(request: Request, after: Transaction) -> Answer:
    response = EndTxnResponse(producer_id=after.producer_id, producer_epoch=after.producer_epoch)
    return Answer(request.token, response)


def _refuse(request: Request, error: ErrorCode) -> Decision:
    if error is ErrorCode.PRODUCER_FENCED and request.version < _KNOWS_PRODUCER_FENCED:
        error = ErrorCode.INVALID_PRODUCER_EPOCH
    response = EndTxnResponse(error_code=error, producer_id=NO_PRODUCER_ID, producer_epoch=NO_EPOCH)
    return Decision(answers=(Answer(request.token, response),))
