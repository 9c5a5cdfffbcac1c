"""The driver's record of which batch is to be committed: a compacted topic, a query's latest decision under its id."""

import json
import time
from dataclasses import dataclass
from typing import NamedTuple

from headrace.client.admin import ensure_topic
from headrace.client.cluster import Cluster
from headrace.client.errors import UnknownTopic
from headrace.client.offsets import bounds
from headrace.client.reader import read_records
from headrace.client.transactions import Transaction
from headrace.client.writer import NewRecord, Writer
from headrace.model import TopicPartition

_FORMAT = 1
# Small segments that are compacted soon: the topic is read from its start when a query starts.
_CONFIGS = {"cleanup.policy": "compact", "segment.bytes": str(1024 * 1024), "min.cleanable.dirty.ratio": "0.1"}


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
        self._cluster = cluster
        self._topic = topic

    def write(self, decision: Decision) -> None:
        """Make a decision; it is durable when this returns."""
        ensure_topic(self._cluster, self._topic, configs=_CONFIGS)
        self._put(decision.query, decision.encoded())

    def forget(self, query: str) -> None:
        self._put(query, None)

    def _put(self, query: str, value: bytes | None) -> None:
        writer = Writer(self._cluster, self._topic)
        writer.add(NewRecord(query.encode(), value, timestamp=int(time.time() * 1000), partition=0))
        writer.flush()

    def last(self, query: str) -> Decision | None:
        try:
            self._cluster.topic(self._topic)
        except UnknownTopic:
            return None
        where = TopicPartition(self._topic, 0)
        held = bounds(self._cluster, [where])[where]
        key = query.encode()
        found = None
        for records in read_records(self._cluster, {where: held.start}, until={where: held.end}):
            for _, record in records:
                if record.key == key:
                    found = record.value
        return Decision.decoded(query, found) if found is not None else None
