"""Restarts: what was decided is finished, and nothing is decided anew."""

import pytest

from headrace.coordinator.decision import Timer
from headrace.coordinator.transaction.events import ExpirySweep, Loaded, TransactionTimeout
from headrace.coordinator.transaction.machine import TransactionState
from headrace.protocol.errors import ErrorCode
from tests.unit.coordinator.transaction.small_shell import A0, B0, ID, START_MS, TIMEOUT_MS

EXPIRY = Timer(ExpirySweep(), START_MS + 60 * 60 * 1000)


def test_a_coordinator_that_knows_nothing_starts_its_sweep(shell):
    decision = shell.ask(Loaded())
    assert (decision.answers, decision.records, decision.effects) == ((), (), ())
    assert decision.timers == (EXPIRY,)


@pytest.mark.parametrize("version", [4, 5])
@pytest.mark.parametrize("committed", [True, False], ids=["commit", "abort"])
def test_what_was_prepared_is_finished_the_same_way(shell, committed, version):
    producer = shell.init()
    shell.add(producer, A0, B0)
    shell.end(producer, committed=committed, version=version)
    asked_for = list(shell.markers)
    for _ in range(2):  # a crash in the middle of finishing is finished as well
        decision = shell.restart()
        assert decision.effects == tuple(asked_for)
        assert decision.timers == (EXPIRY,)
        assert not decision.records
    shell.finish()
    assert shell.restart().effects == ()
    ends = {True: TransactionState.COMPLETE_COMMIT, False: TransactionState.COMPLETE_ABORT}
    assert shell.state is ends[committed]


def test_what_was_open_stays_open_and_its_time_goes_on(shell):
    producer = shell.init()
    shell.add(producer, A0)
    before = shell.known()
    shell.now_ms += TIMEOUT_MS // 2
    decision = shell.restart()
    assert shell.known() == before
    assert decision.effects == ()
    assert Timer(TransactionTimeout(ID), START_MS + TIMEOUT_MS + 10_000) in decision.timers
    assert shell.add(producer, B0) is ErrorCode.NONE
    shell.wait(TIMEOUT_MS)
    assert shell.state is TransactionState.PREPARE_ABORT


def test_a_transaction_that_timed_out_while_the_broker_was_down_is_aborted(shell):
    producer = shell.init()
    shell.add(producer, A0)
    shell.now_ms += 10 * TIMEOUT_MS
    shell.restart()
    assert shell.state is TransactionState.ONGOING, "time-outs are found by timers alone"
    shell.wait(0)
    assert shell.state is TransactionState.PREPARE_ABORT


def test_fencing_is_not_undone_by_a_restart(shell):
    old = shell.init()
    shell.add(old, A0)
    shell.init()
    shell.restart()
    assert shell.init() is ErrorCode.CONCURRENT_TRANSACTIONS
    shell.finish()
    new = shell.init()
    shell.restart()
    assert shell.add(old, A0) is ErrorCode.PRODUCER_FENCED
    assert shell.add(new, A0) is ErrorCode.NONE


def test_a_decision_that_is_not_written_leaves_no_trace(shell):
    producer = shell.init()
    shell.add(producer, A0)
    before = dict(shell.coordinator.transactions)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(shell, "write", lambda decision: None)
        patch.setattr(shell, "carry_out", lambda decision: None)
        shell.end(producer, committed=True)
    assert dict(shell.coordinator.transactions) == before
    assert shell.end(producer, committed=True) == (1000, 1)


def test_what_is_forgotten_stays_forgotten(shell):
    shell.init()
    shell.now_ms += shell.config.id_expiration_ms
    shell.fire_expiry()
    shell.restart()
    assert not shell.coordinator.transactions
