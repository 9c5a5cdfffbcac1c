"""The broker's shell without a broker: it does what a decision asks for, and checks what always holds."""

from copy import deepcopy
from dataclasses import replace

from headrace.coordinator.decision import Decision, RequestToken
from headrace.coordinator.transaction.adding import errors_in
from headrace.coordinator.transaction.coordinator import TransactionCoordinator
from headrace.coordinator.transaction.events import (
    ExpirySweep,
    Loaded,
    MarkersWritten,
    Request,
    TimerFired,
    VerifyOrAdd,
    WriteMarkers,
    WriterSupport,
)
from headrace.coordinator.transaction.machine import TransactionConfig, TransactionState
from headrace.coordinator.transaction.records import decode, encode, records_of
from headrace.model import TopicPartition
from headrace.protocol import codec
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from headrace.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from headrace.protocol.messages.end_txn import EndTxnRequest
from headrace.protocol.messages.init_producer_id import InitProducerIdRequest

ID = "orders-writer"
START_MS = 1_700_000_000_000
TIMEOUT_MS = 60_000
A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)


def without_last_epochs(transactions):
    """What survives a restart: all but the epoch before, which Kafka does not write either."""
    return {known: transaction._replace(last_producer_epoch=-1) for known, transaction in transactions.items()}


def topics_of(partitions):
    return [AddPartitionsToTxnTopic(name=topic, partitions=[number]) for topic, number in sorted(partitions)]


def init_request(transactional_id=ID, *, producer=(-1, -1), timeout_ms=TIMEOUT_MS):
    return InitProducerIdRequest(
        transactional_id=transactional_id,
        transaction_timeout_ms=timeout_ms,
        producer_id=producer[0],
        producer_epoch=producer[1],
    )


def add_request(producer, *partitions, transactional_id=ID):
    return AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=transactional_id,
        v3_and_below_producer_id=producer[0],
        v3_and_below_producer_epoch=producer[1],
        v3_and_below_topics=topics_of(partitions),
    )


def broker_entry(producer, *partitions, transactional_id=ID, verify_only=False):
    return AddPartitionsToTxnTransaction(
        transactional_id=transactional_id,
        producer_id=producer[0],
        producer_epoch=producer[1],
        verify_only=verify_only,
        topics=topics_of(partitions),
    )


def end_request(producer, *, committed, transactional_id=ID):
    return EndTxnRequest(
        transactional_id=transactional_id, producer_id=producer[0], producer_epoch=producer[1], committed=committed
    )


