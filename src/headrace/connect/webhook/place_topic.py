"""Places of sinks whose receiver keeps none for them: a compacted topic, with one record that counts for each sink.

Not a consumer group's offsets: a broker forgets those of a group that was away for a week.
"""

import time
from typing import Final

from headrace.client.admin import ensure_topic
from headrace.client.cluster import Cluster
from headrace.client.offsets import bounds
from headrace.client.reader import read_records
from headrace.client.writer import NewRecord, Writer
from headrace.model import TopicPartition
from headrace.stores.derived import Place

TOPIC: Final = "headrace-sync-places"
_ONLY: Final = TopicPartition(TOPIC, 0)


class PlaceTopic:
    """The place of one sink."""

    def __init__(self, cluster: Cluster, name: str) -> None:
        self._cluster = cluster
        self._key = name.encode()
        ensure_topic(cluster, TOPIC, partitions=1, configs={"cleanup.policy": "compact"})
        self._writer = Writer(cluster, TOPIC)

    def load(self) -> Place | None:
        """What was stored last."""
        held = bounds(self._cluster, [_ONLY])[_ONLY]
        found: Place | None = None
        if held.end > held.start:
            for records in read_records(self._cluster, {_ONLY: held.start}, until={_ONLY: held.end}):
                for read in records:
                    if read.record.key == self._key and read.record.value is not None:
                        found = Place.from_json(read.record.value)
        return found

    def store(self, place: Place) -> None:
        """Durable when this returns."""
        now_ms = time.time_ns() // 1_000_000
        self._writer.add(NewRecord(self._key, place.to_json().encode(), now_ms, partition=0))
        self._writer.flush()
