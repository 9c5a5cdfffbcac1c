"""What time does by itself: transactions that stay open too long, and transactional ids that nobody uses."""

import pytest

from headrace.coordinator.decision import Decision, Timer
from headrace.coordinator.transaction.coordinator import EXPIRED_AT_ONCE
from headrace.coordinator.transaction.events import ExpirySweep, Loaded, TimerFired, TransactionTimeout
from headrace.coordinator.transaction.machine import ProducerIdMissing, TransactionConfig, TransactionState
from headrace.coordinator.transaction.records import records_of
from headrace.protocol.errors import ErrorCode
from tests.unit.coordinator.transaction.small_shell import A0, B0, ID, START_MS, TIMEOUT_MS, SmallShell

LAST_USABLE = 32766
HOUR_MS = 60 * 60 * 1000


@pytest.fixture
def prompt():
    return SmallShell(TransactionConfig(abort_timed_out_interval_ms=1))


@pytest.mark.parametrize("version", [3, 5], ids=["keeps its epoch", "moves its epoch"])
def test_a_transaction_that_is_open_too_long_is_aborted_and_its_producer_fenced(prompt, version):
    shell, producer = prompt, prompt.init()
    if version == 3:
        shell.add(producer, A0, B0)
    else:
        shell.write_to(producer, A0, B0)
    shell.wait(TIMEOUT_MS)
    assert shell.state is TransactionState.ONGOING
    shell.wait(1)
    assert shell.state is TransactionState.PREPARE_ABORT
    [marker] = shell.markers
    assert (marker.producer_epoch, marker.partitions, marker.committed) == (1, {A0, B0}, False)
    assert marker.transaction_version == 2
    assert not shell.timers

    shell.finish()
    assert shell.add(producer, A0) is ErrorCode.PRODUCER_FENCED
    assert shell.end(producer, committed=True, version=4) is ErrorCode.PRODUCER_FENCED
    assert shell.end(producer, committed=True, version=5) is ErrorCode.INVALID_TXN_STATE
    # A new client that aborts what was aborted can go on, with the epoch that has moved.
    assert shell.end(producer, committed=False, version=5) == (1000, 1)


def test_it_is_looked_at_as_often_as_the_setting_says(shell):
    producer = shell.init()
    shell.now_ms += 1
    shell.add(producer, A0)
    due_ms = START_MS + 1 + TIMEOUT_MS + 1
    assert shell.timers[TransactionTimeout(ID)] == -(-due_ms // 10_000) * 10_000
    assert shell.timers[TransactionTimeout(ID)] - due_ms < 10_000


def test_a_timer_that_comes_early_is_set_again(prompt):
    producer = prompt.init()
    prompt.add(producer, A0)
    prompt.now_ms += TIMEOUT_MS
    decision = prompt.ask(TimerFired(TransactionTimeout(ID)))
    assert decision.timers == (Timer(TransactionTimeout(ID), START_MS + TIMEOUT_MS + 1),)
    assert not decision.records


def test_a_timer_that_comes_late_finds_nothing_to_do(prompt):
    assert prompt.ask(TimerFired(TransactionTimeout("unknown"))).timers == ()
    producer = prompt.init()
    prompt.write_to(producer, A0)
    prompt.end(producer, committed=True)
    prompt.now_ms += 10 * TIMEOUT_MS
    for _ in range(2):
        decision = prompt.ask(TimerFired(TransactionTimeout(ID)))
        assert (decision.records, decision.timers, decision.effects) == ((), (), ())
        prompt.finish()


def test_the_time_of_a_transaction_starts_with_its_own_first_partition(prompt):
    producer = prompt.init()
    prompt.write_to(producer, A0)
    prompt.wait(TIMEOUT_MS - 10)
    producer = prompt.end(producer, committed=True)
    prompt.finish()
    prompt.write_to(producer, A0)
    prompt.wait(TIMEOUT_MS)
    assert prompt.state is TransactionState.ONGOING
    prompt.wait(1)
    assert prompt.state is TransactionState.PREPARE_ABORT


def test_a_timeout_with_the_last_epoch_leads_to_a_new_producer_id(prompt):
    prompt.init()
    last = prompt.with_epoch(LAST_USABLE)
    prompt.write_to(last, A0)
    prompt.now_ms += TIMEOUT_MS + 1
    with pytest.raises(ProducerIdMissing):
        prompt.coordinator.decide(TimerFired(TransactionTimeout(ID)), prompt.now_ms)
    prompt.wait(0)
    [marker] = prompt.finish()
    assert (marker.producer_id, marker.producer_epoch) == (1000, 32767)
    assert prompt.end(last, committed=False) == (1001, 0)


def test_what_nobody_uses_is_forgotten(shell):
    shell.ask(Loaded())
    assert shell.timers == {ExpirySweep(): START_MS + HOUR_MS}
    shell.init("idle")
    done = shell.init("done")
    shell.write_to(done, A0, transactional_id="done")
    shell.end(done, committed=True, transactional_id="done")
    shell.finish()
    gone_ms = shell.config.id_expiration_ms

    shell.wait(gone_ms - HOUR_MS)
    used = shell.init("used")
    shell.now_ms = START_MS + gone_ms - 1
    assert not shell.fire_expiry().records
    shell.now_ms += 1
    decision = shell.fire_expiry()
    assert sorted(record.key.transactional_id for record in decision.records) == ["done", "idle"]
    assert all(record.value is None for record in decision.records)
    assert decision.timers == (Timer(ExpirySweep(), shell.now_ms + HOUR_MS),)
    assert set(shell.coordinator.transactions) == {"used"}

    assert shell.write_to(done, A0, transactional_id="done") == {A0: ErrorCode.INVALID_PRODUCER_ID_MAPPING}
    assert shell.init("done", producer=done) == (1003, 0)
    assert shell.write_to(used, A0, transactional_id="used") == {A0: ErrorCode.NONE}


@pytest.mark.parametrize("is_prepared", [False, True])
def test_what_is_open_is_not_forgotten(shell, is_prepared):
    producer = shell.init()
    shell.write_to(producer, A0)
    if is_prepared:
        shell.end(producer, committed=True)
    shell.now_ms += 2 * shell.config.id_expiration_ms
    assert not shell.fire_expiry().records


def test_many_are_forgotten_in_turns(shell):
    shell.init()
    idle = [shell.known()._replace(transactional_id=f"idle-{number}") for number in range(EXPIRED_AT_ONCE)]
    shell.write(Decision(records=tuple(record for known in idle for record in records_of(known))))
    shell.now_ms += shell.config.id_expiration_ms
    decision = shell.fire_expiry()
    assert len(decision.records) == EXPIRED_AT_ONCE
    assert decision.timers == (Timer(ExpirySweep(), shell.now_ms),), "at once again"
    shell.wait(0)
    assert not shell.coordinator.transactions
    assert shell.timers == {ExpirySweep(): shell.now_ms + HOUR_MS}