class SmallShell:
    def __init__(self, config=None, *, coordinator_epoch=7):
        self.config = config or TransactionConfig()
        self.coordinator_epoch = coordinator_epoch
        self.now_ms = START_MS
        self.log = []
        self.next_producer_id = 1000
        self._next_token = 0
        self._start()

    def _start(self):
        self.coordinator = TransactionCoordinator(self.config, coordinator_epoch=self.coordinator_epoch)
        self.timers = {}
        self.markers: list[WriteMarkers] = []  # asked for, and not yet written

    def restart(self):
        """Stop as in a crash, and come back with what was written."""
        self._start()
        for key, value in self.log:
            self.coordinator.apply(decode(key, value))
        return self.ask(Loaded())

    def decide(self, event) -> Decision:
        """Decide without doing any of it."""
        if self.coordinator.needs_producer_id(event):
            event = replace(event, fresh_producer_id=self.next_producer_id)
            self.next_producer_id += 1
        before = deepcopy(vars(self.coordinator))
        decision = self.coordinator.decide(event, self.now_ms)
        assert vars(self.coordinator) == before, "deciding changed something"
        assert self.coordinator.decide(event, self.now_ms) == decision
        return decision

    def write(self, decision):
        for record in decision.records:
            if record.is_kept:
                key, value = encode(record)
                assert decode(key, value) == record
                self.log.append((key, value))
            self.coordinator.apply(record)

    def carry_out(self, decision):
        for key, at_ms in decision.timers:
            if at_ms is None:
                self.timers.pop(key, None)
            else:
                self.timers[key] = at_ms
        self.markers.extend(decision.effects)

    def ask(self, event) -> Decision:
        decision = self.decide(event)
        self.write(decision)
        self.carry_out(decision)
        self.check_replay()
        return decision

    def check_replay(self):
        again = TransactionCoordinator(self.config, coordinator_epoch=self.coordinator_epoch)
        for key, value in self.log:
            again.apply(decode(key, value))
        assert without_last_epochs(again.transactions) == without_last_epochs(self.coordinator.transactions)

    # What clients ask.

    def token(self):
        self._next_token += 1
        return RequestToken(self._next_token)

    def request(self, message, version):
        """The response; what the version cannot carry does not come back."""
        token = self.token()
        decision = self.ask(Request(token, message, version))
        [(to, response)] = decision.answers
        assert to == token
        return codec.decode(type(response), version, codec.encode(response, version))

    def init(self, transactional_id=ID, *, version=5, **what):
        """The producer id and epoch, or the error."""
        response = self.request(init_request(transactional_id, **what), version)
        if response.error_code:
            assert (response.producer_id, response.producer_epoch) == (-1, -1)
            return ErrorCode.of(response.error_code)
        return response.producer_id, response.producer_epoch

    def add(self, producer, *partitions, version=3, transactional_id=ID):
        response = self.request(add_request(producer, *partitions, transactional_id=transactional_id), version)
        results = [result for topic in response.results_by_topic_v3_and_below for result in topic.results_by_partition]
        [error] = {result.partition_error_code for result in results}
        return ErrorCode.of(error)

    def add_offsets(self, producer, group_id="a group", version=4):
        message = AddOffsetsToTxnRequest(
            transactional_id=ID, producer_id=producer[0], producer_epoch=producer[1], group_id=group_id
        )
        return ErrorCode.of(self.request(message, version).error_code)

    def write_to(self, producer, *partitions, support=WriterSupport.ADDS_PARTITIONS, transactional_id=ID):
        event = VerifyOrAdd(self.token(), transactional_id, *producer, frozenset(partitions), support)
        [(to, response)] = self.ask(event).answers
        assert to == event.token
        return errors_in(response)

    def end(self, producer, *, committed, version=5, transactional_id=ID):
        """The producer id and epoch to go on with, or the error; before version 5, the error or NONE."""
        message = end_request(producer, committed=committed, transactional_id=transactional_id)
        response = self.request(message, version)
        if version >= 5 and not response.error_code:
            return response.producer_id, response.producer_epoch
        assert (response.producer_id, response.producer_epoch) == (-1, -1)
        return ErrorCode.of(response.error_code)

    # What the shell does by itself.

    def finish(self):
        """Write all markers that are asked for."""
        markers, self.markers = self.markers, []
        for marker in markers:
            self.ask(MarkersWritten(marker.transactional_id, marker.producer_id, marker.producer_epoch))
        return markers

    def wait(self, ms):
        """Let time pass, with the timers that come due in it."""
        until_ms = self.now_ms + ms
        while due := [(at_ms, key) for key, at_ms in self.timers.items() if at_ms <= until_ms]:
            at_ms, key = min(due, key=lambda timer: timer[0])
            del self.timers[key]
            self.now_ms = max(self.now_ms, at_ms)
            self.ask(TimerFired(key))
        self.now_ms = until_ms

    def fire_expiry(self):
        return self.ask(TimerFired(ExpirySweep()))

    # What there is to see.

    def known(self, transactional_id=ID):
        return self.coordinator.transactions[transactional_id]

    @property
    def state(self) -> TransactionState:
        return self.known().state

    def with_epoch(self, epoch, transactional_id=ID):
        """As if the producer had come to this epoch."""
        self.write(Decision(records=records_of(self.known(transactional_id)._replace(producer_epoch=epoch))))
        known = self.known(transactional_id)
        return known.producer_id, known.producer_epoch
