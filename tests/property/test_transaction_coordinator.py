"""Two producers share a transactional id, requests are repeated at any time, answers get lost, the broker crashes.

Whatever happens, in whatever order: a transaction ends once and one way, over all of its partitions; once a producer
has taken over nothing older succeeds; and an end that was promised is completed by markers that say the same.
"""

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from headrace.coordinator.transaction.adding import errors_in
from headrace.coordinator.transaction.events import (
    Loaded,
    MarkersWritten,
    Request,
    TransactionTimeout,
    VerifyOrAdd,
    WriterSupport,
)
from headrace.coordinator.transaction.machine import TransactionConfig, TransactionState
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest
from headrace.protocol.messages.end_txn import EndTxnRequest
from headrace.protocol.messages.init_producer_id import InitProducerIdRequest
from tests.property.storage_model import examples
from tests.unit.coordinator.transaction.small_shell import (
    A0,
    A1,
    B0,
    ID,
    TIMEOUT_MS,
    SmallShell,
    add_request,
    end_request,
    init_request,
)

S = TransactionState
NOT_YET = (-1, -1)

names = st.sampled_from(["one", "other"])
fates = st.sampled_from(["answered"] * 9 + ["answer lost", "crash before the write", "crash after the write"])
partitions = st.sets(st.sampled_from([A0, A1, B0]), min_size=1)
indexes = st.integers(0, 1000)


class ModelledShell(SmallShell):
    """A shell that knows how it has to be."""

    def __init__(self):
        self.open = set()  # the partitions of the open transaction
        self.pending = None  # the markers of the end that is decided and not complete
        self.last_end = None  # the way the last transaction ended
        self.holder = NOT_YET  # what the last producer that took over was given
        self.asked_with = NOT_YET  # what it had before, if it named that
        self.cut_off = set()  # with which ids and epochs a transaction was open that the broker itself ended
        super().__init__(TransactionConfig(abort_timed_out_interval_ms=1000))

    def write(self, decision):
        before = self.coordinator.transactions.get(ID)
        self.before = before and (before.producer_id, before.producer_epoch)
        super().write(decision)

    def ask(self, event):
        decision = super().ask(event)
        self.observe(event, decision)
        return decision

    def observe(self, event, decision):
        """What was written of a decision must fit to all that was written before."""
        self._observe_end(event, decision)
        for answer in decision.answers:
            message = event if isinstance(event, VerifyOrAdd) else event.message
            self._observe_answer(message, answer.response)
        states = {True: {S.PREPARE_COMMIT, S.PREPARE_ABORT}, False: {S.EMPTY, S.COMPLETE_COMMIT, S.COMPLETE_ABORT}}
        if ID in self.coordinator.transactions:
            expected = {S.ONGOING} if self.open else states[self.pending is not None]
            assert self.state in expected
            assert self.pending is not None or self.known().partitions == self.open

    def _observe_end(self, event, decision):
        if isinstance(event, Loaded):
            assert list(decision.effects) == ([] if self.pending is None else [self.pending])
        elif decision.effects:
            [marker] = decision.effects
            assert self.pending is None, "an end is decided while another one is being written"
            assert marker.partitions == self.open
            assert marker.coordinator_epoch == self.coordinator_epoch
            self.pending, self.last_end, self.open = marker, marker.committed, set()
            if not (isinstance(event, Request) and isinstance(event.message, EndTxnRequest)):
                self.cut_off.add(self.before)
        elif isinstance(event, MarkersWritten) and decision.records:
            marker = self.pending
            assert (event.producer_id, event.producer_epoch) == (marker.producer_id, marker.producer_epoch)
            assert self.state is (S.COMPLETE_COMMIT if marker.committed else S.COMPLETE_ABORT)
            self.pending = None

    def _observe_answer(self, message, response):
        if isinstance(message, InitProducerIdRequest):
            if response.error_code == ErrorCode.NONE:
                self._observe_holder(message, (response.producer_id, response.producer_epoch))
        elif isinstance(message, EndTxnRequest):
            if response.error_code == ErrorCode.NONE:
                self._must_not_be_fenced(message.producer_id, message.producer_epoch)
                assert message.committed is self.last_end, "an end is promised that was decided the other way"
        elif isinstance(message, AddPartitionsToTxnRequest):
            results = [one for topic in response.results_by_topic_v3_and_below for one in topic.results_by_partition]
            if {one.partition_error_code for one in results} == {0}:
                self._may_write(message.v3_and_below_producer_id, message.v3_and_below_producer_epoch)
                named = message.v3_and_below_topics
                self.open |= {(topic.name, number) for topic in named for number in topic.partitions}
        elif set(errors_in(response).values()) == {ErrorCode.NONE}:
            self._may_write(message.producer_id, message.producer_epoch)
            if message.support is WriterSupport.ADDS_PARTITIONS:
                self.open |= message.partitions
            assert message.partitions <= self.open

    def _observe_holder(self, message, given):
        named = (message.producer_id, message.producer_epoch)
        assert not self.open
        assert self.pending is None
        if named != NOT_YET and named < self.holder:
            assert (named, given) == (self.asked_with, self.holder), "more than a repetition is answered"
        else:
            assert given > self.holder, "a holder is given what somebody had before"
            self.holder, self.asked_with = given, named

    def _must_not_be_fenced(self, producer_id, epoch):
        assert (producer_id, epoch) >= self.holder, "a producer that was replaced succeeds"

    def _may_write(self, producer_id, epoch):
        self._must_not_be_fenced(producer_id, epoch)
        assert (producer_id, epoch) not in self.cut_off, "half a transaction is taken for a whole one"


