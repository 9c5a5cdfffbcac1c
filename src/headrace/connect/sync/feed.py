"""The log as batches: as many records as are there, up to what the settings allow, and where they end.

A batch grows with the lag by itself: who is in step gets a few records at once, who is behind gets full batches.

Records of several partitions come in the order of the source (`streams.py`). Kafka promises an order within a partition
only, but a topic that gets more partitions has the old changes of a key in one and the new ones in another; so no
record is handed out while a partition that has more may have an earlier one.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from heapq import heapify, heappop, heapreplace
from typing import TypeAlias

from headrace.client.cluster import Cluster
from headrace.client.errors import OffsetOutOfRange
from headrace.client.fetch import Fetcher, FetchOptions, check_id
from headrace.client.offsets import bounds
from headrace.connect.errors import InvalidConnectSetting
from headrace.connect.sync.decoding import RecordFormat, read_value
from headrace.connect.sync.meanings import UnreadableRecord
from headrace.connect.sync.reduction import LogRecord
from headrace.connect.sync.streams import Stream
from headrace.model import TopicPartition
from headrace.stores.errors import SinkRefused

Moment: TypeAlias = tuple[int, ...]


@dataclass(slots=True)
class Alignment:
    """Which partitions wait at a truncate, and for whom."""

    waiting: dict[int, tuple[Moment, int]] = field(default_factory=dict)  # partition: its truncate and that's offset
    ends: dict[int, int] = field(default_factory=dict)  # of all partitions, when the newest truncate was seen
    newest: Moment | None = None
    done: Moment | None = None

    @property
    def is_waiting(self) -> bool:
        return bool(self.waiting)

    def meet(self, partition: int, moment: Moment, offset: int) -> bool:
        """A partition has come to a truncate: whether it has to wait there."""
        if moment == self.done:
            return False  # in a partition that was not known when the others came to it
        self.waiting[partition] = (moment, offset)
        return True

    def wants_ends(self) -> bool:
        """Whether a truncate was seen that is newer than `ends`."""
        seen = max((moment for moment, _ in self.waiting.values()), default=None)
        return seen is not None and (self.newest is None or seen > self.newest)

    def set_ends(self, ends: Mapping[int, int]) -> None:
        """Where the partitions end now that the newest truncate was seen."""
        self.newest = max(moment for moment, _ in self.waiting.values())
        self.ends = dict(ends)

    def outdated(self) -> dict[int, int]:
        """Partitions that wait at a truncate for which a newer one stands, and the offset behind it; they go on."""
        old = {p: offset + 1 for p, (moment, offset) in self.waiting.items() if moment != self.newest}
        for partition in old:
            del self.waiting[partition]
        return old

    def complete(self, positions: Mapping[int, int]) -> dict[int, int] | None:
        """Once nobody is missing: the offsets behind the truncate. Partitions are at `positions`."""
        for partition, position in positions.items():
            if partition not in self.waiting and position < self.ends.get(partition, 0):
                return None
        behind = {partition: offset + 1 for partition, (_, offset) in self.waiting.items()}
        self.done, self.newest = self.newest, None
        self.waiting.clear()
        return behind


_EMPTY_POLLS = 4
_OPTIONS = FetchOptions(max_wait_ms=250, committed=True, read_ahead=True, partition_max_bytes=4 * 1024 * 1024)


@dataclass(frozen=True, slots=True)
class BatchLimits:
    records: int = 20_000
    size_bytes: int = 32 * 1024 * 1024

    def __post_init__(self) -> None:
        if self.records < 1:
            raise InvalidConnectSetting("batch_records", self.records, "it must be at least 1")


@dataclass(frozen=True, slots=True)
class Gathered:
    """Records in the order of their partitions, and the next offset of every partition."""

    records: list[LogRecord]
    offsets: dict[int, int]
    clears: bool = False  # all rows go; such a batch has no records


class Feed:
    """Reads one topic on from a place."""

    def __init__(
        self,
        cluster: Cluster,
        topic: str,
        starts: Mapping[int, int],
        form: RecordFormat,
        limits: BatchLimits,
        *,
        until: Mapping[int, int] | None = None,
        is_exact: bool = False,
        topic_id: str = "",
    ) -> None:
        """With `until`, up to these offsets; further only where a truncate has to be waited for and not `is_exact`.

        With `topic_id`, of this topic alone: another one under its name is raised as `TopicReplaced`.
        """
        self._ids = {topic: topic_id}
        self._cluster = cluster
        self._topic = topic
        self._form = form
        self._limits = limits
        self._until = None if until is None else dict(until)
        self._is_exact = is_exact
        self._positions = dict(starts)
        self._alignment = Alignment()
        self._fetcher: Fetcher | None = None
        self._streams: dict[int, Stream] = {}  # by partition: what was fetched, and not taken yet
        self._ends: dict[int, int] = {}  # as last known
        self._size = 0
        self._empty = 0
        self._look_up_ends()

    @property
    def offsets(self) -> dict[int, int]:
        return dict(self._positions)

    @property
    def is_at_end(self) -> bool:
        """Whether everything up to `until` was handed out."""
        return self._until is not None and all(
            position >= self._until.get(partition, 0) for partition, position in self._positions.items()
        )

    def add_partitions(self) -> bool:
        """Look whether the topic has grown, and read what is new from its start."""
        self._cluster.forget(self._topic)
        there = self._cluster.partitions(self._topic)
        check_id(self._cluster.topic(self._topic), self._ids[self._topic])
        new = [where for where in there if where.partition not in self._positions]
        if not new:
            return False
        for where, held in bounds(self._cluster, new).items():
            self._positions[where.partition] = held.start
        self._look_up_ends()
        self._start_over()
        return True

    def _look_up_ends(self) -> None:
        partitions = [TopicPartition(self._topic, partition) for partition in self._positions]
        if len(partitions) > 1:  # one partition waits for no other
            held = bounds(self._cluster, partitions, committed=True)
            self._ends = {where.partition: held[where].end for where in partitions}

    def next(self) -> Gathered | None:
        """What there is; None if nothing came for a while."""
        if self._alignment.is_waiting:
            found = self._align()
            if found is not None:
                return found
        records: list[LogRecord] = []
        self._size = 0
        waiting = len(self._alignment.waiting)
        while not self.is_at_end and self._fill():
            self._merge(records)
            if self._is_full(records) or not any(map(self._is_behind, self._positions)):
                break
        if len(self._alignment.waiting) > waiting:
            self._start_over()  # without them
        return Gathered(records, dict(self._positions)) if records or self._size else None

    def _is_full(self, records: list[LogRecord]) -> bool:
        return len(records) >= self._limits.records or self._size >= self._limits.size_bytes

    # --- fetching

    def _fill(self) -> bool:
        """Fetch until every partition that has more has something here; whether there is anything."""
        empty = 0
        while True:
            lacking = [partition for partition in self._positions if self._is_behind(partition)]
            if self._streams and not lacking:
                return True
            found = self._poll()
            if found:
                self._empty = empty = 0
            elif not lacking or (empty := empty + 1) >= _EMPTY_POLLS:
                # Where compaction left nothing up to the end there is nothing to wait for.
                self._ends.update({partition: self._positions[partition] for partition in lacking})
                if not self._streams:
                    self._count_empty()
                    return False

    def _is_behind(self, partition: int) -> bool:
        """Whether a partition has more, as far as is known, and nothing of it is here."""
        return (
            partition not in self._streams
            and partition not in self._alignment.waiting
            and not self._is_done(partition)
            and self._positions[partition] < self._ends.get(partition, 0)
        )

    def _poll(self) -> bool:
        if self._fetcher is None:
            wanted = {
                TopicPartition(self._topic, partition): position
                for partition, position in self._positions.items()
                if partition not in self._alignment.waiting and not self._is_done(partition)
            }
            if not wanted:
                return False
            ends = {where: (self._until or {}).get(where.partition, 0) for where in wanted} if self._until else None
            self._fetcher = Fetcher(self._cluster, wanted, _OPTIONS, until=ends, ids=self._ids)
        # Of what is here already no more is asked for: memory is bounded, and nobody is kept from being served.
        self._fetcher.paused = {TopicPartition(self._topic, partition) for partition in self._streams}
        try:
            found = self._fetcher.poll()
        except OffsetOutOfRange as error:
            raise SinkRefused(
                f"{error.partition} does not hold offset {error.offset} any more, where this sink is, but only "
                f"{error.start} to {error.end}: fill the target anew with headrace sync rebuild"
            ) from error
        for fetched in found:
            partition = fetched.partition.partition
            self._ends[partition] = max(self._ends.get(partition, 0), fetched.last_stable_offset)
            self._size += len(fetched.records)
            limit = None if self._until is None else self._until.get(partition, 0)
            self._streams.setdefault(partition, Stream(partition, limit)).add(fetched)
        return bool(found)

    def _count_empty(self) -> None:
        """Where compaction left nothing up to the end there is nothing to wait for."""
        self._empty += 1
        if self._until is not None and self._empty >= _EMPTY_POLLS and not self._alignment.is_waiting:
            self._positions = {p: max(position, self._until.get(p, 0)) for p, position in self._positions.items()}

    def _is_done(self, partition: int) -> bool:
        return self._until is not None and self._positions[partition] >= self._until.get(partition, 0)

    def _start_over(self) -> None:
        """Fetch anew from the positions; what is on its way is not waited for."""
        if self._fetcher is not None:
            self._cluster.close()
        self._fetcher = None
        self._streams.clear()

    def _merge(self, records: list[LogRecord]) -> None:
        """Take what is here in the order of the source, until a partition has nothing left here and has more there."""
        may_truncate = self._form.may_truncate
        heads = [stream for partition in list(self._streams) if (stream := self._advanced(partition)) is not None]
        heapify(heads)
        while heads and len(records) < self._limits.records:
            stream = heads[0]
            partition, record = stream.partition, stream.head
            assert record is not None
            moment = self._truncated(record.value) if record.value and may_truncate(record.value) else None
            if moment is None:
                records.append(LogRecord(partition, record))
            elif self._alignment.meet(partition, moment, record.offset):
                self._positions[partition] = record.offset
                del self._streams[partition]
                heappop(heads)
                continue
            stream.step()
            self._positions[partition] = stream.position
            if self._advanced(partition) is not None:
                if len(heads) > 1:
                    heapreplace(heads, stream)
                continue
            heappop(heads)
            if self._is_behind(partition):
                return

    def _advanced(self, partition: int) -> Stream | None:
        """The stream of a partition, if there is a record left in it."""
        stream = self._streams[partition]
        if stream.head is not None:
            return stream
        self._positions[partition] = stream.position
        del self._streams[partition]
        return None

    def _truncated(self, value: bytes) -> tuple[int, ...] | None:
        try:
            return read_value(value, self._form).truncates
        except UnreadableRecord:
            return None  # it will be read again with the others, and said to be broken

    # --- truncates

    def _align(self) -> Gathered | None:
        alignment = self._alignment
        if alignment.wants_ends():
            if not self._is_exact:
                self.add_partitions()  # the truncate stands in new ones too, behind rows that it empties
            partitions = [TopicPartition(self._topic, partition) for partition in self._positions]
            held = bounds(self._cluster, partitions)
            alignment.set_ends(self._reachable({where.partition: held[where].end for where in partitions}))
            released = alignment.outdated()
            self._positions.update(released)
            if released:
                self._start_over()
        behind = alignment.complete(self._positions)
        if behind is None:
            return None
        self._positions.update(behind)
        self._start_over()
        return Gathered([], dict(self._positions), clears=True)

    def _reachable(self, ends: dict[int, int]) -> dict[int, int]:
        """How far a partition may go to find its truncate: what `until` keeps from us cannot be waited for."""
        if self._until is None:
            return ends
        if self._is_exact:
            return {partition: min(end, self._until.get(partition, 0)) for partition, end in ends.items()}
        self._until = {partition: max(end, self._until.get(partition, 0)) for partition, end in ends.items()}
        self._start_over()
        return ends
