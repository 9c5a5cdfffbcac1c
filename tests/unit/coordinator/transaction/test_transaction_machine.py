"""Every way from one state to another: those in the table are gone, all others are refused."""

import pytest

from headrace.coordinator.transaction import machine
from headrace.coordinator.transaction.machine import LEGAL_SOURCES, IllegalTransition, Transaction, TransactionState
from headrace.model import TopicPartition

S = TransactionState
PARTITION = TopicPartition("a", 0)

# Each move, with the state that it leads to.
MOVES = {
    "initialise": (
        S.EMPTY,
        lambda known: machine.initialise(known, producer_id=5, epoch=4, last_epoch=-1, timeout_ms=9, now_ms=200),
    ),
    "add_partitions": (
        S.ONGOING,
        lambda known: machine.add_partitions(known, {PARTITION}, client_version=2, now_ms=200),
    ),
    "fence": (S.PREPARE_EPOCH_FENCE, machine.fence),
    "commit": (
        S.PREPARE_COMMIT,
        lambda known: machine.prepare(known, committed=True, client_version=2, next_producer_id=-1, now_ms=200),
    ),
    "abort": (
        S.PREPARE_ABORT,
        lambda known: machine.prepare(known, committed=False, client_version=2, next_producer_id=-1, now_ms=200),
    ),
    "expire": (S.DEAD, machine.expire),
}
LEGAL = {
    ("initialise", S.EMPTY),
    ("initialise", S.COMPLETE_COMMIT),
    ("initialise", S.COMPLETE_ABORT),
    ("add_partitions", S.EMPTY),
    ("add_partitions", S.ONGOING),
    ("add_partitions", S.COMPLETE_COMMIT),
    ("add_partitions", S.COMPLETE_ABORT),
    ("fence", S.ONGOING),
    ("commit", S.ONGOING),
    ("abort", S.ONGOING),
    ("abort", S.PREPARE_EPOCH_FENCE),
    ("abort", S.EMPTY),
    ("abort", S.COMPLETE_COMMIT),
    ("abort", S.COMPLETE_ABORT),
    ("expire", S.EMPTY),
    ("expire", S.COMPLETE_COMMIT),
    ("expire", S.COMPLETE_ABORT),
}


def _in(state, **facts):
    known = Transaction("t", producer_id=5, producer_epoch=3, timeout_ms=9, state=state, updated_ms=100, started_ms=50)
    return known._replace(**facts)


@pytest.mark.parametrize("source", S, ids=lambda state: state.name)
@pytest.mark.parametrize("move", MOVES)
def test_a_move_is_made_or_refused(move, source):
    target, make = MOVES[move]
    before = _in(source)
    if (move, source) in LEGAL:
        assert make(before).state is target
        assert source in LEGAL_SOURCES[target]
    else:
        with pytest.raises(IllegalTransition) as caught:
            make(before)
        assert (caught.value.transactional_id, caught.value.source, caught.value.target) == (
            "t",
            source.label,
            target.label,
        )


@pytest.mark.parametrize("source", S, ids=lambda state: state.name)
def test_only_what_is_prepared_is_completed_and_only_that_way(source):
    ends = {S.PREPARE_COMMIT: S.COMPLETE_COMMIT, S.PREPARE_ABORT: S.COMPLETE_ABORT}
    if source in ends:
        assert machine.complete(_in(source), 200).state is ends[source]
    else:
        with pytest.raises(IllegalTransition):
            machine.complete(_in(source), 200)


@pytest.mark.parametrize("source", [S.EMPTY, S.COMPLETE_COMMIT, S.COMPLETE_ABORT], ids=lambda state: state.name)
def test_an_abort_of_nothing_needs_an_epoch_that_moves(source):
    with pytest.raises(IllegalTransition):
        machine.prepare(_in(source), committed=False, client_version=0, next_producer_id=-1, now_ms=200)


def test_the_table_names_every_state_and_no_way_out_of_dead():
    assert set(LEGAL_SOURCES) == set(S)
    assert not any(S.DEAD in sources for sources in LEGAL_SOURCES.values())


def test_the_last_epoch_of_all_is_never_committed_and_never_passed():
    fenced = _in(S.ONGOING, producer_epoch=machine.MAX_EPOCH)
    with pytest.raises(IllegalTransition):
        machine.prepare(fenced, committed=True, client_version=2, next_producer_id=8, now_ms=200)
    aborted = machine.prepare(fenced, committed=False, client_version=2, next_producer_id=8, now_ms=200)
    assert aborted.producer_epoch == machine.MAX_EPOCH
    done = machine.complete(aborted, 201)
    assert (done.producer_id, done.producer_epoch, done.previous_producer_id) == (8, 0, 5)
