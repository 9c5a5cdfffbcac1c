"""What remains of one batch. Pure: a batch in, the same, a smaller one, or nothing out.

A batch keeps its first and last offset and its sequence numbers however few of its records remain, so offsets and
duplicate detection are what they were. A batch with all its records is passed on byte for byte.
"""

from collections.abc import Collection, Iterable, Mapping
from hashlib import blake2b
from typing import NamedTuple, Protocol

from headrace.records import BatchHeader, BodyTooLarge, Buffer, ControlType, RecordsError, compress, control_type_of
from headrace.records.batch import CODEC_MASK, DELETE_HORIZON, assemble
from headrace.records.compression import MAX_BODY_BYTES
from headrace.records.record import body_of, decode, encode, walk
from headrace.storage.indexes import AbortedTransaction

_KEPT_WHOLE = 32  # bytes; a longer key stands as a digest that is longer than any key kept whole, so none collides


class Selected(NamedTuple):
    """The records of a batch that remain."""

    kept: int
    body: bytes
    latest_delta: int  # the largest of their timestamps
    has_tombstone: bool  # among those that the map decides about


class LatestOffsets(Protocol):
    """Keys to offsets, of bounded size: a pass cleans as far as the map reaches, and the next one goes on.

    `OffsetMap` is the one that needs nothing but Python, and the measure of the other (`columnar.py`).
    """

    latest_offset: int  # everything up to here is in the map

    @property
    def is_full(self) -> bool:
        """Whether the next batch must wait for the next pass."""
        ...

    def note(self, header: BatchHeader, body: bytes) -> None:
        """Note the keys of a batch, which is behind all noted before."""
        ...

    def supersedes(self, header: BatchHeader) -> bool:
        """Whether it is known without a look at its records that nothing remains of a batch."""
        ...

    def select(self, header: BatchHeader, body: bytes, *, drops_tombstones: bool) -> Selected:
        """What remains of a batch; what is behind `latest_offset` remains whole."""
        ...


class OffsetMap:
    """A dictionary of keys."""

    def __init__(self, max_keys: int) -> None:
        self._max_keys = max_keys
        self._offsets: dict[bytes, int] = {}
        self.latest_offset = -1

    def __len__(self) -> int:
        return len(self._offsets)

    @property
    def is_full(self) -> bool:
        return len(self._offsets) >= self._max_keys

    def note(self, header: BatchHeader, body: bytes) -> None:
        for raw in walk(body, header.record_count):
            if raw.key_size >= 0:
                self.put(body[raw.key_at : raw.key_at + raw.key_size], header.base_offset + raw.offset_delta)

    def supersedes(self, header: BatchHeader) -> bool:  # noqa: ARG002 - it never is
        return False

    def select(self, header: BatchHeader, body: bytes, *, drops_tombstones: bool) -> Selected:
        kept = []
        has_tombstone = False
        for raw in walk(body, header.record_count):
            offset = header.base_offset + raw.offset_delta
            if offset <= self.latest_offset:
                if raw.key_size < 0:  # from before the topic was compacted; there is nothing to keep it for
                    continue
                if self.is_superseded(body[raw.key_at : raw.key_at + raw.key_size], offset):
                    continue
                if raw.value_size < 0:
                    if drops_tombstones:
                        continue
                    has_tombstone = True
            kept.append(raw)
        smaller = body if len(kept) == header.record_count else b"".join([body[raw.start : raw.end] for raw in kept])
        return Selected(len(kept), smaller, max((raw.timestamp_delta for raw in kept), default=0), has_tombstone)

    def put(self, key: bytes, offset: int) -> None:
        """Note that `key` was written at `offset`, behind all noted before."""
        self._offsets[key if len(key) <= _KEPT_WHOLE else _digest(key)] = offset

    def is_superseded(self, key: bytes, offset: int) -> bool:
        return self._offsets.get(key if len(key) <= _KEPT_WHOLE else _digest(key), -1) > offset


def _digest(key: bytes) -> bytes:
    return blake2b(key, digest_size=_KEPT_WHOLE + 1).digest()


# Which batches belong to aborted transactions, and which markers have outlived theirs, while walking a log once.
#
# A marker stays as long as any batch of its transaction does: a reader would otherwise take an aborted record for a
# committed one, or wait for an end that never comes.


