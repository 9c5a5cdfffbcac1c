"""What we remember in a topic of our own: compacted, of one partition, the last record of each key counts.

Not in a consumer group's offsets: a broker forgets those of a group that was away for a week.
"""

import time
from collections.abc import Iterator, Mapping

from headrace.client.admin import ensure_topic
from headrace.client.cluster import Cluster
from headrace.client.errors import UnknownTopic
from headrace.client.offsets import bounds
from headrace.client.reader import read_records
from headrace.client.writer import NewRecord, Writer
from headrace.model import TopicPartition
from headrace.records import Record

# Small segments that are compacted soon, for a topic that is read from its start when something starts.
SMALL = {"segment.bytes": str(1024 * 1024), "min.cleanable.dirty.ratio": "0.1"}


class CompactedTopic:
    """Reads and writes the topic, which the first write makes; `position` is up to where it was read."""

    def __init__(self, cluster: Cluster, name: str, configs: Mapping[str, str] = SMALL) -> None:
        self._cluster, self._configs = cluster, {"cleanup.policy": "compact", **configs}
        self.partition = TopicPartition(name, 0)
        self.position: int | None = None
        self._writer: Writer | None = None

    def write(self, key: str, value: bytes | None) -> None:
        """Replace what is kept under a key, or with None remove it; durable when this returns."""
        if self._writer is None:
            ensure_topic(self._cluster, self.partition.topic, configs=self._configs)
            self._writer = Writer(self._cluster, self.partition.topic)
        self._writer.add(NewRecord(key.encode(), value, timestamp=int(time.time() * 1000), partition=0))
        self._writer.flush()

    def read_news(self) -> Iterator[Record]:
        """The records since the last time, at first all."""
        try:
            self._cluster.topic(self.partition.topic)
        except UnknownTopic:
            return
        held = bounds(self._cluster, [self.partition])[self.partition]
        start = held.start if self.position is None else self.position
        for records in read_records(self._cluster, {self.partition: start}, until={self.partition: held.end}):
            yield from (read.record for read in records)
        self.position = max(start, held.end)

    def read_last(self, key: str) -> bytes | None:
        """What is kept under a key; for a topic that was not read before."""
        found = None
        for record in self.read_news():
            if record.key == key.encode():
                found = record.value
        return None if found is None else bytes(found)
