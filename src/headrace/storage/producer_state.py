"""What a log knows of its producers: sequence numbers seen, epochs, and transactions that are still open.

Pure: no file, no clock. `check` refuses or recognises a batch before it is written and changes
nothing; `apply` takes a batch that is in the log, at append and at recovery alike, so that replaying the log gives the
same state. A log without idempotent producers has an empty state and pays nothing.
"""

from collections import deque
from typing import NamedTuple

from headrace.delivery.overflow import is_before
from headrace.records import BatchHeader, ControlType
from headrace.storage.errors import (
    InvalidTransactionState,
    OutOfOrderSequence,
    StaleCoordinatorEpoch,
    StaleProducerEpoch,
    TransactionStillOpen,
)
from headrace.storage.indexes import AbortedTransaction

BATCHES_REMEMBERED = 5  # what a client may have in flight, and so may send again
NO_EPOCH = -1
NO_SEQUENCE = -1
_MAX_SEQUENCE = 2**31 - 1


class SeenBatch(NamedTuple):
    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp: int

    @property
    def base_offset(self) -> int:
        """The offset that the batch was given, and is answered with again when it is sent again."""
        return self.last_offset - self.offset_delta

    @property
    def base_sequence(self) -> int:
        """The first record's sequence number; sequences wrap at 2³¹."""
        return (self.last_sequence - self.offset_delta) & _MAX_SEQUENCE


class Producer:
    """One producer id's state in one log."""

    __slots__ = ("batches", "coordinator_epoch", "epoch", "last_timestamp", "producer_id", "transaction_start")

    def __init__(self, producer_id: int, epoch: int = NO_EPOCH) -> None:
        self.producer_id = producer_id
        self.epoch = epoch
        self.batches: deque[SeenBatch] = deque(maxlen=BATCHES_REMEMBERED)
        self.coordinator_epoch = -1
        self.last_timestamp = -1
        self.transaction_start: int | None = None

    @property
    def last_sequence(self) -> int:
        """The newest sequence number, or -1 before any in this epoch."""
        return self.batches[-1].last_sequence if self.batches else NO_SEQUENCE

    @property
    def last_offset(self) -> int:
        """The newest record's offset, or -1."""
        return self.batches[-1].last_offset if self.batches else -1

    def facts(self) -> tuple[object, ...]:
        """Everything that makes two states equal."""
        return (
            self.producer_id,
            self.epoch,
            tuple(self.batches),
            self.coordinator_epoch,
            self.last_timestamp,
            self.transaction_start,
        )


