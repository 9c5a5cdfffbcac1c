"""The log as batches: as many records as are there, up to what the settings allow, and where they end.

A batch grows with the lag by itself: who is in step gets a few records at once, who is behind gets full batches.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from headrace.client.cluster import Cluster
from headrace.client.committed import visible_batches
from headrace.client.errors import OffsetOutOfRange
from headrace.client.fetch import Fetched, Fetcher, FetchOptions
from headrace.client.offsets import bounds
from headrace.connect.errors import InvalidConnectSetting
from headrace.connect.sink import SinkRefused
from headrace.connect.sync.alignment import Alignment
from headrace.connect.sync.decoding import RecordFormat, read_value
from headrace.connect.sync.meanings import UnreadableRecord
from headrace.connect.sync.reduction import LogRecord
from headrace.model import TopicPartition
from headrace.records import CorruptBatch, crc_of, records_of

_EMPTY_POLLS = 4
_OPTIONS = FetchOptions(max_wait_ms=250, committed=True, read_ahead=True, partition_max_bytes=4 * 1024 * 1024)


@dataclass(frozen=True, slots=True)
class BatchLimits:
    """How much is taken at once."""

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
    ) -> None:
        """With `until`, up to these offsets; further only where a truncate has to be waited for and not `is_exact`."""
        self._cluster = cluster
        self._topic = topic
        self._form = form
        self._limits = limits
        self._until = None if until is None else dict(until)
        self._is_exact = is_exact
        self._positions = dict(starts)
        self._alignment = Alignment()
        self._fetcher: Fetcher | None = None
        self._rest: list[Fetched] = []  # fetched, and not taken yet
        self._empty = 0

    @property
    def offsets(self) -> dict[int, int]:
        """The next offset of every partition."""
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
        new = [where for where in there if where.partition not in self._positions]
        if not new:
            return False
        for where, held in bounds(self._cluster, new).items():
            self._positions[where.partition] = held.start
        self._start_over()
        return True

    def next(self) -> Gathered | None:
        """What there is; None if nothing came for a while."""
        if self._alignment.is_waiting:
            found = self._align()
            if found is not None:
                return found
        records: list[LogRecord] = []
        size = 0
        waiting = len(self._alignment.waiting)
        while not self.is_at_end:
            fetched = self._rest.pop(0) if self._rest else self._poll()
            if fetched is None:
                self._count_empty()
                break
            self._empty = 0
            size += len(fetched.records)
            self._take(fetched, records)
            is_behind = fetched.next_offset < fetched.last_stable_offset
            if len(records) >= self._limits.records or size >= self._limits.size_bytes:
                break
            if not self._rest and not is_behind:
                break
        if len(self._alignment.waiting) > waiting:
            self._start_over()  # without them
        return Gathered(records, dict(self._positions)) if records or size else None

    # --- fetching

    def _poll(self) -> Fetched | None:
        if self._fetcher is None:
            wanted = {
                TopicPartition(self._topic, partition): position
                for partition, position in self._positions.items()
                if partition not in self._alignment.waiting and not self._is_done(partition)
            }
            if not wanted:
                return None
            ends = {where: (self._until or {}).get(where.partition, 0) for where in wanted} if self._until else None
            self._fetcher = Fetcher(self._cluster, wanted, _OPTIONS, until=ends)
        try:
            found = self._fetcher.poll()
        except OffsetOutOfRange as error:
            raise SinkRefused(
                f"{error.partition} does not hold offset {error.offset} any more, where this sink is, but only "
                f"{error.start} to {error.end}: fill the target anew with headrace sync rebuild"
            ) from error
        self._rest.extend(found[1:])
        return found[0] if found else None

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
        self._rest.clear()

    def _take(self, fetched: Fetched, records: list[LogRecord]) -> None:
        partition = fetched.partition.partition
        if partition in self._alignment.waiting:
            return
        may_truncate = self._form.may_truncate
        limit = None if self._until is None else self._until.get(partition, 0)
        for header, batch in visible_batches(fetched, committed=True):
            if header.last_offset < fetched.offset:
                continue
            if crc_of(batch) != header.crc:
                raise CorruptBatch(
                    f"the checksum does not match at offset {header.base_offset} of {fetched.partition}: the batch was "
                    "altered on its way or on the broker's disk"
                )
            for record in records_of(batch):
                if record.offset < fetched.offset:
                    continue
                if limit is not None and record.offset >= limit:
                    break
                if len(records) >= self._limits.records:
                    # The rest waits for the next batch.
                    self._rest.insert(0, replace(fetched, offset=record.offset))
                    self._positions[partition] = record.offset
                    return
                if record.value and may_truncate(record.value):
                    moment = self._truncated(record.value)
                    if moment is not None:
                        if self._alignment.meet(partition, moment, record.offset):
                            self._positions[partition] = record.offset
                            return
                        continue
                records.append(LogRecord(partition, record))
        self._positions[partition] = fetched.next_offset if limit is None else min(fetched.next_offset, limit)

    def _truncated(self, value: bytes) -> tuple[int, ...] | None:
        try:
            return read_value(value, self._form).truncates
        except UnreadableRecord:
            return None  # it will be read again with the others, and said to be broken

    # --- truncates

    def _align(self) -> Gathered | None:
        alignment = self._alignment
        if alignment.wants_ends():
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
