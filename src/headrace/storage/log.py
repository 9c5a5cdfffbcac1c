"""One partition: an append-only sequence of batches in segments, numbered by offset.

What always holds:
- offsets ascend without reuse; what an append was answered with never changes;
- readers never wait: they work on the list of segments as it was when they came, and a segment that has been removed
  stays readable to them;
- one lock orders whoever changes the log (append, roll, truncate, swap, delete), another whoever makes it durable, so
  that a slow disk stops neither appends nor reads;
- a failed append leaves nothing behind; a failed sync acknowledges nothing, and the bytes are written again before
  they count.
"""

import errno
from bisect import bisect_right
from collections.abc import Callable, Sequence
from contextlib import suppress
from threading import RLock
from typing import NamedTuple

from headrace.model import NO_TIMESTAMP, TopicPartition
from headrace.records import HEADER_SIZE, BatchHeader, Buffer, RecordsError, control_type_of, prefix, validate
from headrace.records.batch import LENGTH_OVERHEAD, LOG_APPEND_TIME, PREFIX_SIZE, assemble
from headrace.storage.atomic_file import write_atomically
from headrace.storage.config import MAX_INT, LogConfig
from headrace.storage.damage import write_damage
from headrace.storage.errors import OffsetOutOfRange, SyncFailed, refusal
from headrace.storage.filesystem import FileSystem
from headrace.storage.leader_epochs import LeaderEpochs
from headrace.storage.names import SNAPSHOT, file_name
from headrace.storage.offset_index import ENTRY_SIZE
from headrace.storage.producer_replay import apply_batch, replay
from headrace.storage.producer_snapshot import encode_snapshot, remove_snapshots
from headrace.storage.producer_state import ProducerState
from headrace.storage.retention import SegmentFacts, first_retained
from headrace.storage.segment import Appended, FileSlice, Segment
from headrace.storage.transaction_index import AbortedTransaction


class AppendInfo(NamedTuple):
    """Where a producer's records went."""

    base_offset: int
    last_offset: int
    append_time_ms: int
    is_duplicate: bool = False


class LogRead(NamedTuple):
    """Bytes of whole batches (the last may be cut), and the aborted transactions among them if they were asked for."""

    slice: FileSlice | None
    aborted: Sequence[AbortedTransaction] = ()


