"""InitProducerId: a producer id and epoch, for whoever holds the transactional id from now on.

A new holder fences the old one: what the old one left open is aborted first, and meanwhile the new one is told to ask
again (CONCURRENT_TRANSACTIONS). A producer that names the id and epoch it has wants the next epoch for itself
(KIP-360): it gets it unless somebody else has taken over, and gets the same one again if it repeats itself.

As in Kafka, a producer that was fenced and asks for its next epoch while its successor has a transaction open makes
that one end too, before it learns that it was fenced: its epoch is looked at only when nothing is open.
"""

from collections.abc import Mapping

from headrace.coordinator.decision import Answer, Decision
from headrace.coordinator.transaction import ending, machine
from headrace.coordinator.transaction.events import Request
from headrace.coordinator.transaction.machine import (
    LAST_USABLE_EPOCH,
    NO_EPOCH,
    ProducerIdMissing,
    Transaction,
    TransactionConfig,
)
from headrace.coordinator.transaction.records import records_of
from headrace.model import NO_PRODUCER_ID
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse

_KNOWS_PRODUCER_FENCED = 4  # since this version (KIP-588)


def init_producer_id(
    transactions: Mapping[str, Transaction],
    request: Request,
    message: InitProducerIdRequest,
    *,
    config: TransactionConfig,
    coordinator_epoch: int,
    now_ms: int,
) -> Decision:
    transactional_id = message.transactional_id
    refusal = _refusal(message, config)
    if refusal is not None:
        return _refuse(request, refusal)
    if transactional_id is None:
        return _answer(request, _fresh_id(request, transactional_id), 0)
    known = transactions.get(transactional_id)
    if known is None:
        producer_id = _fresh_id(request, transactional_id)
        known = machine.create(transactional_id, producer_id, message.transaction_timeout_ms, now_ms)
    elif known.is_prepared:
        return _refuse(request, ErrorCode.CONCURRENT_TRANSACTIONS)
    elif not _may_continue(known, message):
        return _refuse(request, ErrorCode.PRODUCER_FENCED)
    elif known.is_ongoing:
        # Not even the epoch that this takes is told: whoever asks will ask again, and get the one after it.
        return ending.fence_and_abort(
            known,
            fresh_producer_id=request.fresh_producer_id,
            coordinator_epoch=coordinator_epoch,
            now_ms=now_ms,
            answers=_refuse(request, ErrorCode.CONCURRENT_TRANSACTIONS).answers,
        )
    following = _find_next(known, request, message)
    if following is None:
        return _refuse(request, ErrorCode.PRODUCER_FENCED)
    producer_id, epoch, last_epoch = following
    initialised = machine.initialise(
        known,
        producer_id=producer_id,
        epoch=epoch,
        last_epoch=last_epoch,
        timeout_ms=message.transaction_timeout_ms,
        now_ms=now_ms,
    )
    return _answer(request, producer_id, epoch, initialised)


def _refusal(message: InitProducerIdRequest, config: TransactionConfig) -> ErrorCode | None:
    if (message.producer_id == NO_PRODUCER_ID) != (message.producer_epoch == NO_EPOCH):
        return ErrorCode.INVALID_REQUEST
    if message.transactional_id is None:
        return None
    if not message.transactional_id:
        return ErrorCode.INVALID_REQUEST
    if not 0 < message.transaction_timeout_ms <= config.max_timeout_ms:
        return ErrorCode.INVALID_TRANSACTION_TIMEOUT
    return None


def _may_continue(known: Transaction, message: InitProducerIdRequest) -> bool:
    """Whether the producer that the request names, if any, can still be the holder; its epoch is looked at later."""
    if message.producer_id in (NO_PRODUCER_ID, known.producer_id):
        return True
    # It may have run out of epochs, been given a new id, and not have heard of it.
    return message.producer_id == known.previous_producer_id and message.producer_epoch >= LAST_USABLE_EPOCH


def _find_next(known: Transaction, request: Request, message: InitProducerIdRequest) -> tuple[int, int, int] | None:
    """The producer id, its epoch, and the epoch before it that may still be named; None if somebody took over."""
    is_own_wish = message.producer_id != NO_PRODUCER_ID
    current = known.producer_epoch
    if current != NO_EPOCH and is_own_wish and message.producer_epoch != current:
        # Said before, and the answer lost. (Kafka fails here with UNKNOWN_SERVER_ERROR if the epoch is the last one.)
        is_repeated = message.producer_epoch == known.last_producer_epoch
        return (known.producer_id, current, known.last_producer_epoch) if is_repeated else None
    last_epoch = current if is_own_wish else NO_EPOCH
    if known.is_epoch_exhausted:
        return _fresh_id(request, known.transactional_id), 0, last_epoch
    return known.producer_id, current + 1, last_epoch


def _fresh_id(request: Request, transactional_id: str | None) -> int:
    if request.fresh_producer_id == NO_PRODUCER_ID:
        raise ProducerIdMissing(transactional_id)
    return request.fresh_producer_id


def _answer(request: Request, producer_id: int, epoch: int, initialised: Transaction | None = None) -> Decision:
    response = InitProducerIdResponse(producer_id=producer_id, producer_epoch=epoch)
    records = () if initialised is None else records_of(initialised)
    return Decision(answers=(Answer(request.token, response),), records=records)


def _refuse(request: Request, error: ErrorCode) -> Decision:
    if error is ErrorCode.PRODUCER_FENCED and request.version < _KNOWS_PRODUCER_FENCED:
        error = ErrorCode.INVALID_PRODUCER_EPOCH
    response = InitProducerIdResponse(error_code=error, producer_id=NO_PRODUCER_ID, producer_epoch=NO_EPOCH)
    return Decision(answers=(Answer(request.token, response),))