class TransactionsMachine(RuleBasedStateMachine):
    @initialize(
        speaks=st.fixed_dictionaries({"one": st.booleans(), "other": st.booleans()}),
        epoch=st.sampled_from([0, 0, 32763, 32764, 32765]),
    )
    def begin(self, speaks, epoch):
        self.shell = ModelledShell()
        self.speaks_new = speaks
        self.sent = []
        self.markers_written = []
        self.shell.init()
        # Both have been here: the other one first, and the one took over from it.
        other = self.shell.with_epoch(epoch)
        self.held = {"other": other, "one": self.shell.init()}

    def _send(self, event, fate):
        """The response, if it arrives."""
        self.sent.append(event)
        return self._deliver(event, fate)

    def _deliver(self, event, fate):
        if fate in ("answered", "answer lost"):
            [answer] = self.shell.ask(event).answers
            return answer.response if fate == "answered" else None
        decision = self.shell.decide(event)
        if fate == "crash after the write":
            self.shell.write(decision)
            self.shell.observe(event, decision)
        self.shell.restart()
        return None

    def _request(self, message, version, fate):
        return self._send(Request(self.shell.token(), message, version), fate)

    def _write_to(self, name, wanted, support, fate):
        self._send(VerifyOrAdd(self.shell.token(), ID, *self.held[name], frozenset(wanted), support), fate)

    @rule(name=names, is_own_wish=st.booleans(), fate=fates)
    def initialise(self, name, is_own_wish, fate):
        message = init_request(producer=self.held[name] if is_own_wish else NOT_YET)
        response = self._request(message, 5, fate)
        if response is not None and not response.error_code:
            self.held[name] = (response.producer_id, response.producer_epoch)

    @rule(name=names, wanted=partitions, fate=fates)
    def add(self, name, wanted, fate):
        if self.speaks_new[name]:
            self._write_to(name, wanted, WriterSupport.ADDS_PARTITIONS, fate)
        else:
            self._request(add_request(self.held[name], *wanted), 3, fate)

    @rule(name=names, committed=st.booleans(), fate=fates)
    def end(self, name, committed, fate):
        version = 5 if self.speaks_new[name] else 4
        response = self._request(end_request(self.held[name], committed=committed), version, fate)
        if response is not None and not response.error_code and version == 5:
            self.held[name] = (response.producer_id, response.producer_epoch)

    @rule(name=names, committed=st.booleans(), first=partitions, then=partitions)
    def transact(self, name, committed, first, then):
        """All that belongs to a transaction, without a mishap; after a mishap it comes in pieces, as above."""
        self.add(name, first, "answered")
        self.add(name, then, "answered")
        self.end(name, committed, "answered")
        self.write_markers(crashes=False)

    @precondition(lambda self: self.sent)
    @rule(index=st.one_of(st.integers(0, 3), indexes), fate=fates)
    def repeat(self, index, fate):
        self._deliver(self.sent[-1 - index % len(self.sent)], fate)

    @precondition(lambda self: self.shell.markers)
    @rule(crashes=st.sampled_from([False, False, True]))
    def write_markers(self, crashes):
        self.markers_written.extend(self.shell.markers)
        if crashes:  # before the coordinator hears of it
            self.shell.restart()
        else:
            self.shell.finish()

    @precondition(lambda self: self.markers_written)
    @rule(index=indexes)
    def hear_again_of_markers(self, index):
        marker = self.markers_written[index % len(self.markers_written)]
        self.shell.ask(MarkersWritten(ID, marker.producer_id, marker.producer_epoch))

    @precondition(lambda self: self.shell.open)
    @rule(ms=st.sampled_from([500, TIMEOUT_MS, TIMEOUT_MS + 1000]))
    def wait(self, ms):
        self.shell.wait(ms)

    @precondition(lambda self: self.shell.open)
    @rule(name=names, wanted=partitions)
    def verify(self, name, wanted):
        self._write_to(name, wanted, WriterSupport.ABORTABLE_ERROR, "answered")

    @rule()
    def crash(self):
        self.shell.restart()

    @invariant()
    def what_is_open_will_time_out(self):
        assert (TransactionTimeout(ID) in self.shell.timers) == bool(self.shell.open)

    def teardown(self):
        if not hasattr(self, "shell"):
            return
        shell = self.shell
        shell.restart()
        shell.finish()
        assert shell.pending is None, "an end that was decided is not complete"
        given = [given for _ in range(2) if isinstance(given := (shell.init(), shell.finish())[0], tuple)]
        assert given, "nobody can take over"
        assert shell.write_to(given[-1], A0) == {A0: ErrorCode.NONE}
        following = shell.end(given[-1], committed=True)
        assert following > given[-1]
        [marker] = shell.finish()
        assert marker.committed
        assert shell.write_to(following, B0) == {B0: ErrorCode.NONE}


TransactionsMachine.TestCase.settings = examples(150, stateful_step_count=40)
TestTransactions = TransactionsMachine.TestCase
