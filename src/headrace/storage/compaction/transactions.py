"""Which batches belong to aborted transactions, and which markers have outlived theirs, while walking a log once.

A marker stays as long as any batch of its transaction does: a reader would otherwise take an aborted record for a
committed one, or wait for an end that never comes.
"""

from collections.abc import Iterable

from headrace.records import BatchHeader, Buffer, ControlType, control_type_of
from headrace.storage.transaction_index import AbortedTransaction


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
