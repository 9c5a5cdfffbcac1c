"""EndTxn: how a transaction ends, for clients that keep their epoch and for those whose epoch moves on."""

import pytest

from headrace.coordinator.decision import Timer
from headrace.coordinator.transaction.events import MarkersWritten, Request, TransactionTimeout, WriteMarkers
from headrace.coordinator.transaction.machine import ProducerIdMissing, TransactionState
from headrace.protocol.errors import ErrorCode
from tests.unit.coordinator.transaction.small_shell import A0, B0, ID, START_MS, end_request

LAST_USABLE = 32766
PREPARED = {True: TransactionState.PREPARE_COMMIT, False: TransactionState.PREPARE_ABORT}
COMPLETE = {True: TransactionState.COMPLETE_COMMIT, False: TransactionState.COMPLETE_ABORT}
EITHER_WAY = pytest.mark.parametrize("committed", [True, False], ids=["commit", "abort"])


@pytest.fixture
def producer(shell):
    return shell.init()


@EITHER_WAY
@pytest.mark.parametrize("version", range(6))
def test_an_end_is_prepared_then_completed(shell, producer, version, committed):
    shell.add(producer, A0, B0)
    shell.now_ms += 3
    epoch = 1 if version >= 5 else 0
    decision = shell.ask(Request(shell.token(), end_request(producer, committed=committed), version))

    [(_, response)] = decision.answers
    assert response.error_code == ErrorCode.NONE
    assert (response.producer_id, response.producer_epoch) == (1000, epoch)
    assert len(decision.records) == 1
    assert decision.timers == (Timer(TransactionTimeout(ID), None),)
    assert decision.effects == (
        WriteMarkers(
            transactional_id=ID,
            producer_id=1000,
            producer_epoch=epoch,
            coordinator_epoch=7,
            partitions=frozenset({A0, B0}),
            committed=committed,
            transaction_version=2 if version >= 5 else 0,
        ),
    )
    assert shell.state is PREPARED[committed]
    assert (shell.known().started_ms, shell.known().updated_ms) == (START_MS, START_MS + 3)

    shell.now_ms += 3
    decision = shell.ask(MarkersWritten(ID, 1000, epoch))
    assert (len(decision.records), decision.answers, decision.effects) == (1, (), ())
    known = shell.known()
    assert (known.state, known.partitions) == (COMPLETE[committed], frozenset())
    assert (known.producer_id, known.producer_epoch) == (1000, epoch)
    assert (known.started_ms, known.updated_ms) == (START_MS, START_MS + 6)


@EITHER_WAY
def test_an_old_client_repeats_itself_and_is_told_the_same(shell, producer, committed):
    shell.add(producer, A0)
    assert shell.end(producer, committed=committed, version=4) is ErrorCode.NONE
    for way in (True, False):
        assert shell.end(producer, committed=way, version=4) is ErrorCode.CONCURRENT_TRANSACTIONS
    shell.finish()
    records = len(shell.log)
    assert shell.end(producer, committed=committed, version=4) is ErrorCode.NONE
    assert shell.end(producer, committed=not committed, version=4) is ErrorCode.INVALID_TXN_STATE
    assert len(shell.log) == records
    assert not shell.markers


@EITHER_WAY
def test_a_new_client_repeats_itself_and_is_told_the_same(shell, producer, committed):
    shell.write_to(producer, A0)
    following = shell.end(producer, committed=committed)
    assert following == (1000, 1)
    for somebody in (producer, following, (77, 0)):
        assert shell.end(somebody, committed=committed) is ErrorCode.CONCURRENT_TRANSACTIONS
    shell.finish()
    records = len(shell.log)
    assert shell.end(producer, committed=committed) == following
    assert shell.end(producer, committed=not committed) is ErrorCode.INVALID_TXN_STATE
    assert len(shell.log) == records
    assert not shell.markers


@EITHER_WAY
def test_a_repetition_is_known_after_a_restart(shell, producer, committed):
    shell.write_to(producer, A0)
    following = shell.end(producer, committed=committed)
    shell.restart()
    assert shell.end(producer, committed=committed) is ErrorCode.CONCURRENT_TRANSACTIONS
    shell.finish()
    shell.restart()
    assert shell.end(producer, committed=committed) == following


@EITHER_WAY
def test_one_transaction_after_another_moves_the_epoch_on(shell, producer, committed):
    for epoch in range(1, 4):
        assert shell.write_to(producer, A0) == {A0: ErrorCode.NONE}
        producer = shell.end(producer, committed=committed)
        assert producer == (1000, epoch)
        shell.finish()


