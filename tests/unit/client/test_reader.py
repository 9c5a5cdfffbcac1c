"""What a reader makes of fetched batches."""

import pytest

from headrace.client.fetch import Fetched
from headrace.client.reader import records_in
from headrace.model import TopicPartition
from headrace.records import Record, build_batch, header_at
from headrace.records.batch import assemble
from headrace.records.record import encode

ORDERS = TopicPartition("orders", 0)


@pytest.mark.parametrize("claimed", [-5, 2, 2**40, 2**63 - 1])
def test_nobody_goes_on_behind_an_offset_that_a_producer_made_up(claimed):
    """Programs that keep how far they have read keep the offset of the last record."""
    header = header_at(build_batch([Record(5 + place, 0, b"k", b"v") for place in range(2)]))
    wild = assemble(header, b"".join(encode(Record(delta, 0, b"k", b"v"), 0, 0) for delta in (0, claimed)))
    batches = wild + build_batch([Record(7, 0, b"k", b"v")])
    fetched = Fetched(ORDERS, 3, 8, memoryview(batches), 8, 8, 0)
    assert [read.record.offset for read in records_in(fetched, committed=True)] == [5, 7]
    assert [read.record.offset for read in records_in(fetched, 7, committed=True)] == [5]
