"""A topic read for one call.

What always holds: a record is handed on once, in the order of its partition; no more is fetched before the client has
taken what was; and after `next_offsets` of a response a client that comes back misses nothing.
"""

import threading
from collections.abc import Iterator, Sequence
from typing import Any, Final

from headrace.client.address import Address
from headrace.client.cluster import PATIENT, Cluster
from headrace.client.connection import ConnectionSettings
from headrace.client.errors import OffsetOutOfRange, UnknownPartition
from headrace.client.fetch import FetchOptions
from headrace.client.offsets import Bounds, Start, StartKind, bounds, find_stretch
from headrace.client.reader import ReadRecord, read_records
from headrace.gateways.grpc.errors import CallFailed, Code
from headrace.gateways.grpc.wire import message
from headrace.model import TopicPartition

USUAL_RECORDS: Final = 500
MOST_RECORDS: Final = 10_000
_FETCH_BYTES: Final = 2 * 1024 * 1024
_PARTITION_BYTES: Final = 512 * 1024
_WAIT_MS: Final = 250
_EARLIEST: Final = 1


def fetch_options(*, committed: bool) -> FetchOptions:
    """Little at a time, and short waits: many read at once, and each may be cancelled."""
    return FetchOptions(
        max_wait_ms=_WAIT_MS, max_bytes=_FETCH_BYTES, partition_max_bytes=_PARTITION_BYTES, committed=committed
    )


def connected(bootstrap: Sequence[Address], name: str) -> Cluster:
    """A cluster of one's own: who waits for records holds up nobody else."""
    settings = ConnectionSettings(client_id=f"headrace-gateway-{name}", connect_timeout_s=3.0, request_timeout_s=10.0)
    return Cluster(bootstrap, settings, retry=PATIENT.at_most(3))


def most_records(asked: int) -> int:
    """How many records a response may have; raises `CallFailed`."""
    if asked > MOST_RECORDS:
        raise CallFailed(Code.INVALID_ARGUMENT, f"max_records is {asked}: the greatest is {MOST_RECORDS}")
    return asked or USUAL_RECORDS


class Reading:
    """Reads for one call; its methods wait, and are called from threads, one at a time."""

    def __init__(self, bootstrap: Sequence[Address], name: str, request: Any) -> None:
        self._request = request
        self._cluster = connected(bootstrap, name)
        self._lock = threading.Lock()
        self._is_closed = False
        self._left = request.limit or None
        self._reached: dict[TopicPartition, int] = {}
        self._lists: Iterator[list[ReadRecord]] = iter(())
        self.is_over = False

    def begin(self) -> None:
        """Find out where it starts; raises `CallFailed` or a `ClientError`."""
        with self._lock:
            request, committed = self._request, not self._request.uncommitted
            ids = {request.topic: self._cluster.topic(request.topic).id_text}
            partitions = self._cluster.partitions(request.topic, list(request.partitions))
            held = bounds(self._cluster, partitions, committed=committed)
            starts = self._starts(partitions, held, committed=committed)
            until = {where: held[where].end for where in partitions} if request.until_end else None
            self._lists = read_records(
                self._cluster, starts, until=until, options=fetch_options(committed=committed), ids=ids,
                reached=self._reached,
            )  # fmt: skip

    def _starts(
        self, partitions: Sequence[TopicPartition], held: dict[TopicPartition, Bounds], *, committed: bool
    ) -> dict[TopicPartition, int]:
        request = self._request
        for index, offset in request.offsets.items():
            where = TopicPartition(request.topic, index)
            if where not in held:
                raise UnknownPartition(where, len(self._cluster.topic(request.topic).partitions))
            if not held[where].start <= offset <= held[where].end:
                raise OffsetOutOfRange(where, offset, *held[where])
        if request.HasField("from_timestamp_ms"):
            if request.from_timestamp_ms < 0:  # to Kafka these are no times, but ends of a log
                raise CallFailed(
                    Code.INVALID_ARGUMENT,
                    f"from_timestamp_ms is {request.from_timestamp_ms}: give milliseconds since 1970, or a reset",
                )
            start = Start(StartKind.TIME, request.from_timestamp_ms)
            starts = find_stretch(self._cluster, partitions, start, committed=committed).starts
        else:
            is_earliest = request.reset == _EARLIEST
            starts = {where: held[where].start if is_earliest else held[where].end for where in partitions}
        return starts | {TopicPartition(request.topic, index): offset for index, offset in request.offsets.items()}

    def poll(self) -> list[ReadRecord]:
        """What came next; nothing after a while without news, and at the end."""
        with self._lock:
            if self._is_closed:
                return []
            found = next(self._lists, None)
            if found is None:
                self.is_over = True
                return []
            if self._left is not None:
                found = found[: self._left]
                self._left -= len(found)
                self.is_over = not self._left
            return found

    def responses(self, found: Sequence[ReadRecord], message_bytes: int) -> Iterator[Any]:
        """The records as responses, none of which is too large."""
        for records in cut(found, most_records(self._request.max_records), message_bytes):
            after = {read.partition.partition: read.record.offset + 1 for read in records}
            yield message("ConsumeResponse")(records=map(record_message, records), next_offsets=after)

    def close(self) -> None:
        with self._lock:
            self._is_closed = True
            self._cluster.close()


def cut(found: Sequence[ReadRecord], most: int, message_bytes: int) -> Iterator[list[ReadRecord]]:
    """In pieces of so many records, and half of what a message may have."""
    piece: list[ReadRecord] = []
    size = 0
    for read in found:
        own = _size_of(read)
        if piece and (len(piece) == most or size + own > message_bytes // 2):
            yield piece
            piece, size = [], 0
        piece.append(read)
        size += own
    if piece:
        yield piece


def _size_of(read: ReadRecord) -> int:
    record = read.record
    headers = sum(len(header.key) * 4 + len(header.value or b"") + 16 for header in record.headers)
    return len(record.key or b"") + len(record.value or b"") + headers + len(read.partition.topic) + 64


def record_message(read: ReadRecord) -> Any:
    where, record = read
    made = message("Record")(
        topic=where.topic, partition=where.partition, offset=record.offset, timestamp_ms=record.timestamp
    )
    if record.key is not None:
        made.key = bytes(record.key)
    if record.value is not None:
        made.value = bytes(record.value)
    for header in record.headers:
        kept = made.headers.add(key=header.name)
        if header.value is not None:
            kept.value = bytes(header.value)
    return made