class TransactionWalk:
    """The transactions open at the point that the walk has reached."""

    def __init__(self, aborted: Iterable[AbortedTransaction]) -> None:
        self._coming = sorted(aborted, key=lambda entry: entry.first_offset, reverse=True)
        self._aborted: dict[int, AbortedTransaction] = {}
        self._aborted_seen: set[int] = set()
        self._committed: set[int] = set()
        self.still_needed: list[AbortedTransaction] = []  # what the cleaned segment's index has to name

    def is_aborted(self, header: BatchHeader) -> bool:
        """Take in a data batch: whether it was rolled back and can go."""
        self._advance(header)
        if not header.is_transactional:
            return False
        if header.producer_id in self._aborted:
            self._aborted_seen.add(header.producer_id)
            return True
        self._committed.add(header.producer_id)
        return False

    def is_idle_marker(self, header: BatchHeader, batch: Buffer) -> bool:
        """Take in a control batch: whether no batch of its transaction is left in front of it."""
        self._advance(header)
        # A marker whose record was removed earlier and that only stands for its producer's epoch ends nothing.
        marker = control_type_of(batch) if header.record_count else None
        if marker is None:
            return not header.record_count
        if marker[0] is ControlType.COMMIT:
            idle = header.producer_id not in self._committed
            self._committed.discard(header.producer_id)
            return idle
        aborted = self._aborted.pop(header.producer_id, None)
        if aborted and header.producer_id in self._aborted_seen:
            self._aborted_seen.discard(header.producer_id)
            self.still_needed.append(aborted)
            return False
        return True

    def _advance(self, header: BatchHeader) -> None:
        while self._coming and self._coming[-1].first_offset <= header.last_offset:
            aborted = self._coming.pop()
            if aborted.last_offset >= header.base_offset:  # else its end was before the walk began
                self._aborted[aborted.producer_id] = aborted


class LastRecord(NamedTuple):
    """What must stay of a producer for its state to survive: its last batch, or its last marker's epoch."""

    last_offset: int
    epoch: int


class BatchFilter:
    def __init__(
        self,
        offsets: LatestOffsets,
        transactions: TransactionWalk,
        producers: Mapping[int, LastRecord],
        *,
        end_offset: int,
        delete_retention_ms: int,
        now_ms: int,
        file_ends: Collection[int] = (),
    ) -> None:
        self._offsets = offsets
        self._transactions = transactions
        self._producers = producers
        self._ends = frozenset((end_offset, *file_ends))
        self._new_horizon_ms = now_ms + delete_retention_ms
        self._now_ms = now_ms

    def retain(self, header: BatchHeader, batch: Buffer) -> Buffer | None:
        """What to write in the batch's place; None for nothing."""
        if header.is_control:
            is_idle = self._transactions.is_idle_marker(header, batch)
            if not is_idle:
                return batch
            if header.record_count and header.delete_horizon_ms is None:
                return self._with_horizon(header, body_of(batch, header))
            if header.record_count and not self._is_past(header):
                return batch
            return self._remainder(header)
        if self._transactions.is_aborted(header):
            return self._remainder(header)
        return self._retained_data(header, batch)

    def _retained_data(self, header: BatchHeader, batch: Buffer) -> Buffer | None:
        if self._offsets.supersedes(header):
            return self._remainder(header)
        try:
            body = body_of(batch, header, MAX_BODY_BYTES)
        except BodyTooLarge:
            return batch
        selected = self._offsets.select(header, body, drops_tombstones=self._is_past(header))
        if not selected.kept:
            return self._remainder(header)
        needs_horizon = selected.has_tombstone and header.delete_horizon_ms is None
        if selected.kept == header.record_count and not needs_horizon:
            return batch
        latest = selected.latest_delta + header.base_timestamp
        header = header._replace(
            record_count=selected.kept, max_timestamp=header.max_timestamp if header.is_log_append_time else latest
        )
        try:
            if needs_horizon:
                return self._with_horizon(header, selected.body)
            return assemble(header, compress(header.codec, selected.body))
        except RecordsError:  # times beyond 64 bits, or headers that are none: the rest of the log is compacted
            return batch

    def _is_past(self, header: BatchHeader) -> bool:
        horizon = header.delete_horizon_ms
        return horizon is not None and horizon <= self._now_ms

    def _with_horizon(self, header: BatchHeader, body: bytes) -> bytes:
        """The same records with the time from which tombstones or marker may go (KIP-534).

        The horizon takes the place of the base timestamp, so the records' own are written anew relative to it.
        """
        marked = header._replace(attributes=header.attributes | DELETE_HORIZON, base_timestamp=self._new_horizon_ms)
        records = decode(header, body)
        moved = b"".join([encode(record, header.base_offset, self._new_horizon_ms) for record in records])
        return assemble(marked, compress(header.codec, moved))

    def _remainder(self, header: BatchHeader) -> bytes | None:
        """An empty batch where its producer's state would be lost without it, or where a file ends.

        A file that says up to where it reaches leaves no hole before the next one, and after a crash it is known which
        files it stands for (`log_loader`).
        """
        last = self._producers.get(header.producer_id) if header.producer_id >= 0 else None
        if last and last.last_offset >= 0:
            is_last_of_producer = last.last_offset == header.last_offset
        else:
            is_last_of_producer = last is not None and header.is_control and last.epoch == header.producer_epoch
        if not is_last_of_producer and header.next_offset not in self._ends:
            return None
        empty = header._replace(
            record_count=0, attributes=header.attributes & ~(CODEC_MASK | DELETE_HORIZON), base_timestamp=-1
        )
        return assemble(empty, b"")