@EITHER_WAY
@pytest.mark.parametrize("version", range(6))
def test_who_may_not_end_it(shell, producer, version, committed):
    def end(somebody, **where):
        return shell.end(somebody, committed=committed, version=version, **where)

    fenced = ErrorCode.PRODUCER_FENCED if version >= 2 else ErrorCode.INVALID_PRODUCER_EPOCH
    shell.add(producer, A0)
    for epoch in (-1, 1, 2):
        assert end((1000, epoch)) is fenced
    assert end((1001, 0)) is ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert end(producer, transactional_id="unknown") is ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert end(producer, transactional_id="") is ErrorCode.INVALID_REQUEST
    assert shell.state is TransactionState.ONGOING


@EITHER_WAY
def test_an_old_client_cannot_end_what_has_not_begun(shell, producer, committed):
    assert shell.end(producer, committed=committed, version=4) is ErrorCode.INVALID_TXN_STATE


def test_a_new_client_can_abort_what_has_not_begun_but_not_commit_it(shell, producer):
    assert shell.end(producer, committed=True) is ErrorCode.INVALID_TXN_STATE
    shell.now_ms += 9
    following = shell.end(producer, committed=False)
    assert following == (1000, 1)
    assert (shell.state, shell.known().started_ms) == (TransactionState.PREPARE_ABORT, START_MS + 9)
    [marker] = shell.markers
    assert marker.partitions == frozenset()
    shell.finish()
    assert shell.state is TransactionState.COMPLETE_ABORT

    assert shell.end(producer, committed=False) == following, "a repetition"
    assert shell.end(following, committed=False) == (1000, 2), "the next one, of which nothing has come either"


@EITHER_WAY
def test_after_an_end_a_new_client_may_abort_the_next_one_but_not_commit_it(shell, producer, committed):
    shell.write_to(producer, A0)
    following = shell.end(producer, committed=committed)
    shell.finish()
    assert shell.end(following, committed=True) is ErrorCode.INVALID_TXN_STATE
    assert shell.end(following, committed=False) == (1000, 2)


def test_a_fenced_producer_does_not_take_the_end_of_its_successor_for_its_own(shell, producer):
    successor = shell.init()
    shell.add(successor, A0)
    shell.end(successor, committed=True, version=4)
    shell.finish()
    # The epoch is one more than that of the fenced producer, as it would be after an end of its own.
    assert shell.end(producer, committed=True) is ErrorCode.PRODUCER_FENCED


@EITHER_WAY
def test_the_last_epoch_is_followed_by_a_new_producer_id(shell, producer, committed):
    last = shell.with_epoch(LAST_USABLE)
    shell.write_to(last, A0)
    following = shell.end(last, committed=committed)
    assert following == (1001, 0)
    assert shell.known().producer_id == 1000, "until the markers are written"
    assert shell.known().next_producer_id == 1001
    assert shell.write_to(following, A0) == {A0: ErrorCode.CONCURRENT_TRANSACTIONS}
    shell.restart()
    [marker] = shell.finish()
    assert (marker.producer_id, marker.producer_epoch) == (1000, 32767)

    known = shell.known()
    assert (known.producer_id, known.producer_epoch) == following
    assert (known.previous_producer_id, known.next_producer_id) == (1000, -1)
    assert shell.end(last, committed=committed) == following
    assert shell.end(last, committed=not committed) is ErrorCode.INVALID_TXN_STATE
    assert shell.end((1000, LAST_USABLE - 1), committed=committed) is ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert shell.write_to(following, A0) == {A0: ErrorCode.NONE}
    assert shell.end(last, committed=committed) is ErrorCode.INVALID_PRODUCER_ID_MAPPING


def test_an_old_client_keeps_its_last_epoch(shell, producer):
    last = shell.with_epoch(LAST_USABLE)
    shell.add(last, A0)
    assert shell.end(last, committed=True, version=4) is ErrorCode.NONE
    shell.finish()
    assert (shell.known().producer_id, shell.known().producer_epoch) == last


def test_the_new_producer_id_has_to_come_with_the_event(shell, producer):
    last = shell.with_epoch(LAST_USABLE)
    shell.write_to(last, A0)
    event = Request(shell.token(), end_request(last, committed=True), 5)
    assert shell.coordinator.needs_producer_id(event)
    with pytest.raises(ProducerIdMissing):
        shell.coordinator.decide(event, shell.now_ms)


@pytest.mark.parametrize(
    "event",
    [
        MarkersWritten("unknown", 1000, 1),
        MarkersWritten(ID, 1001, 1),
        MarkersWritten(ID, 1000, 0),
        MarkersWritten(ID, 1000, 2),
    ],
)
def test_markers_of_something_else_complete_nothing(shell, producer, event):
    shell.write_to(producer, A0)
    shell.end(producer, committed=True)
    decision = shell.ask(event)
    assert not decision.records
    assert shell.state is TransactionState.PREPARE_COMMIT


def test_markers_that_are_written_twice_complete_it_once(shell, producer):
    shell.write_to(producer, A0)
    shell.end(producer, committed=True)
    assert len(shell.ask(MarkersWritten(ID, 1000, 1)).records) == 1
    assert not shell.ask(MarkersWritten(ID, 1000, 1)).records
