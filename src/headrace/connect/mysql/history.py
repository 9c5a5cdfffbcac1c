"""How the tables' shapes changed, kept as records: so that after a restart the log is read with the shapes of its time.

Records are numbered, and a position names the number up to which they count. What a crash left beyond it is forgotten
at the start, and comes again from the log.
"""

import json
import time
from dataclasses import dataclass
from typing import Any, Protocol, Self

from headrace.client.admin import ensure_topic
from headrace.client.cluster import Cluster
from headrace.client.offsets import bounds
from headrace.client.reader import read_records
from headrace.client.writer import NewRecord, Writer
from headrace.connect.mysql.shape import Shape
from headrace.model import TopicPartition


@dataclass(frozen=True, slots=True)
class HistoryRecord:
    """One change: the shapes of some tables from here on (None: gone), or of all if `is_whole`."""

    number: int
    gtid: str
    statement: str
    shapes: dict[str, Shape | None]
    is_whole: bool = False

    def as_json(self) -> dict[str, Any]:
        """As it is stored."""
        return {
            "number": self.number,
            "gtid": self.gtid,
            "statement": self.statement,
            "shapes": {name: None if shape is None else shape.as_json() for name, shape in self.shapes.items()},
            "is_whole": self.is_whole,
        }

    @classmethod
    def from_json(cls, stored: dict[str, Any]) -> Self:
        """As it was stored."""
        shapes = {name: None if one is None else Shape.from_json(one) for name, one in stored["shapes"].items()}
        return cls(stored["number"], stored["gtid"], stored["statement"], shapes, stored["is_whole"])


class SchemaHistory(Protocol):
    """Where records are kept."""

    def load(self) -> list[HistoryRecord]:
        """Every record, ordered by number."""
        ...

    def append(self, record: HistoryRecord) -> None:
        """Keep a record, durably; one of the same number is replaced."""
        ...

    def forget(self, numbers: list[int]) -> None:
        """Drop records."""
        ...


def shapes_at(records: list[HistoryRecord], number: int) -> dict[str, Shape] | None:
    """The shapes behind the record of this number; None if records are missing."""
    found: dict[str, Shape] | None = None
    for record in records:
        if record.number > number:
            break
        if record.is_whole:
            found = {}
        if found is None:
            continue
        for name, shape in record.shapes.items():
            if shape is None:
                found.pop(name, None)
            else:
                found[name] = shape
    is_there = any(record.number == number for record in records)
    return found if is_there else None


class MemoryHistory:
    """For who reads changes once, and begins with a snapshot every time."""

    def __init__(self) -> None:
        self._records: dict[int, HistoryRecord] = {}

    def load(self) -> list[HistoryRecord]:
        """Every record, ordered by number."""
        return [record for _, record in sorted(self._records.items())]

    def append(self, record: HistoryRecord) -> None:
        """Keep a record."""
        self._records[record.number] = record

    def forget(self, numbers: list[int]) -> None:
        """Drop records."""
        for number in numbers:
            self._records.pop(number, None)


class TopicHistory:
    """A compacted topic of one partition; the key is the connector's name and the record's number."""

    def __init__(self, cluster: Cluster, connector: str, topic: str = "__headrace_connect_schemas") -> None:
        self._cluster = cluster
        self._connector = connector
        self._topic = topic
        ensure_topic(cluster, topic, partitions=1, configs={"cleanup.policy": "compact"})
        self._writer = Writer(cluster, topic)

    def load(self) -> list[HistoryRecord]:
        """Every record, ordered by number."""
        partition = TopicPartition(self._topic, 0)
        held = bounds(self._cluster, [partition])[partition]
        found: dict[int, HistoryRecord] = {}
        if held.end == held.start:
            return []
        for records in read_records(self._cluster, {partition: held.start}, until={partition: held.end}):
            for read in records:
                key = json.loads(bytes(read.record.key or b"{}"))
                if key.get("connector") != self._connector:
                    continue
                if read.record.value is None:
                    found.pop(key["number"], None)
                else:
                    found[key["number"]] = HistoryRecord.from_json(json.loads(bytes(read.record.value)))
        return [record for _, record in sorted(found.items())]

    def append(self, record: HistoryRecord) -> None:
        """Keep a record; returns once the broker has it."""
        self._write(record.number, json.dumps(record.as_json(), ensure_ascii=False).encode())

    def forget(self, numbers: list[int]) -> None:
        """Drop records."""
        for number in numbers:
            self._write(number, None)

    def _write(self, number: int, value: bytes | None) -> None:
        key = json.dumps({"connector": self._connector, "number": number}).encode()
        self._writer.add(NewRecord(key, value, time.time_ns() // 1_000_000))
        self._writer.flush()
