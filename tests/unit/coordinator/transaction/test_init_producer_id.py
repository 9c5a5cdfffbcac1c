"""InitProducerId: who holds a transactional id, and with which epoch."""

import pytest

from headrace.coordinator.decision import Timer
from headrace.coordinator.transaction.events import Request, TransactionTimeout, WriteMarkers
from headrace.coordinator.transaction.machine import ProducerIdMissing, TransactionState
from headrace.coordinator.transaction.records import LastEpoch
from headrace.protocol.errors import ErrorCode
from tests.unit.coordinator.transaction.small_shell import A0, B0, ID, START_MS, TIMEOUT_MS, init_request

LAST_USABLE = 32766


def test_a_new_transactional_id_gets_a_fresh_producer_id(shell):
    assert shell.init() == (1000, 0)
    known = shell.known()
    assert (known.state, known.timeout_ms, known.started_ms) == (TransactionState.EMPTY, TIMEOUT_MS, -1)
    assert (known.updated_ms, known.partitions) == (START_MS, frozenset())
    assert len(shell.log) == 1
    assert not shell.timers
    assert not shell.markers


def test_without_a_transactional_id_any_producer_gets_an_id_and_nothing_is_kept(shell):
    assert shell.init(None, timeout_ms=-5) == (1000, 0)
    assert shell.init(None) == (1001, 0)
    assert not shell.log
    assert not shell.coordinator.transactions


def test_the_next_holder_gets_the_next_epoch_and_fences_the_last(shell):
    old = shell.init()
    new = shell.init(timeout_ms=1234)
    assert (old, new) == ((1000, 0), (1000, 1))
    assert shell.known().timeout_ms == 1234
    assert shell.add(old, A0) is ErrorCode.PRODUCER_FENCED
    assert shell.end(old, committed=True) is ErrorCode.PRODUCER_FENCED
    assert shell.end(old, committed=False) is ErrorCode.PRODUCER_FENCED
    assert shell.init(producer=old) is ErrorCode.PRODUCER_FENCED
    assert shell.add(new, A0) is ErrorCode.NONE


def test_transactional_ids_are_apart(shell):
    assert shell.init("one") == (1000, 0)
    assert shell.init("two") == (1001, 0)
    assert shell.init("one") == (1000, 1)


@pytest.mark.parametrize("timeout_ms", [0, -1, 900_001, 2**31 - 1])
def test_the_timeout_has_to_be_one_that_the_broker_allows(shell, timeout_ms):
    assert shell.init(timeout_ms=timeout_ms) is ErrorCode.INVALID_TRANSACTION_TIMEOUT
    assert shell.init(timeout_ms=900_000) == (1001, 0)


@pytest.mark.parametrize("version", range(6))
def test_an_empty_transactional_id_is_no_id(shell, version):
    assert shell.init("", version=version) is ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize("producer", [(-1, 3), (1000, -1)])
def test_an_id_without_an_epoch_makes_no_sense(shell, producer):
    assert shell.init(producer=producer) is ErrorCode.INVALID_REQUEST
    assert shell.init(None, producer=producer) is ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize(
    ("version", "error"),
    [(3, ErrorCode.INVALID_PRODUCER_EPOCH), (4, ErrorCode.PRODUCER_FENCED), (5, ErrorCode.PRODUCER_FENCED)],
)
def test_an_old_client_is_told_in_old_words_that_it_was_fenced(shell, version, error):
    old = shell.init()
    shell.init()
    assert shell.init(version=version, producer=old) is error


def test_what_the_last_holder_left_open_is_aborted_first(shell):
    old = shell.init()
    shell.add(old, A0, B0)
    shell.now_ms += 5
    assert TransactionTimeout(ID) in shell.timers

    decision = shell.ask(Request(shell.token(), init_request(), 5))
    [(_, response)] = decision.answers
    assert response.error_code == ErrorCode.CONCURRENT_TRANSACTIONS
    assert decision.timers == (Timer(TransactionTimeout(ID), None),)
    assert decision.effects == (
        WriteMarkers(
            transactional_id=ID,
            producer_id=1000,
            producer_epoch=1,
            coordinator_epoch=7,
            partitions=frozenset({A0, B0}),
            committed=False,
            transaction_version=2,
        ),
    )
    assert shell.state is TransactionState.PREPARE_ABORT
    assert shell.init() is ErrorCode.CONCURRENT_TRANSACTIONS, "until the markers are written"
    assert shell.init(producer=(77, 0)) is ErrorCode.CONCURRENT_TRANSACTIONS, "whoever asks"

    shell.finish()
    assert shell.state is TransactionState.COMPLETE_ABORT
    assert shell.init() == (1000, 2)
    assert shell.add(old, A0) is ErrorCode.PRODUCER_FENCED


