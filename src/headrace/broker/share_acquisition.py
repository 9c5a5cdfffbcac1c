"""What a share fetch acquires: as many records and bytes as it wants, of one partition after the other (KIP-932).

Unlike a fetch this looks at the headers of batches: what is acquired goes by offsets, a batch that begins is taken
whole unless the client wants exactly so many records (KIP-1206), and markers and aborted transactions are passed over.
Only batches with something acquired are answered. Into the records themselves it is looked only where the topic or the
group opted in (`queues/looking.py`).
"""

from collections.abc import Iterator
from time import perf_counter
from typing import TYPE_CHECKING, NamedTuple

from headrace.broker.errors import BrokerError
from headrace.broker.queues.looking import RECORDS_A_LOOK, Look
from headrace.coordinator.share.partition import Acquisition, Run, Span
from headrace.coordinator.share.records import ShareKey
from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages.share_fetch import AcquiredRecords, ShareFetchRequest
from headrace.records import headers_in
from headrace.storage.log import Log

if TYPE_CHECKING:
    from headrace.broker.runtime import Runtime

RECORD_LIMIT = 1  # the acquire mode in which there are exactly so many records
_CHUNK_BYTES = 64 * 1024
_LEAST_READ_BYTES = 4 * 1024
_RECORD_BYTES = 1024  # what a record takes, at a guess: what is read is about as much as is wanted
_LOOK_S = 0.01  # for how long records are looked into before others have their turn
_CHUNKS_A_TURN = 16  # of one partition: what is scattered over more, or not to be delivered, takes several


class _Batch(NamedTuple):
    """A batch that was read, and where its bytes are."""

    first: int
    last: int
    start: int
    end: int


class Acquired(NamedTuple):
    """What was acquired of one partition."""

    runs: list[AcquiredRecords]
    data: bytes


class Acquirer:
    """Acquires for one request, which wants no more than `left_records` and `left_bytes`, of all its partitions."""

    def __init__(self, broker: "Runtime", request: ShareFetchRequest, holder: str) -> None:
        self._broker = broker
        self._holder = holder
        self._is_exact = request.share_acquire_mode == RECORD_LIMIT
        self._batch_size = request.batch_size
        self.left_records = request.max_records
        self.left_bytes = min(request.max_bytes, broker.fetch_max_bytes)
        self.is_paused = False  # there may be more, and others have their turn before it is looked for

    @property
    def is_full(self) -> bool:
        return self.left_records <= 0 or self.left_bytes <= 0

    def acquire(self, key: ShareKey, log: Log) -> Acquired | None:
        """Acquire what is available of a partition, as much as is still wanted; None if that is nothing."""
        self.is_paused = False
        shares = self._broker.shares
        partition = shares.partition(key, log)
        if partition is None:
            return None
        look = shares.looking.at(key)
        settings = self._broker.groups.settings_of(key.group_id)  # as they are now, however long the fetch has waited
        is_committed = settings.share_isolation_level == "read_committed"
        until = perf_counter() + _LOOK_S
        acquired: list[AcquiredRecords] = []
        pieces: list[bytes] = []
        reached = -1
        for _ in range(_CHUNKS_A_TURN):
            if self.is_full or not shares.can_acquire(key, partition, self._holder):
                break
            offset = partition.next_offset()
            if offset <= reached:  # what is available here is kept back for others
                break
            reached = offset
            data, batches, spans = self._read(log, offset, look, is_committed=is_committed)
            if not spans:
                break
            wanted = Acquisition(self._holder, self.left_records, self._is_exact)
            runs = shares.acquire(key, partition, wanted, spans)
            for piece in _cut_to(data, batches, runs):
                pieces.append(piece)
                self.left_bytes -= len(piece)
            self.left_records -= sum(run.size for run in runs)
            acquired += _name_runs(runs, batches, self._batch_size)
            if look is not None and perf_counter() >= until:
                self.is_paused = True
                break
        else:
            self.is_paused = True
        return Acquired(acquired, b"".join(pieces)) if acquired else None

    def _read(
        self, log: Log, offset: int, look: Look | None, *, is_committed: bool
    ) -> tuple[bytes, list[_Batch], list[Span]]:
        """As many batches from an offset on as may be wanted, and what becomes of them and of what is between them."""
        wanted = self.left_records
        limit = min(self.left_bytes, _CHUNK_BYTES, max(_LEAST_READ_BYTES, wanted * _RECORD_BYTES))
        before = self._broker.queues.end_for_groups(log)
        try:
            found, aborted = log.read(offset, limit, committed=is_committed, before=before)
            data = found.read() if found is not None else b""
        except OSError as error:  # a disk that cannot be read fails its partition, and no other
            raise BrokerError(
                ErrorCode.KAFKA_STORAGE_ERROR, f"{log.topic_partition} cannot be read: {error.strerror}"
            ) from error
        batches: list[_Batch] = []
        spans: list[Span] = []
        starts = sorted((each.first_offset, each.producer_id) for each in aborted)
        open_aborted: set[int] = set()
        reached = offset
        looked = 0
        for position, header in headers_in(data):
            first, last = header.base_offset, header.last_offset
            if first > reached:  # compaction took what was here
                spans.append(Span(reached, first - 1, is_deliverable=False))
            while starts and starts[0][0] <= last:
                open_aborted.add(starts.pop(0)[1])
            is_aborted = header.is_transactional and header.producer_id in open_aborted
            if header.is_control:
                open_aborted.discard(header.producer_id)
            is_deliverable = not (header.is_control or is_aborted)
            batches.append(_Batch(first, last, position, position + header.size))
            if look is not None and is_deliverable:
                whole = memoryview(data)[position : position + header.size]
                spans += self._broker.shares.looking.spans_of(
                    look, log.topic_partition, header, whole, max(first, reached)
                )
                looked += spans[-1].last - max(first, reached) + 1
                if spans[-1].last < last or looked >= RECORDS_A_LOOK:
                    break
            else:
                spans.append(Span(first, last, is_deliverable))
                wanted -= last - max(first, reached) + 1 if is_deliverable else 0
                if wanted <= 0:
                    break
            reached = last + 1
        return data, batches, spans


def _cut_to(data: bytes, batches: list[_Batch], runs: list[Run]) -> Iterator[bytes]:
    """The bytes of the batches in which something was acquired, those that follow each other in one piece."""
    start = end = -1
    wanted = iter(runs)
    run = next(wanted, None)
    for batch in batches:
        while run is not None and run.last < batch.first:
            run = next(wanted, None)
        if run is None:
            break
        if run.first > batch.last:
            continue
        if batch.start != end:
            if start >= 0:
                yield data[start:end]
            start = batch.start
        end = batch.end
    if start >= 0:
        yield data[start:end]


def _name_runs(runs: list[Run], batches: list[_Batch], batch_size: int) -> list[AcquiredRecords]:
    """The runs as they are answered, in pieces of about so many records that end where batches do."""
    named = []
    for run in runs:
        first = run.first
        if batch_size > 0 and run.size > batch_size:
            for batch in batches:
                if first + batch_size - 1 <= batch.last < run.last:
                    named.append(_name_run(first, batch.last, run))
                    first = batch.last + 1
        named.append(_name_run(first, run.last, run))
    return named


def _name_run(first: int, last: int, run: Run) -> AcquiredRecords:
    return AcquiredRecords(first_offset=first, last_offset=last, delivery_count=run.deliveries)