class Log:
    """A partition's log; made by `log_loader.open_log`."""

    def __init__(
        self,
        filesystem: FileSystem,
        directory: str,
        topic_partition: TopicPartition,
        config: LogConfig,
        *,
        segments: Sequence[Segment],
        producers: ProducerState,
        epochs: LeaderEpochs,
        start_offset: int,
        end_offset: int,
        durable_offset: int,
        opened_ms: int,
    ) -> None:
        self.topic_partition = topic_partition
        self.directory = directory
        self.producers = producers
        self.epochs = epochs
        self._filesystem = filesystem
        self._config = config
        self._rules = config.rules
        self._segments = tuple(segments)
        self._start_offset = start_offset
        self._end_offset = end_offset
        self._durable_offset = durable_offset
        self._rolled_ms = opened_ms
        self._lock = RLock()
        self._flush_lock = RLock()
        self._pending_snapshots: dict[int, bytes] = {}
        self._unsaved = list(segments[:-1])  # segments whose indexes may not be on disk yet
        self._names_changed = True
        self._sync_suspect = False
        self._listeners: list[Callable[[Log], None]] = []

    def __repr__(self) -> str:
        return f"Log({self.topic_partition}, {self._start_offset}..{self._end_offset}, {len(self._segments)} segments)"

    # --- what is known

    @property
    def config(self) -> LogConfig:
        """The settings in force."""
        return self._config

    @config.setter
    def config(self, config: LogConfig) -> None:
        self._config = config
        self._rules = config.rules

    @property
    def start_offset(self) -> int:
        """The first offset that can be read."""
        return self._start_offset

    @property
    def end_offset(self) -> int:
        """The offset that the next record gets."""
        return self._end_offset

    @property
    def durable_offset(self) -> int:
        """Everything before this is known to be on the disk: where recovery begins to check."""
        return self._durable_offset

    @property
    def last_stable_offset(self) -> int:
        """Where readers of committed records stop: the oldest open transaction, or the end."""
        first_open = self.producers.first_open_offset
        return self._end_offset if first_open is None else first_open

    @property
    def segments(self) -> tuple[Segment, ...]:
        """The segments, oldest first; the last is the one that is written to."""
        return self._segments

    @property
    def size_bytes(self) -> int:
        """Bytes of all segments."""
        return sum(segment.size for segment in self._segments)

    def subscribe(self, listener: Callable[["Log"], None]) -> Callable[[], None]:
        """Have `listener` called after every append, in the appending thread; the answer ends that."""
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    # --- append

    def append(self, data: Buffer, *, now_ms: int, leader_epoch: int = 0, from_client: bool = True) -> AppendInfo:
        """Append one or more batches, all of them or none; where they went.

        A batch that an idempotent producer sent before is not appended again but answered with its first place.
        Returns once the bytes are in the page cache: `flush` makes them durable.
        """
        view = memoryview(data)
        batches = validate(view, self._rules, now_ms, from_client=from_client)
        with self._lock:
            info = self._append(view, batches, now_ms, leader_epoch)
        if not info.is_duplicate:
            for listener in self._listeners:
                listener(self)
        return info

    def _append(
        self, view: memoryview, batches: list[tuple[int, BatchHeader]], now_ms: int, leader_epoch: int
    ) -> AppendInfo:
        for position, header in batches:
            if header.producer_id >= 0:
                seen = self._check_producer(view[position : position + header.size], header)
                if seen:
                    return seen
        offset = first = self._end_offset
        stamp = not self._rules.create_time
        total = 0
        buffers: list[Buffer] = []
        appended = []
        stamped = []
        for position, header in batches:
            size = header.length + LENGTH_OVERHEAD
            rest = view[position + PREFIX_SIZE : position + size]
            if stamp and not header.is_control:
                header = header._replace(attributes=header.attributes | LOG_APPEND_TIME, max_timestamp=now_ms)
                batch = assemble(header, view[position + HEADER_SIZE : position + size])
                rest = memoryview(batch)[PREFIX_SIZE:]
            last = offset + header.last_offset_delta
            buffers.append(prefix(offset, header.length, leader_epoch))
            buffers.append(rest)
            appended.append(Appended(offset, last, header.max_timestamp, size))
            if header.producer_id >= 0:
                stamped.append((position, header._replace(base_offset=offset)))
            offset = last + 1
            total += size
        segment = self._segments[-1]
        if segment.size and self._is_full(segment, total, appended[-1], now_ms):
            segment = self._roll(now_ms)
        if leader_epoch > self.epochs.latest:
            self._begin_epoch(leader_epoch, first)
        segment.append(buffers, appended, total)
        for position, header in stamped:
            aborted = apply_batch(self.producers, header, view[position : position + header.size])
            if aborted:
                segment.indexes.transactions.append(aborted)
        self._end_offset = offset
        return AppendInfo(first, offset - 1, now_ms if stamp else NO_TIMESTAMP)

    def _check_producer(self, batch: memoryview, header: BatchHeader) -> AppendInfo | None:
        if header.is_control:
            marker = control_type_of(batch)
            if marker:
                self.producers.check_marker(header, marker[1])
            return None
        seen = self.producers.check(header)
        return AppendInfo(seen.base_offset, seen.last_offset, NO_TIMESTAMP, is_duplicate=True) if seen else None

    def _begin_epoch(self, epoch: int, offset: int) -> None:
        self.epochs.note(epoch, offset)
        try:
            self.epochs.save()
        except OSError as error:
            self.epochs.truncate_to(offset)
            raise refusal(self.directory, error) from error

    # --- roll

    def _is_full(self, active: Segment, size: int, last: Appended, now_ms: int) -> bool:
        config = self._config
        if active.size + size > config.segment_bytes or last.last_offset - active.base_offset > MAX_INT:
            return True
        first = active.first_timestamp
        age = now_ms - self._rolled_ms if first is None or first < 0 else last.max_timestamp - first
        return age > config.roll_ms or active.index_entries >= config.segment_index_bytes // ENTRY_SIZE

    def _roll(self, now_ms: int) -> Segment:
        """Begin a new segment; what the old one still needs on disk is written by the next flush."""
        base = self._end_offset
        try:
            segment = Segment(self._filesystem, self.directory, base, interval_bytes=self._config.index_interval_bytes)
        except OSError as error:
            raise refusal(self.directory, error) from error
        full = self._segments[-1]
        full.seal()
        self._unsaved.append(full)
        self._pending_snapshots[base] = encode_snapshot(self.producers)
        self._segments = (*self._segments, segment)
        self._names_changed = True
        self._rolled_ms = now_ms
        return segment

    def roll(self, now_ms: int) -> None:
        """Begin a new segment, unless the active one is empty."""
        with self._lock:
            if self._segments[-1].size:
                self._roll(now_ms)

    # --- read

    def read(self, offset: int, max_bytes: int, *, committed: bool = False, before: int | None = None) -> LogRead:
        """Batches from the one that holds `offset` on, out of one segment; at least one batch if there is any.

        `committed` stops at the first open transaction, `before` at that offset: what lies behind is not for readers.
        """
        end = self._end_offset
        if not self._start_offset <= offset <= end:
            raise OffsetOutOfRange(str(self.topic_partition), offset, self._start_offset, end)
        limit = min(end, self.last_stable_offset) if committed else end
        if before is not None:
            limit = min(limit, before)
        if offset >= limit:
            return LogRead(None)
        segments = self._segments
        for index in range(_index_of(segments, offset), len(segments)):
            segment = segments[index]
            place = segment.find(offset)
            if place is None:
                continue
            position, size = place
            stop = segment.size if limit == end else segment.position_of(limit)
            if stop <= position:
                return LogRead(None)
            found = segment.slice_from(position, size, max_bytes, stop)
            if not committed:
                return LogRead(found)
            return LogRead(found, self._aborted_in(segments, index, offset, found))
        return LogRead(None)

    def _aborted_in(
        self, segments: Sequence[Segment], index: int, offset: int, found: FileSlice
    ) -> list[AbortedTransaction]:
        bound = segments[index].indexes.offsets.offset_behind(found.position + found.size)
        if bound is None:
            bound = segments[index + 1].base_offset if index + 1 < len(segments) else self._end_offset
        return collect_aborted(segments[index:], offset, bound)

    # --- durability

    def flush(self, *, rolled_only: bool = False) -> int:
        """Make everything appended so far durable, and say up to which offset that is.

        `rolled_only` leaves the active segment to the operating system, which is all that `durability = "os"` asks.
        """
        with self._flush_lock:
            with self._lock:
                segments = self._segments
                target = segments[-1].base_offset if rolled_only else self._end_offset
                names_changed, self._names_changed = self._names_changed, False
            try:
                self._sync(segments, target)
                if names_changed:
                    self._filesystem.sync_directory(self.directory)
            except OSError as error:
                self._names_changed = True
                self._sync_suspect = True
                raise SyncFailed(self.directory, error) from error
            self._sync_suspect = False
            self._durable_offset = max(self._durable_offset, target)
            # Indexes and snapshots can be made again from the batches, so a full disk may hold them up for a while.
            with suppress(OSError):
                self._save_side_files()
            return self._durable_offset

    def _sync(self, segments: Sequence[Segment], target: int) -> None:
        if target <= self._durable_offset:
            return
        for segment in segments[_index_of(segments, self._durable_offset) :]:
            if segment.base_offset < target:
                if self._sync_suspect:
                    self._rewrite(segment)
                segment.sync()

    def _rewrite(self, segment: Segment) -> None:
        """Write again what a failed sync left in doubt; what can no longer be read as it was written is cut off."""
        try:
            segment.rewrite(segment.position_of(self._durable_offset))
        except RecordsError as error:
            self.truncate_to(self._durable_offset)
            raise OSError(errno.EIO, f"the unsynced end was lost ({error})") from error

    def _save_side_files(self) -> None:
        while self._unsaved:
            self._unsaved[0].save_indexes()
            del self._unsaved[0]
        for offset, data in list(self._pending_snapshots.items()):
            write_atomically(self._filesystem, f"{self.directory}/{file_name(offset, SNAPSHOT)}", data)
            self._pending_snapshots.pop(offset, None)

    def close(self) -> None:
        """Make everything durable and leave nothing that the next opening has to rebuild."""
        with self._flush_lock, self._lock:
            active = self._segments[-1]
            active.seal()
            self._unsaved.append(active)
            self._pending_snapshots[self._end_offset] = encode_snapshot(self.producers)
            self.flush()
            self._save_side_files()
            self.abandon()

    def abandon(self) -> None:
        """Let go of the files as they are, as a crash would."""
        for segment in self._segments:
            segment.close()

    # --- removing

    def expire(self, now_ms: int) -> int:
        """Move the start to where retention wants it; the new start. The files go with `remove_dead_segments`."""
        with self._lock:
            segments = self._segments
            facts = [SegmentFacts(s.base_offset, s.size, s.largest_timestamp) for s in segments]
            return self.advance_start(first_retained(facts, self._config, self._end_offset, now_ms))

    def advance_start(self, offset: int) -> int:
        """Make `offset` the first that can be read, if it is not before the start already (DeleteRecords)."""
        with self._lock:
            if offset > self._end_offset:
                raise OffsetOutOfRange(str(self.topic_partition), offset, self._start_offset, self._end_offset)
            self._start_offset = max(self._start_offset, offset)
            return self._start_offset

    def remove_dead_segments(self, now_ms: int) -> list[Segment]:
        """Remove the segments before the start, which must be on disk by then, or a crash brings them back."""
        with self._flush_lock:
            with self._lock:
                if self._start_offset == self._end_offset:
                    self.roll(now_ms)
                keep = _index_of(self._segments, self._start_offset)
                dead, self._segments = self._segments[:keep], self._segments[keep:]
                base = self._segments[0].base_offset
            if dead:
                self._forget(dead)
                remove_snapshots(self._filesystem, self.directory, before=base)
                self._pending_snapshots = {o: data for o, data in self._pending_snapshots.items() if o >= base}
                self.epochs.drop_before(self._start_offset)
                self.epochs.save()
            return list(dead)

    def _forget(self, segments: Sequence[Segment], *, keep_log: Segment | None = None) -> None:
        for segment in segments:
            segment.remove(keep_log=segment is keep_log)
        self._unsaved = [segment for segment in self._unsaved if segment not in segments]
        write_damage(self._filesystem, self.directory, [d for s in self._segments for d in s.damage])

    def swap(self, old: Sequence[Segment], new: Segment) -> bool:
        """Put a compacted segment in the place of those it was made from, unless some of them are gone meanwhile.

        `new` is durable under its `.swap` name. The old files go before it takes their place, so a crash in between
        finds the swap file and finishes the work (`log_loader`).
        """
        with self._flush_lock:
            with self._lock:
                first = self._segments.index(old[0]) if old[0] in self._segments else -1
                if first < 0 or self._segments[first : first + len(old)] != tuple(old):
                    return False
                self._segments = (*self._segments[:first], new, *self._segments[first + len(old) :])
            self._forget(old, keep_log=old[0])
            self._filesystem.sync_directory(self.directory)
            new.move_to(old[0].path)
            self._unsaved.append(new)
            self._names_changed = True
            return True

    def truncate_to(self, offset: int) -> None:
        """Cut the log so that `offset` is the next to be written."""
        with self._flush_lock, self._lock:
            if offset >= self._end_offset:
                return
            keep = _index_of(self._segments, offset)
            dead, self._segments = self._segments[keep + 1 :], self._segments[: keep + 1]
            self._end_offset = max(offset, self._segments[0].base_offset)
            self._start_offset = min(self._start_offset, self._end_offset)
            self._durable_offset = min(self._durable_offset, offset)
            active = self._segments[-1]
            active.truncate(active.position_of(offset), offset)
            self._forget(dead)
            self._unsaved = [segment for segment in self._unsaved if segment is not active]
            active.drop_saved_indexes()
            remove_snapshots(self._filesystem, self.directory, behind=offset)
            self._pending_snapshots = {o: data for o, data in self._pending_snapshots.items() if o <= offset}
            self.producers = replay(self._filesystem, self.directory, self._segments, self._end_offset)
            self.epochs.truncate_to(offset)
            self.epochs.save()
            self._names_changed = True

    def release_indexes(self) -> None:
        """Give back the memory of indexes that are on disk."""
        for segment in self._segments[:-1]:
            segment.release_indexes()


def _index_of(segments: Sequence[Segment], offset: int) -> int:
    """The segment in which `offset` would be."""
    return max(bisect_right(segments, offset, key=lambda segment: segment.base_offset) - 1, 0)


def collect_aborted(segments: Sequence[Segment], start: int, end: int) -> list[AbortedTransaction]:
    """The aborted transactions that touch offsets `start` to `end`; their markers may stand in later segments."""
    collected = []
    for segment in segments:
        found, complete = segment.indexes.transactions.overlapping(start, end)
        collected += found
        if complete:
            break
    return collected
