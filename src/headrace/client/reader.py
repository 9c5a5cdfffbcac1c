"""Records, read on from a position in each of some partitions: for people, and for whoever wants few of them.

Within a partition records come in the order of their offsets. Across partitions there is no order in Kafka; what one
poll brought is merged by timestamp.
"""

import heapq
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from headrace.client.cluster import Cluster
from headrace.client.fetch import LONG_POLL, Fetched, Fetcher, FetchOptions
from headrace.model import TopicPartition
from headrace.records import (
    BatchHeader,
    ControlType,
    CorruptBatch,
    Record,
    control_type_of,
    crc_of,
    headers_in,
    records_of,
)

# Which of the fetched batches a reader should see.
#
# A fetch serves the log as it is: with the markers that end transactions and, even to a read-committed reader, with
# the batches of transactions that were aborted. Beside them it names the aborted transactions that reach into what it
# serves; leaving those out is the client's part, and the same for every Kafka client.


def visible_batches(fetched: Fetched, *, committed: bool) -> Iterator[tuple[BatchHeader, memoryview]]:
    """The batches without markers and, if `committed`, without aborted records."""
    to_come = sorted(fetched.aborted, key=lambda transaction: transaction.first_offset, reverse=True)
    aborted: set[int] = set()
    for position, header in headers_in(fetched.records):
        batch = fetched.records[position : position + header.size]
        if committed:
            while to_come and to_come[-1].first_offset <= header.last_offset:
                aborted.add(to_come.pop().producer_id)
        if header.is_control:
            marker = control_type_of(batch)
            if marker and marker[0] is ControlType.ABORT:
                aborted.discard(header.producer_id)
        elif not (header.is_transactional and header.producer_id in aborted):
            yield header, batch


class ReadRecord(NamedTuple):
    partition: TopicPartition
    record: Record


def read_records(
    cluster: Cluster,
    starts: Mapping[TopicPartition, int],
    *,
    until: Mapping[TopicPartition, int] | None = None,
    options: FetchOptions = LONG_POLL,
    ids: Mapping[str, str] | None = None,
    reached: dict[TopicPartition, int] | None = None,
) -> Iterator[list[ReadRecord]]:
    """The records from `starts` on, as they come; an empty list each time that a wait ends without news.

    `reached` is told with each list what comes next in each partition: behind the last record of the list, and behind
    whatever nobody sees (markers, aborted records) after it.

    With `until`, up to these offsets and no further; without, for ever. With `ids`, of these topics alone: another one
    under such a name is raised as `TopicReplaced`.
    """
    fetcher = Fetcher(cluster, starts, options, ids=ids)
    while True:
        for partition, position in list(fetcher.positions.items()):
            if until is not None and position >= until[partition]:
                fetcher.drop(partition)
        if not fetcher.positions:
            return
        read = [
            records_in(fetched, until[fetched.partition] if until else None, committed=options.committed)
            for fetched in fetcher.poll()
        ]
        if reached is not None:
            reached.update(fetcher.positions)
        yield list(heapq.merge(*read, key=lambda found: found.record.timestamp))


def records_in(fetched: Fetched, until: int | None = None, *, committed: bool) -> list[ReadRecord]:
    """The records that a reader should see, up to an offset."""
    found: list[ReadRecord] = []
    for header, batch in visible_batches(fetched, committed=committed):
        if crc_of(batch) != header.crc:
            raise CorruptBatch(
                f"the checksum does not match at offset {header.base_offset} of {fetched.partition}: the batch was "
                "altered on its way or on the broker's disk"
            )
        # A batch comes whole, though it may begin before what was asked for and end behind it. Its producer may have
        # given a record any offset: whoever goes on behind one that is not in the batch would leave out all others'.
        end = header.next_offset if until is None else min(until, header.next_offset)
        found.extend(
            ReadRecord(fetched.partition, record)
            for record in records_of(batch)
            if fetched.offset <= record.offset < end
        )
    return found
