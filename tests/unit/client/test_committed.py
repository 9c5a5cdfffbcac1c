"""What a read-committed reader sees of a log with transactions in it."""

from headrace.client.fetch import AbortedTransaction, Fetched
from headrace.client.reader import visible_batches
from headrace.model import TopicPartition
from headrace.records import ControlType, Record, build_batch, build_marker, header_at, prefix, records_of

HERE = TopicPartition("t", 0)


def log_of(*parts):
    """A log of (producer, values) and (producer, marker), with offsets as an append would give them."""
    offset, data = 0, b""
    for producer, content in parts:
        if isinstance(content, ControlType):
            batch = build_marker(content, producer_id=producer, producer_epoch=0, coordinator_epoch=0, timestamp=1)
        else:
            batch = build_batch(
                [Record(index, 1, None, value) for index, value in enumerate(content)],
                producer_id=producer,
                producer_epoch=0 if producer >= 0 else -1,
                base_sequence=0 if producer >= 0 else -1,
                transactional=producer >= 0,
            )
        header = header_at(batch)
        data += prefix(offset, header.length, 0) + batch[16:]
        offset += header.last_offset_delta + 1
    return data, offset


def values(data, end, aborted, *, committed):
    fetched = Fetched(
        HERE, 0, end, memoryview(data), end, end, 0, tuple(AbortedTransaction(*entry) for entry in aborted)
    )
    return [record.value for _, batch in visible_batches(fetched, committed=committed) for record in records_of(batch)]


def test_aborted_records_are_left_out_and_markers_always():
    data, end = log_of(
        (1, [b"a1", b"a2"]),
        (-1, [b"plain"]),
        (2, [b"c1"]),
        (1, ControlType.ABORT),
        (2, ControlType.COMMIT),
        (1, [b"later"]),
        (1, ControlType.COMMIT),
    )
    assert values(data, end, [(1, 0)], committed=True) == [b"plain", b"c1", b"later"]
    assert values(data, end, [], committed=False) == [b"a1", b"a2", b"plain", b"c1", b"later"]


def test_one_producer_may_abort_again_and_again():
    data, end = log_of(
        (1, [b"a"]),
        (1, ControlType.ABORT),
        (1, [b"b"]),
        (1, ControlType.COMMIT),
        (1, [b"c"]),
        (1, ControlType.ABORT),
    )
    assert values(data, end, [(1, 4), (1, 0)], committed=True) == [b"b"]


def test_a_transaction_that_began_before_what_was_fetched():
    data, end = log_of((7, [b"rest"]), (7, ControlType.ABORT), (7, [b"next"]), (7, ControlType.COMMIT))
    assert values(data, end, [(7, -50)], committed=True) == [b"next"]
