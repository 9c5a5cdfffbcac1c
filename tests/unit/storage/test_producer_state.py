"""What a log knows of its producers, decision by decision."""

import pytest

from headrace.records import ControlType, Record, build_batch, build_marker, header_at
from headrace.storage.errors import (
    InvalidTransactionState,
    OutOfOrderSequence,
    StaleCoordinatorEpoch,
    StaleProducerEpoch,
    TransactionStillOpen,
)
from headrace.storage.indexes import AbortedTransaction
from headrace.storage.producer_state import BATCHES_REMEMBERED, ProducerState

LAST = 2**31 - 1


def _header(sequence, count=1, *, offset=0, pid=1, epoch=0, transactional=False, at_ms=1000):
    records = [Record(offset + n, at_ms, b"k", b"v") for n in range(count)]
    return header_at(
        build_batch(records, producer_id=pid, producer_epoch=epoch, base_sequence=sequence, transactional=transactional)
    )


def _marker(offset, *, pid=1, epoch=0, at_ms=1000):
    batch = build_marker(
        ControlType.COMMIT, producer_id=pid, producer_epoch=epoch, coordinator_epoch=0, timestamp=at_ms
    )
    return header_at(batch)._replace(base_offset=offset)


def _take(state, header):
    assert state.check(header) is None
    state.apply(header)


@pytest.fixture
def state():
    return ProducerState()


def test_sequences_must_follow_each_other(state):
    _take(state, _header(0, 5, offset=0))
    _take(state, _header(5, 2, offset=5))
    for wrong in (6, 8, 100, LAST):
        with pytest.raises(
            OutOfOrderSequence, match=rf"producer 1 sent sequence {wrong} where 7 was expected"
        ) as caught:
            state.check(_header(wrong, 3))
        assert (caught.value.producer_id, caught.value.found, caught.value.expected) == (1, wrong, 7)
    _take(state, _header(7, 1, offset=7))


def test_checking_changes_nothing(state):
    _take(state, _header(0, 5))
    before = state.producers[1].facts()
    state.check(_header(5, 1, offset=5))
    state.check(_header(0, 1, offset=5, epoch=9))
    assert state.producers[1].facts() == before


def test_a_producer_that_is_not_known_may_begin_anywhere(state):
    """Its earlier records may be gone by retention."""
    _take(state, _header(123, 2))
    _take(state, _header(125, 1, offset=2))


def test_sequences_wrap_at_two_to_the_31(state):
    _take(state, _header(LAST - 1, 2, offset=0))
    assert state.producers[1].last_sequence == LAST
    with pytest.raises(OutOfOrderSequence):
        state.check(_header(1, 1))
    _take(state, _header(0, 1, offset=2))


def test_a_batch_may_wrap_in_its_middle_and_is_recognised(state):
    wrapping = _header(LAST - 1, 4, offset=10)
    _take(state, wrapping)
    assert state.producers[1].last_sequence == 1
    seen = state.check(wrapping)
    assert (seen.base_sequence, seen.last_sequence) == (LAST - 1, 1)
    assert (seen.base_offset, seen.last_offset) == (10, 13)
    _take(state, _header(2, 1, offset=14))


def test_a_batch_that_is_sent_again_is_answered_with_its_first_place(state):
    for n in range(8):
        _take(state, _header(n * 3, 3, offset=100 + n * 3))
    for n in range(3, 8):
        seen = state.check(_header(n * 3, 3))
        assert (seen.base_offset, seen.last_offset) == (100 + n * 3, 102 + n * 3)


def test_five_batches_are_remembered(state):
    for n in range(8):
        _take(state, _header(n, offset=n))
    assert BATCHES_REMEMBERED == 5 == len(state.producers[1].batches)
    assert state.check(_header(3)).base_offset == 3
    with pytest.raises(OutOfOrderSequence):
        state.check(_header(2))


def test_half_of_a_batch_is_not_the_batch(state):
    _take(state, _header(0, 4))
    for sequence, count in ((0, 3), (1, 3), (0, 5)):
        with pytest.raises(OutOfOrderSequence):
            state.check(_header(sequence, count))


def test_an_older_epoch_is_fenced_and_a_newer_begins_at_zero(state):
    _take(state, _header(0, 2, epoch=3))
    with pytest.raises(StaleProducerEpoch, match="producer 1 has epoch 2, and epoch 3 was seen already"):
        state.check(_header(2, epoch=2))
    with pytest.raises(OutOfOrderSequence) as caught:
        state.check(_header(2, epoch=4))
    assert caught.value.expected == 0
    _take(state, _header(0, 1, offset=2, epoch=4))
    assert len(state.producers[1].batches) == 1, "the old epoch's batches are no duplicates of the new one's"
    with pytest.raises(StaleProducerEpoch):
        state.check(_header(0, 2, epoch=3))


