"""What is known of views that are kept in topics: the compacted topic `__headrace_views`, a record for each view.

A record names the topic that holds the rows and, for each of its partitions, the offset before which the last whole
batch lies. It is written when the batch is committed; readers go as far as it says, and so see whole batches only.
"""

import json
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field

from headrace.client.admin import ensure_topic
from headrace.client.cluster import Cluster
from headrace.client.errors import UnknownTopic
from headrace.client.fetch import FetchOptions
from headrace.client.offsets import bounds
from headrace.client.reader import read_records
from headrace.client.writer import NewRecord, Writer
from headrace.model import TopicPartition
from headrace.stores.batch import Recorded
from headrace.stores.views.freshness import Freshness
from headrace.stores.views.shape import Shape
from headrace.stores.views.store import Kept

VIEWS_TOPIC = "__headrace_views"
_WHERE = TopicPartition(VIEWS_TOPIC, 0)
_CONFIGS = {"cleanup.policy": "compact", "segment.bytes": str(1024 * 1024), "min.cleanable.dirty.ratio": "0.1"}


@dataclass(frozen=True)
class Entry:
    """What is known of one view."""

    kept: Kept
    topic: str
    ends: Mapping[int, int]
    recorded: tuple[Recorded, ...] = field(default=())

    def encoded(self) -> bytes:
        """As it stands in the topic."""
        return json.dumps(
            {
                "topic": self.topic,
                "ends": self.ends,
                "shape": json.loads(self.kept.shape.to_json()),
                "freshness": json.loads(self.kept.freshness.to_json()),
                "batches": [asdict(one) for one in self.recorded],
            }
        ).encode()

    @classmethod
    def decoded(cls, value: bytes) -> "Entry":
        """From the topic."""
        found = json.loads(value)
        freshness = Freshness.from_json(json.dumps(found["freshness"]))
        kept = Kept(Shape.from_json(json.dumps(found["shape"])), freshness, freshness.revision)
        ends = {int(partition): offset for partition, offset in found["ends"].items()}
        return cls(kept, found["topic"], ends, tuple(Recorded(**one) for one in found["batches"]))


class TopicBooks:
    """Reads and writes the topic; remembers where it is."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._place: int | None = None
        self.entries: dict[str, Entry] = {}

    def write(self, label: str, entry: Entry | None) -> None:
        """Write down what is known of a view, or that it is no more; durable when this returns."""
        ensure_topic(self._cluster, VIEWS_TOPIC, configs=_CONFIGS)
        writer = Writer(self._cluster, VIEWS_TOPIC)
        value = None if entry is None else entry.encoded()
        writer.add(NewRecord(label.encode(), value, timestamp=int(time.time() * 1000), partition=0))
        writer.flush()

    def read(self) -> None:
        """Take in all that is there by now."""
        try:
            self._cluster.topic(VIEWS_TOPIC)
        except UnknownTopic:
            return
        held = bounds(self._cluster, [_WHERE])[_WHERE]
        start = held.start if self._place is None else self._place
        for records in read_records(self._cluster, {_WHERE: start}, until={_WHERE: held.end}):
            for _, record in records:
                self._take(record.key, record.value)
        self._place = max(start, held.end)

    def wait(self, timeout_s: float) -> None:
        """Until there is anything new, or the time is over."""
        if self._place is None:
            time.sleep(min(timeout_s, 0.2))
            return
        options = FetchOptions(max_wait_ms=int(timeout_s * 1000))
        for records in read_records(self._cluster, {_WHERE: self._place}, options=options):
            for _, record in records:
                self._take(record.key, record.value)
                self._place = record.offset + 1
            return

    def _take(self, key: bytes | None, value: bytes | None) -> None:
        name = (key or b"").decode()
        if value is None:
            self.entries.pop(name, None)
        else:
            self.entries[name] = Entry.decoded(value)
