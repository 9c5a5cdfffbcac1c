"""The transaction coordinator: who holds a transactional id, what is open under it, and how that ends (KIP-98).

`coordinator.py` is the way in. The shell asks it with an event of `events.py`, writes the decision's records with
`records.encode`, applies them, and carries out `WriteMarkers`; a transactional id's partition is `partition_for`.
"""

from headrace.coordinator.transaction.adding import errors_in
from headrace.coordinator.transaction.coordinator import TransactionCoordinator
from headrace.coordinator.transaction.events import (
    Event,
    ExpirySweep,
    Loaded,
    MarkersWritten,
    Request,
    TimerFired,
    TransactionTimeout,
    VerifyOrAdd,
    WriteMarkers,
    WriterSupport,
)
from headrace.coordinator.transaction.machine import Transaction, TransactionConfig, TransactionState
from headrace.coordinator.transaction.records import java_hash, partition_for

__all__ = [
    "Event",
    "ExpirySweep",
    "Loaded",
    "MarkersWritten",
    "Request",
    "TimerFired",
    "Transaction",
    "TransactionConfig",
    "TransactionCoordinator",
    "TransactionState",
    "TransactionTimeout",
    "VerifyOrAdd",
    "WriteMarkers",
    "WriterSupport",
    "errors_in",
    "java_hash",
    "partition_for",
]