def test_a_producer_may_ask_for_its_own_next_epoch(shell):
    own = shell.init()
    assert shell.init(producer=own) == (1000, 1)
    assert shell.init(producer=own) == (1000, 1), "the same again if it did not hear of it"
    assert shell.init(producer=(1000, 1)) == (1000, 2)
    assert shell.init(producer=own) is ErrorCode.PRODUCER_FENCED


def test_the_epoch_before_is_not_written_as_in_kafka(shell):
    own = shell.init()
    decision = shell.ask(Request(shell.token(), init_request(producer=own), 5))
    assert [(record.key, record.value) for record in decision.records if not record.is_kept] == [(LastEpoch(ID), 0)]
    shell.restart()
    assert shell.init(producer=own) is ErrorCode.PRODUCER_FENCED


def test_a_producer_that_a_new_holder_replaced_does_not_get_another_epoch(shell):
    own = shell.init()
    shell.init(producer=own)
    shell.init()
    assert shell.init(producer=own) is ErrorCode.PRODUCER_FENCED
    assert shell.init(producer=(1000, 1)) is ErrorCode.PRODUCER_FENCED
    assert shell.init(producer=(999, 0)) is ErrorCode.PRODUCER_FENCED


def test_a_producer_whose_transactional_id_was_forgotten_starts_anew(shell):
    assert shell.init(producer=(55, 12)) == (1000, 0)


@pytest.mark.parametrize("is_own_wish", [False, True])
def test_after_the_last_epoch_comes_a_new_producer_id(shell, is_own_wish):
    shell.init()
    last = shell.with_epoch(LAST_USABLE)
    wish = {"producer": last} if is_own_wish else {}
    assert shell.init(**wish) == (1001, 0)
    assert shell.known().previous_producer_id == 1000
    assert shell.add(last, A0) is ErrorCode.INVALID_PRODUCER_ID_MAPPING
    repeated = shell.init(producer=last)
    assert repeated == ((1001, 0) if is_own_wish else ErrorCode.PRODUCER_FENCED)
    assert shell.init() == (1001, 1)


def test_the_last_epoch_is_given_again_to_who_asked_for_it(shell):
    shell.init()
    before = shell.with_epoch(LAST_USABLE - 1)
    assert shell.init(producer=before) == (1000, LAST_USABLE)
    assert shell.init(producer=before) == (1000, LAST_USABLE)
    assert shell.init(producer=(1000, 3)) is ErrorCode.PRODUCER_FENCED


def test_fencing_with_the_last_epoch_leads_to_a_new_producer_id(shell):
    shell.init()
    last = shell.with_epoch(LAST_USABLE)
    shell.add(last, A0)
    assert shell.init() is ErrorCode.CONCURRENT_TRANSACTIONS
    [marker] = shell.finish()
    assert (marker.producer_id, marker.producer_epoch) == (1000, 32767)
    assert (shell.known().producer_id, shell.known().producer_epoch) == (1001, 0)
    assert shell.init() == (1001, 1)


def test_a_producer_asks_for_its_next_epoch_after_an_end_it_did_not_hear_of(shell):
    own = shell.init()
    shell.write_to(own, A0)
    shell.end(own, committed=True)
    shell.finish()
    shell.restart()
    assert shell.init(producer=own) == (1000, 1), "the record tells the epoch before, so a restart does not matter"


def test_the_first_holder_of_an_id_that_ran_out_is_not_taken_for_the_last(shell):
    first = shell.init()
    last = shell.with_epoch(LAST_USABLE)
    assert shell.init(producer=last) == (1001, 0)
    assert shell.init(producer=first) is ErrorCode.PRODUCER_FENCED, "though the epoch is that of the new id"


@pytest.mark.parametrize("is_own_wish", [False, True])
def test_who_may_repeat_itself_after_a_transaction_that_kept_its_epoch(shell, is_own_wish):
    first = shell.init()
    second = shell.init(producer=first) if is_own_wish else shell.init()
    shell.add(second, A0)
    shell.end(second, committed=True, version=4)
    shell.finish()
    assert shell.init(producer=first) == (second if is_own_wish else ErrorCode.PRODUCER_FENCED)


def test_a_fresh_producer_id_is_wanted_only_where_one_is_needed(shell):
    def needs(message):
        return shell.coordinator.needs_producer_id(Request(shell.token(), message, 5))

    assert needs(init_request(None))
    assert needs(init_request())
    shell.init()
    assert not needs(init_request())
    shell.with_epoch(LAST_USABLE)
    assert needs(init_request())
    with pytest.raises(ProducerIdMissing) as caught:
        shell.coordinator.decide(Request(shell.token(), init_request(), 5), shell.now_ms)
    assert caught.value.transactional_id == ID
