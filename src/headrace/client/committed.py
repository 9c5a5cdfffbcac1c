"""Which of the fetched batches a reader should see.

A fetch serves the log as it is: with the markers that end transactions and, even to a read-committed reader, with the
batches of transactions that were aborted. Beside them it names the aborted transactions that reach into what it serves;
leaving those out is the client's part, and the same for every Kafka client.
"""

from collections.abc import Iterator

from headrace.client.fetch import Fetched
from headrace.records import BatchHeader, ControlType, control_type_of, headers_in


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
