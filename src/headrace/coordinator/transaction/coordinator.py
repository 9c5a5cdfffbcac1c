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
from headrace.coordinator.expression import Expression, InvalidExpression
from headrace.coordinator.transaction import adding, ending, initialising, machine
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
from headrace.coordinator.transaction.machine import (
    STATES_BY_LABEL,
    InvalidTransactionRecord,
    Transaction,
    TransactionConfig,
    by_topic,
)
from headrace.coordinator.transaction.records import (
    LastEpoch,
    TransactionLogKey,
    TransactionLogValue,
    tombstone_of,
    transaction_of,
)
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages import describe_transactions as described
from headrace.protocol.messages import list_transactions as listed
from headrace.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from headrace.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest
from headrace.protocol.messages.describe_transactions import DescribeTransactionsRequest
from headrace.protocol.messages.end_txn import EndTxnRequest
from headrace.protocol.messages.init_producer_id import InitProducerIdRequest
from headrace.protocol.messages.list_transactions import ListTransactionsRequest
from headrace.protocol.messages.shared import TopicPartitions


def describe_transactions(
    transactions: Mapping[str, Transaction], message: described.DescribeTransactionsRequest
) -> described.DescribeTransactionsResponse:
    """Each transactional id that is asked for, once."""
    states = [
        _describe(transactional_id, transactions) for transactional_id in dict.fromkeys(message.transactional_ids)
    ]
    return described.DescribeTransactionsResponse(transaction_states=states)


def list_transactions(
    transactions: Mapping[str, Transaction], message: listed.ListTransactionsRequest, now_ms: int
) -> listed.ListTransactionsResponse:
    """The transactional ids that pass all filters; the shell joins those of all coordinators."""
    try:
        pattern = Expression(message.transactional_id_pattern) if message.transactional_id_pattern else None
    except InvalidExpression:
        return listed.ListTransactionsResponse(error_code=ErrorCode.INVALID_REGULAR_EXPRESSION)
    unknown = [label for label in message.state_filters if label not in STATES_BY_LABEL]
    wanted_producers = frozenset(message.producer_id_filters)
    wanted_states = {STATES_BY_LABEL[label] for label in message.state_filters if label in STATES_BY_LABEL}

    def passes(transaction: Transaction) -> bool:
        if wanted_producers and transaction.producer_id not in wanted_producers:
            return False
        if message.state_filters and transaction.state not in wanted_states:
            return False
        # One that has never begun has been open since 1969, as in Kafka.
        if message.duration_filter >= 0 and now_ms - transaction.started_ms <= message.duration_filter:
            return False
        return pattern is None or pattern.matches(transaction.transactional_id)

    return listed.ListTransactionsResponse(
        unknown_state_filters=unknown,
        transaction_states=[
            listed.TransactionState(
                transactional_id=transaction.transactional_id,
                producer_id=transaction.producer_id,
                transaction_state=transaction.state.label,
            )
            for transaction in transactions.values()
            if passes(transaction)
        ],
    )


def _describe(transactional_id: str, transactions: Mapping[str, Transaction]) -> described.TransactionState:
    if not transactional_id:
        return described.TransactionState(error_code=ErrorCode.INVALID_REQUEST)
    known = transactions.get(transactional_id)
    if known is None:
        return described.TransactionState(
            transactional_id=transactional_id, error_code=ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
        )
    return described.TransactionState(
        transactional_id=transactional_id,
        transaction_state=known.state.label,
        transaction_timeout_ms=known.timeout_ms,
        transaction_start_time_ms=known.started_ms,
        producer_id=known.producer_id,
        producer_epoch=known.producer_epoch,
        topics=[
            TopicPartitions(topic=topic, partitions=numbers) for topic, numbers in by_topic(known.partitions).items()
        ],
    )


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
                return self._decide_request(event, now_ms)
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

    def _decide_request(self, request: Request, now_ms: int) -> Decision:
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
                described = describe_transactions(self._transactions, message)
                return Decision(answers=(Answer(request.token, described),))
            case ListTransactionsRequest() as message:
                listed = list_transactions(self._transactions, message, now_ms)
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