def test_producers_do_not_mind_each_other(state):
    _take(state, _header(0, pid=1))
    _take(state, _header(0, pid=2, epoch=7))
    _take(state, _header(1, pid=1))
    assert len(state) == 2


def test_a_transaction_is_open_from_its_first_batch_to_its_marker(state):
    assert state.first_open_offset is None
    _take(state, _header(0, 2, offset=10, transactional=True))
    _take(state, _header(2, 2, offset=12, transactional=True))
    _take(state, _header(0, 2, offset=14, pid=2, transactional=True))
    assert state.first_open_offset == 10
    assert state.apply_marker(_marker(16), ControlType.COMMIT, 0) is None
    assert state.first_open_offset == 14
    state.apply_marker(_marker(17, pid=2), ControlType.COMMIT, 0)
    assert state.first_open_offset is None


def test_an_abort_tells_what_it_aborted_and_how_far_readers_may_go(state):
    _take(state, _header(0, 2, offset=10, transactional=True))
    _take(state, _header(0, 2, offset=12, pid=2, transactional=True))
    assert state.apply_marker(_marker(14, pid=2), ControlType.ABORT, 0) == AbortedTransaction(2, 12, 14, 10)
    assert state.apply_marker(_marker(15), ControlType.ABORT, 0) == AbortedTransaction(1, 10, 15, 16)
    assert state.apply_marker(_marker(16), ControlType.ABORT, 0) is None, "nothing was open"


def test_a_batch_outside_of_the_open_transaction_is_refused(state):
    _take(state, _header(0, transactional=True))
    with pytest.raises(InvalidTransactionState, match="producer 1 has an open transaction and sent a batch outside"):
        state.check(_header(1))
    state.apply_marker(_marker(1), ControlType.COMMIT, 0)
    assert state.check(_header(1)) is None


def test_the_next_transaction_cannot_write_before_the_one_before_has_its_marker(state):
    _take(state, _header(0, epoch=5, transactional=True))
    with pytest.raises(TransactionStillOpen, match="producer 1 had open in epoch 5 has not ended"):
        state.check(_header(0, epoch=6, transactional=True))
    state.apply_marker(_marker(1, epoch=6), ControlType.COMMIT, 0)
    assert state.check(_header(0, epoch=6, transactional=True)) is None


def test_markers_of_fenced_producers_and_coordinators_are_refused(state):
    _take(state, _header(0, epoch=5, transactional=True))
    state.check_marker(_marker(1, epoch=5), 3)
    state.apply_marker(_marker(1, epoch=5), ControlType.COMMIT, 3)
    with pytest.raises(StaleProducerEpoch):
        state.check_marker(_marker(2, epoch=4), 3)
    with pytest.raises(StaleCoordinatorEpoch, match="coordinator epoch 2, and 3 was seen") as caught:
        state.check_marker(_marker(2, epoch=5), 2)
    assert (caught.value.found, caught.value.current) == (2, 3)
    state.check_marker(_marker(2, epoch=5), 4)
    state.check_marker(_marker(2, pid=99), 0)


def test_a_marker_with_a_newer_epoch_fences_the_producer(state):
    """How a coordinator shuts a zombie out: it aborts with the next epoch."""
    _take(state, _header(0, 2, epoch=1, transactional=True))
    assert state.apply_marker(_marker(2, epoch=2), ControlType.ABORT, 0) == AbortedTransaction(1, 0, 2, 3)
    with pytest.raises(StaleProducerEpoch):
        state.check(_header(2, epoch=1, transactional=True))
    _take(state, _header(0, epoch=2, offset=3, transactional=True))


def test_silent_producers_are_forgotten_but_not_with_an_open_transaction(state):
    _take(state, _header(0, pid=1, at_ms=1000))
    _take(state, _header(0, pid=2, at_ms=1500))
    _take(state, _header(0, pid=3, at_ms=1000, transactional=True))
    assert state.expire(5000, 1000) == 0, "silence is counted from when somebody looked"
    _take(state, _header(1, pid=2, at_ms=1500))
    assert state.expire(5999, 1000) == 0
    assert state.expire(6000, 1000) == 1
    assert set(state.producers) == {2, 3}
    assert state.first_open_offset == 0
    assert state.expire(6999, 1000) == 1
    assert set(state.producers) == {3}
    assert state.check(_header(77, pid=1)) is None


def test_a_producer_of_old_records_is_not_silent(state):
    for sequence in range(20):
        _take(state, _header(sequence, pid=1, at_ms=1))
        assert state.expire(1_700_000_000_000 + 600 * sequence, 1000) == 0
    assert state.check(_header(19, pid=1, at_ms=1)), "sent again, it is known"
