"""The driver's record of which batch is to be committed: a compacted topic, a query's latest decision under its id."""

import json
from dataclasses import dataclass
from typing import NamedTuple

from headrace.client.cluster import Cluster
from headrace.client.transactions import Transaction
from headrace.stores.compacted_topic import CompactedTopic

_FORMAT = 1


class Part(NamedTuple):
    """What one task has written: in which transaction, and by what its rows are known again."""

    transaction: Transaction
    slot: int = -1  # which task of the batch; -1 in a decision of an earlier version
    rows: int = -1
    checksum: str = ""


@dataclass(frozen=True, slots=True)
class Decision:
    """That these parts, and no others, make up a batch's results."""

    query: str
    batch: int
    parts: tuple[Part, ...]

    def encoded(self) -> bytes:
        transactions = [part.transaction for part in self.parts]
        written = [(part.slot, part.rows, part.checksum) for part in self.parts]
        found = {"format": _FORMAT, "batch": self.batch, "transactions": transactions, "parts": written}
        return json.dumps(found).encode()

    @classmethod
    def decoded(cls, query: str, value: bytes) -> "Decision":
        found = json.loads(value)
        transactions = [Transaction(*one) for one in found["transactions"]]
        written = found.get("parts", [()] * len(transactions))
        parts = tuple(Part(one, *more) for one, more in zip(transactions, written, strict=True))
        return cls(query, found["batch"], parts)


class Decisions:
    def __init__(self, cluster: Cluster, topic: str) -> None:
        self._topic = CompactedTopic(cluster, topic)

    def write(self, decision: Decision) -> None:
        """Make a decision; it is durable when this returns."""
        self._topic.write(decision.query, decision.encoded())

    def forget(self, query: str) -> None:
        self._topic.write(query, None)

    def last(self, query: str) -> Decision | None:
        self._topic.position = None
        found = self._topic.read_last(query)
        return None if found is None else Decision.decoded(query, found)