class ProducerState:
    def __init__(self) -> None:
        self._producers: dict[int, Producer] = {}
        self._open: dict[int, int] = {}  # producer id: where its open transaction begins
        self._silent: dict[int, tuple[tuple[object, ...], int]] = {}  # by producer id: how it is, and since when

    def __len__(self) -> int:
        return len(self._producers)

    @property
    def producers(self) -> dict[int, Producer]:
        return self._producers

    def add(self, producer: Producer) -> None:
        self._producers[producer.producer_id] = producer
        if producer.transaction_start is not None:
            self._open[producer.producer_id] = producer.transaction_start

    # --- deciding

    def check(self, header: BatchHeader, *, allow_gaps: bool = False) -> SeenBatch | None:
        """Whether this batch may be appended: None if so, the batch in the log if it is there already, or an error.

        With `allow_gaps` sequence numbers may be missing before it: those of batches that were dropped.
        """
        producer = self._producers.get(header.producer_id)
        if producer is None:
            return None
        if header.producer_epoch < producer.epoch:
            raise StaleProducerEpoch(header.producer_id, header.producer_epoch, producer.epoch)
        if header.producer_epoch == producer.epoch:
            for seen in producer.batches:
                if seen.base_sequence == header.base_sequence and seen.last_sequence == header.last_sequence:
                    return seen
            self._check_sequence(producer, header, allow_gaps=allow_gaps)
        elif header.base_sequence > 0 and producer.epoch != NO_EPOCH and not allow_gaps:
            raise OutOfOrderSequence(header.producer_id, header.base_sequence, 0)
        if producer.transaction_start is not None:
            if not header.is_transactional:
                raise InvalidTransactionState(
                    f"producer {header.producer_id} has an open transaction and sent a batch outside of it"
                )
            if header.producer_epoch > producer.epoch:
                raise TransactionStillOpen(header.producer_id, producer.epoch)
        return None

    @staticmethod
    def _check_sequence(producer: Producer, header: BatchHeader, *, allow_gaps: bool) -> None:
        last = producer.last_sequence
        expected = 0 if last in (NO_SEQUENCE, _MAX_SEQUENCE) else last + 1
        if allow_gaps and is_before(expected, header.base_sequence):
            return
        if header.base_sequence >= 0 and header.base_sequence != expected:
            raise OutOfOrderSequence(header.producer_id, header.base_sequence, expected)

    def check_marker(self, header: BatchHeader, coordinator_epoch: int) -> None:
        """Whether a marker may be appended; raises if the coordinator or the producer was fenced."""
        producer = self._producers.get(header.producer_id)
        if producer is None:
            return
        if header.producer_epoch < producer.epoch:
            raise StaleProducerEpoch(header.producer_id, header.producer_epoch, producer.epoch)
        if coordinator_epoch < producer.coordinator_epoch:
            raise StaleCoordinatorEpoch(header.producer_id, coordinator_epoch, producer.coordinator_epoch)

    # --- applying

    def apply(self, header: BatchHeader) -> None:
        producer = self._of(header)
        if header.base_sequence != NO_SEQUENCE:
            producer.batches.append(
                SeenBatch(header.last_sequence, header.last_offset, header.last_offset_delta, header.max_timestamp)
            )
        producer.last_timestamp = header.max_timestamp
        if header.is_transactional and producer.transaction_start is None:
            producer.transaction_start = self._open[header.producer_id] = header.base_offset

    def apply_marker(self, header: BatchHeader, kind: ControlType, coordinator_epoch: int) -> AbortedTransaction | None:
        """Take in a marker that is in the log; what it aborted, if it did."""
        producer = self._of(header)
        start, producer.transaction_start = producer.transaction_start, None
        self._open.pop(header.producer_id, None)
        producer.coordinator_epoch = coordinator_epoch
        producer.last_timestamp = header.max_timestamp
        if start is None or kind is ControlType.COMMIT:
            return None
        stable = self.first_open_offset
        return AbortedTransaction(
            header.producer_id, start, header.last_offset, header.next_offset if stable is None else stable
        )

    def apply_epoch(self, header: BatchHeader) -> None:
        self._of(header)

    def _of(self, header: BatchHeader) -> Producer:
        producer = self._producers.get(header.producer_id)
        if producer is None:
            producer = self._producers[header.producer_id] = Producer(header.producer_id, header.producer_epoch)
        elif header.producer_epoch != producer.epoch:
            producer.epoch = header.producer_epoch
            producer.batches.clear()
        return producer

    @property
    def first_open_offset(self) -> int | None:
        """Where the oldest open transaction begins: readers of committed records stop there."""
        return min(self._open.values(), default=None)

    def expire(self, now_ms: int, expiration_ms: int) -> int:
        """Forget producers of which nothing has come for this long and that have nothing open; how many.

        To be asked every so often: a producer is silent since the first time that it was found as it is now. The times
        in its records do not count, since they may tell of years ago while it is at work, and what is forgotten then
        is stored twice when it is sent again.
        """
        silent: dict[int, tuple[tuple[object, ...], int]] = {}
        for producer in self._producers.values():
            if producer.transaction_start is None:
                facts = producer.facts()
                before = self._silent.get(producer.producer_id)
                silent[producer.producer_id] = before if before and before[0] == facts else (facts, now_ms)
        expired = [each for each, (_, since_ms) in silent.items() if now_ms - since_ms >= expiration_ms]
        for producer_id in expired:
            del self._producers[producer_id], silent[producer_id]
        self._silent = silent
        return len(expired)
