"""The coordinator of the transactional ids of one partition of `__transaction_state`.

It holds the last known state of each, decides what follows from an event, and changes nothing until the decision's
records are applied. What is decided is in the files of the phases: `initialising`, `adding`, `ending`, `describing`;
how a transaction moves is in `machine`.

What always holds: there is one record for each move; what may still be asked for after a crash (a marker that was not
written, a time-out) follows from the records, and `Loaded` asks for it again.
"""

from collections.abc import Mapping
from types import MappingProxyType

from headrace.coordinator.decision import Answer, CoordinatorRecord, Decision, Timer
from headrace.coordinator.transaction import adding, describing, ending, initialising, machine
from headrace.coordinator.transaction.config import TransactionConfig
from headrace.coordinator.transaction.errors import InvalidTransactionRecord
from headrace.coordinator.transaction.events import (
    Event,
    ExpirySweep,
    Loaded,
    MarkersWritten,
    Request,
    TimerFired,
    TransactionTimeout,
    VerifyOrAdd,
)
from headrace.coordinator.transaction.machine import Transaction
from headrace.coordinator.transaction.records import (
    LastEpoch,
    TransactionLogKey,
    TransactionLogValue,
    tombstone_of,
    transaction_of,
)
from headrace.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from headrace.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest
from headrace.protocol.messages.describe_transactions import DescribeTransactionsRequest
from headrace.protocol.messages.end_txn import EndTxnRequest
from headrace.protocol.messages.init_producer_id import InitProducerIdRequest
from headrace.protocol.messages.list_transactions import ListTransactionsRequest

EXPIRED_AT_ONCE = 1000  # so that one decision's records fit into one batch


class TransactionCoordinator:
    """Decides what becomes of transactions; `coordinator_epoch` is the leader epoch of its partition."""

    def __init__(self, config: TransactionConfig | None = None, *, coordinator_epoch: int = 0) -> None:
        self._config = config or TransactionConfig()
        self._coordinator_epoch = coordinator_epoch
        self._transactions: dict[str, Transaction] = {}

    @property
    def transactions(self) -> Mapping[str, Transaction]:
        """What is known of each transactional id, to look at."""
        return MappingProxyType(self._transactions)

    def needs_producer_id(self, event: Event) -> bool:
        """Whether the event has to bring a fresh producer id with it to be decided."""
        match event:
            case Request(message=InitProducerIdRequest(transactional_id=transactional_id)):
                known = None if transactional_id is None else self._transactions.get(transactional_id)
                return known is None or known.is_epoch_exhausted
            case (
                Request(message=EndTxnRequest(transactional_id=transactional_id))
                | TimerFired(key=TransactionTimeout(transactional_id))
            ):
                known = self._transactions.get(transactional_id)
                return known is not None and known.is_epoch_exhausted
            case _:
                return False

    def decide(self, event: Event, now_ms: int) -> Decision:
        """What follows from the event; nothing is changed yet."""
        match event:
            case Request():
                return self._requested(event, now_ms)
            case VerifyOrAdd():
                return adding.verify_or_add(self._addition(now_ms), event)
            case TimerFired(key=TransactionTimeout(transactional_id)):
                return self._look_at_timeout(transactional_id, event.fresh_producer_id, now_ms)
            case TimerFired():
                return self._look_for_expired(now_ms)
            case MarkersWritten():
                return ending.markers_written(self._transactions.get(event.transactional_id), event, now_ms)
            case Loaded():
                return self._loaded(now_ms)

    def apply(self, record: CoordinatorRecord) -> None:
        """Take in what a record says; the only thing that changes anything."""
        match record:
            case CoordinatorRecord(TransactionLogKey(transactional_id=transactional_id), None):
                self._transactions.pop(transactional_id, None)
            case CoordinatorRecord(
                TransactionLogKey(transactional_id=transactional_id), TransactionLogValue() as value
            ):
                before = self._transactions.get(transactional_id)
                self._transactions[transactional_id] = transaction_of(transactional_id, value, before)
            case CoordinatorRecord(LastEpoch(transactional_id), int() as last_epoch):
                known = self._transactions.get(transactional_id)
                if known is None:
                    raise InvalidTransactionRecord(transactional_id, "tells the last epoch of what is not known")
                self._transactions[transactional_id] = known._replace(last_producer_epoch=last_epoch)
            case _:
                raise TypeError(f"{type(record.key).__name__} is not the key of a record of __transaction_state")

    def _requested(self, request: Request, now_ms: int) -> Decision:
        match request.message:
            case InitProducerIdRequest() as message:
                return initialising.init_producer_id(
                    self._transactions,
                    request,
                    message,
                    config=self._config,
                    coordinator_epoch=self._coordinator_epoch,
                    now_ms=now_ms,
                )
            case AddPartitionsToTxnRequest() as message:
                return adding.add_partitions_to_txn(self._addition(now_ms), request, message)
            case AddOffsetsToTxnRequest() as message:
                return adding.add_offsets_to_txn(self._addition(now_ms), request, message, self._config)
            case EndTxnRequest() as message:
                known = self._transactions.get(message.transactional_id)
                return ending.end_txn(known, request, message, coordinator_epoch=self._coordinator_epoch, now_ms=now_ms)
            case DescribeTransactionsRequest() as message:
                described = describing.describe_transactions(self._transactions, message)
                return Decision(answers=(Answer(request.token, described),))
            case ListTransactionsRequest() as message:
                listed = describing.list_transactions(self._transactions, message, now_ms)
                return Decision(answers=(Answer(request.token, listed),))

    def _addition(self, now_ms: int) -> adding.Addition:
        return adding.Addition(self._transactions, self._config, now_ms)

    def _look_at_timeout(self, transactional_id: str, fresh_producer_id: int, now_ms: int) -> Decision:
        known = self._transactions.get(transactional_id)
        if known is None or not known.is_ongoing:
            return Decision()
        if now_ms < known.timed_out_from_ms:
            return Decision(timers=(adding.timeout_timer(known, self._config),))
        return ending.fence_and_abort(
            known, fresh_producer_id=fresh_producer_id, coordinator_epoch=self._coordinator_epoch, now_ms=now_ms
        )

    def _look_for_expired(self, now_ms: int) -> Decision:
        latest_ms = now_ms - self._config.id_expiration_ms
        expired = [known for known in self._transactions.values() if known.is_at_rest and known.updated_ms <= latest_ms]
        next_ms = now_ms if len(expired) > EXPIRED_AT_ONCE else now_ms + self._config.remove_expired_interval_ms
        return Decision(
            records=tuple(tombstone_of(machine.expire(known)) for known in expired[:EXPIRED_AT_ONCE]),
            timers=(Timer(ExpirySweep(), next_ms),),
        )

    def _loaded(self, now_ms: int) -> Decision:
        known = self._transactions.values()
        timers = [adding.timeout_timer(ongoing, self._config) for ongoing in known if ongoing.is_ongoing]
        sweep = Timer(ExpirySweep(), now_ms + self._config.remove_expired_interval_ms)
        return Decision(
            timers=(*timers, sweep),
            effects=tuple(
                ending.markers_of(prepared, self._coordinator_epoch) for prepared in known if prepared.is_prepared
            ),
        )
