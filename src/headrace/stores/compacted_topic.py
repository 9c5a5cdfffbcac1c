"""What we remember in a topic of our own: compacted, of one partition, the last record of each key counts. Anybody may
write there in a transaction, and what is not committed does not count.

Not in a consumer group's offsets: a broker forgets those of a group that was away for a week.
"""

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

from headrace.client.admin import ensure_topic
from headrace.client.cluster import Cluster, Topic
from headrace.client.errors import OffsetOutOfRange, TopicReplaced, UnknownTopic
from headrace.client.fetch import FetchOptions
from headrace.client.offsets import bounds
from headrace.client.reader import ReadRecord, read_records
from headrace.client.writer import NewRecord, Writer
from headrace.errors import HeadraceError
from headrace.model import TopicPartition
from headrace.records import Record

# Small segments that are compacted soon, for a topic that is read from its start when something starts.
SMALL = {"segment.bytes": str(1024 * 1024), "min.cleanable.dirty.ratio": "0.1"}
_COMMITTED = FetchOptions(committed=True)
_LOOK_AGAIN_S = 0.2  # for a topic that is not there yet


class SeveralPartitions(HeadraceError):
    """Half of what others write there would never be read, and the halves would have no order."""

    def __init__(self, topic: str) -> None:
        super().__init__(
            f"topic {topic} has several partitions, and what is kept in it has an order: name one with one partition"
        )


def check_partitions(topic: Topic) -> None:
    """Refuse a topic that somebody made, or let grow, with more than the one partition that is read."""
    if len(topic.partitions) > 1:
        raise SeveralPartitions(topic.name)


class CompactedTopic:
    """Reads and writes the topic, which the first write makes; `position` is up to where it was read.

    What was read of a topic that was deleted, or made again under its name, counts no more: `forget` is called, and the
    new one is read from its start, however long it is by then.
    """

    def __init__(
        self,
        cluster: Cluster,
        name: str,
        configs: Mapping[str, str] = SMALL,
        *,
        forget: Callable[[], None] = lambda: None,
        is_for_others: bool = False,
    ) -> None:
        """`is_for_others`: they write there as well, and so to every partition that there is."""
        self._cluster, self._configs = cluster, {"cleanup.policy": "compact", **configs}
        self._forget = forget
        self._check = check_partitions if is_for_others else lambda _: None
        self.partition = TopicPartition(name, 0)
        self.position: int | None = None
        self._id = ""  # of the topic that the position is in
        self._writer: Writer | None = None

    def write(self, key: str, value: bytes | None) -> None:
        """Replace what is kept under a key, or with None remove it; durable when this returns."""
        if self._writer is None:
            ensure_topic(self._cluster, self.partition.topic, configs=self._configs)
            self._check(self._cluster.topic(self.partition.topic))
            self._writer = Writer(self._cluster, self.partition.topic)
        self._writer.add(NewRecord(key.encode(), value, timestamp=int(time.time() * 1000), partition=0))
        self._writer.flush()

    def read_news(self) -> Iterator[Record]:
        """The records since the last time, at first all."""
        try:
            topic = self._cluster.topic(self.partition.topic, refresh=self.position is not None)
            held = bounds(self._cluster, [self.partition], committed=True)[self.partition]
        except UnknownTopic:
            self._begin_again()
            return
        self._check(topic)
        if self.position is not None and (topic.id_text != self._id or self.position > held.end):
            self._begin_again()
        self._id = topic.id_text
        start = held.start if self.position is None else self.position
        until = {self.partition: held.end}
        for records in read_records(self._cluster, {self.partition: start}, until=until, options=_COMMITTED):
            yield from (read.record for read in records)
        self.position = max(start, held.end)

    def wait_for_news(self, timeout_s: float) -> list[Record]:
        """The next records after those that were read; none if the time is over before."""
        if self.position is None:
            time.sleep(min(timeout_s, _LOOK_AGAIN_S))
            return []
        end = time.monotonic() + timeout_s
        options = replace(_COMMITTED, max_wait_ms=int(timeout_s * 1000))
        ids = {self.partition.topic: self._id}
        found: list[ReadRecord] = []
        try:
            for found in read_records(self._cluster, {self.partition: self.position}, options=options, ids=ids):
                if found or time.monotonic() >= end:  # else it has only learnt that the topic is another one
                    break
        except (TopicReplaced, UnknownTopic, OffsetOutOfRange):
            return list(self.read_news())
        if found:
            self.position = found[-1].record.offset + 1
        return [read.record for read in found]

    def _begin_again(self) -> None:
        if self.position is not None:
            self.position = None
            self._writer = None  # it would not make the topic
            self._forget()

    def read_last(self, key: str) -> bytes | None:
        """What is kept under a key; for a topic that was not read before."""
        found = None
        for record in self.read_news():
            if record.key == key.encode():
                found = record.value
        return None if found is None else bytes(found)
