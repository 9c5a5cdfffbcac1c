"""Aborted batches and markers that have outlived their transactions, on one walk."""

from headrace.records import ControlType, Record, build_batch, build_marker, header_at
from headrace.records.batch import assemble
from headrace.storage.compaction.retained import TransactionWalk
from headrace.storage.indexes import AbortedTransaction


def _data(offset, pid, *, transactional=True):
    return header_at(build_batch([Record(offset, 1, b"k", b"v")], producer_id=pid, transactional=transactional))


def _end(walk, kind, offset, pid):
    batch = build_marker(kind, producer_id=pid, producer_epoch=0, coordinator_epoch=0, timestamp=1)
    return walk.is_idle_marker(header_at(batch)._replace(base_offset=offset), batch)


def test_batches_of_an_aborted_transaction_are_aborted_and_no_others():
    walk = TransactionWalk([AbortedTransaction(1, 10, 14, 15)])
    assert not walk.is_aborted(_data(9, 1))
    assert walk.is_aborted(_data(10, 1))
    assert not walk.is_aborted(_data(11, 2))
    assert not walk.is_aborted(_data(12, 1, transactional=False))
    assert walk.is_aborted(_data(13, 1))
    assert not _end(walk, ControlType.ABORT, 14, 1)
    assert not walk.is_aborted(_data(15, 1)), "the same producer's next transaction"


def test_a_marker_stays_while_a_batch_of_its_transaction_does():
    aborted = AbortedTransaction(1, 10, 14, 15)
    walk = TransactionWalk([aborted])
    walk.is_aborted(_data(10, 1))
    assert not _end(walk, ControlType.ABORT, 14, 1)
    assert walk.still_needed == [aborted]
    assert _end(walk, ControlType.ABORT, 20, 1), "nothing before it any more"
    walk.is_aborted(_data(21, 1))
    assert not _end(walk, ControlType.COMMIT, 22, 1)
    assert _end(walk, ControlType.COMMIT, 23, 1)


def test_an_abort_whose_batches_are_gone_already_is_idle():
    walk = TransactionWalk([AbortedTransaction(1, 10, 14, 15)])
    assert _end(walk, ControlType.ABORT, 14, 1)
    assert walk.still_needed == []


def test_two_transactions_of_one_producer_and_two_producers():
    walk = TransactionWalk(
        [AbortedTransaction(2, 5, 9, 5), AbortedTransaction(1, 1, 3, 4), AbortedTransaction(1, 6, 8, 7)]
    )
    assert walk.is_aborted(_data(1, 1))
    assert not _end(walk, ControlType.ABORT, 3, 1)
    assert not walk.is_aborted(_data(4, 1))
    assert not _end(walk, ControlType.COMMIT, 5, 1)
    assert walk.is_aborted(_data(5, 2))
    assert walk.is_aborted(_data(6, 1))
    assert not _end(walk, ControlType.ABORT, 8, 1)
    assert not _end(walk, ControlType.ABORT, 9, 2)
    assert [entry.producer_id for entry in walk.still_needed] == [1, 1, 2]


def test_a_marker_that_was_emptied_ends_nothing():
    marker = build_marker(ControlType.COMMIT, producer_id=1, producer_epoch=0, coordinator_epoch=0, timestamp=1)
    empty = assemble(header_at(marker)._replace(record_count=0), b"")
    walk = TransactionWalk([])
    walk.is_aborted(_data(1, 1))
    assert walk.is_idle_marker(header_at(empty), empty)
    assert not _end(walk, ControlType.COMMIT, 3, 1), "the transaction is still there"
