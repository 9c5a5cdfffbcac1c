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
from collections.abc import Sequence
from contextlib import suppress
from threading import RLock
from typing import NamedTuple

from headrace.delivery.overflow import Policy
from headrace.errors import HeadraceError
from headrace.model import NO_TIMESTAMP, TopicPartition
from headrace.records import HEADER_SIZE, BatchHeader, Buffer, RecordsError, control_type_of, prefix, validate
from headrace.records.batch import LENGTH_OVERHEAD, LOG_APPEND_TIME, PREFIX_SIZE, assemble
from headrace.storage.checkpoint import LeaderEpochs, write_damage
from headrace.storage.config import MAX_INT, LogConfig
from headrace.storage.errors import (
    DiskFull,
    NotDurable,
    OffsetOutOfRange,
    OutOfOrderSequence,
    SyncFailed,
    UnknownProducer,
    WriteFailed,
    refusal,
)
from headrace.storage.fence import Fence
from headrace.storage.indexes import OFFSET_ENTRY_SIZE
from headrace.storage.producer_snapshot import apply_batch, encode_snapshot, replay
from headrace.storage.producer_state import ProducerState
from headrace.storage.reading import LogRead, index_of, read_segments
from headrace.storage.retention import SegmentFacts, find_first_retained
from headrace.storage.segment import Appended, Segment
from headrace.storage.side_files import SideFiles


class AppendInfo(NamedTuple):
    base_offset: int
    last_offset: int
    append_time_ms: int
    is_duplicate: bool = False


class Log:
    """A partition's log; made by `log_loader.open_log`."""

    def __init__(
        self,
        filesystem: Fence,
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
        self.config = config
        self._is_in_memory = config.is_in_memory
        self._segments = tuple(segments)
        self._start_offset = start_offset
        self._end_offset = end_offset
        self._durable_offset = durable_offset
        self._rolled_ms = opened_ms
        self._lock = RLock()
        self._flush_lock = RLock()
        self._side_files = SideFiles(filesystem, directory, segments[:-1])
        self._names_changed = True
        self._half_swapped: list[tuple[Sequence[Segment], Segment]] = []
        self.cuts = 0  # how often the end was cut off: what was made from the log before then may not go into it

    def __repr__(self) -> str:
        return f"Log({self.topic_partition}, {self._start_offset}..{self._end_offset}, {len(self._segments)} segments)"

    # --- what is known

    @property
    def config(self) -> LogConfig:
        return self._config

    @config.setter
    def config(self, config: LogConfig) -> None:
        self._config = config
        self._rules = config.rules
        self._roll_bytes = config.roll_bytes

    @property
    def start_offset(self) -> int:
        return self._start_offset

    @property
    def end_offset(self) -> int:
        return self._end_offset

    @property
    def durable_offset(self) -> int:
        """Everything before this is known to be on the disk: where recovery begins to check. In memory all is."""
        return self._durable_offset

    @property
    def last_stable_offset(self) -> int:
        """Where readers of committed records stop: the oldest open transaction, or the end; never before the start."""
        first_open = self.producers.first_open_offset
        return self._end_offset if first_open is None else max(first_open, self._start_offset)

    @property
    def segments(self) -> tuple[Segment, ...]:
        """The segments, oldest first; the last is the one that is written to."""
        return self._segments

    @property
    def size_bytes(self) -> int:
        return sum(segment.size for segment in self._segments)

    @property
    def filesystem(self) -> Fence:
        """The file system as far as it is this log's: nothing passes once the log was deleted."""
        return self._filesystem

    # --- append

    def append(
        self,
        data: Buffer,
        *,
        now_ms: int,
        leader_epoch: int = 0,
        from_client: bool = True,
        keys_checked: bool = False,
        cuts: int | None = None,
    ) -> AppendInfo:
        """Append one or more batches, all of them or none; where they went.

        A batch that an idempotent producer sent before is not appended again but answered with its first place.
        Returns once the bytes are in the page cache: `flush` makes them durable. With `cuts`, only if the log was not
        cut off since it had been so often: the batches then rest on what is gone.
        """
        view = memoryview(data)
        batches = validate(view, self._rules, now_ms, from_client=from_client, keys_checked=keys_checked)
        with self._lock:
            self._filesystem.check()
            if cuts is not None and cuts != self.cuts:
                raise NotDurable(str(self.topic_partition), self._end_offset)
            return self._append(view, batches, now_ms, leader_epoch)

    def _append(
        self, view: memoryview, batches: list[tuple[int, BatchHeader]], now_ms: int, leader_epoch: int
    ) -> AppendInfo:
        for position, header in batches:
            if header.producer_id >= 0:
                seen = self._check_producer(view[position : position + header.size], header)
                if seen:
                    if len(batches) > 1:  # to answer with its place would drop the others, and to append it repeat it
                        raise OutOfOrderSequence(header.producer_id, header.base_sequence, header.last_sequence + 1)
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
            self.epochs.note(leader_epoch, first)
        segment.append(buffers, appended, total)
        for position, header in stamped:
            aborted = apply_batch(self.producers, header, view[position : position + header.size])
            if aborted:
                segment.indexes.transactions.append(aborted)
        self._end_offset = offset
        if self._is_in_memory:  # there is no disk to wait for
            self._durable_offset = offset
        return AppendInfo(first, offset - 1, now_ms if stamp else NO_TIMESTAMP)

    def _check_producer(self, batch: memoryview, header: BatchHeader) -> AppendInfo | None:
        if header.is_control:
            marker = control_type_of(batch)
            if marker is None:
                return None
            self.producers.check_marker(header, marker[1])
            producer = self.producers.producers.get(header.producer_id)
            if not self._is_in_memory or (producer is not None and producer.transaction_start is not None):
                return None
            # It ends nothing here. Markers are not asked for room, and of such there may be any number.
            self.producers.apply_marker(header._replace(base_offset=self._end_offset), *marker)
            return AppendInfo(self._end_offset, self._end_offset - 1, NO_TIMESTAMP, is_duplicate=True)
        is_known = header.producer_id in self.producers.producers
        if self._is_in_memory and header.is_transactional and header.base_sequence > 0 and not is_known:
            # What this transaction wrote before a restart is gone: the rest of it must not be committed alone.
            raise UnknownProducer(header.producer_id)
        seen = self.producers.check(header, allow_gaps=self._config.headrace_overflow == Policy.DROP_NEWEST)
        return AppendInfo(seen.base_offset, seen.last_offset, NO_TIMESTAMP, is_duplicate=True) if seen else None

    # --- roll

    def _is_full(self, active: Segment, size: int, last: Appended, now_ms: int) -> bool:
        config = self._config
        if active.size + size > self._roll_bytes or last.last_offset - active.base_offset > MAX_INT:
            return True
        first = active.first_timestamp
        age = now_ms - self._rolled_ms if first is None or first < 0 else last.max_timestamp - first
        return age > config.roll_ms or active.index_entries >= config.segment_index_bytes // OFFSET_ENTRY_SIZE

    def _roll(self, now_ms: int) -> Segment:
        """Begin a new segment; what the old one still needs on disk is written by the next flush."""
        base = self._end_offset
        try:
            full = self._segments[-1]
            full.seal()
            interval = self._config.index_interval_bytes
            segment = Segment(self._filesystem, self.directory, base, interval_bytes=interval, fresh=True)
        except OSError as error:
            raise refusal(self.directory, error) from error
        self._side_files.add_segment(full)
        self._snapshot_producers(base)
        self._segments = (*self._segments, segment)
        self._names_changed = True
        self._rolled_ms = now_ms
        return segment

    def _snapshot_producers(self, offset: int) -> None:
        """Have the producers as of now written for the next opening, which a log in memory does not have."""
        if not self._is_in_memory:
            self._side_files.add_snapshot(offset, encode_snapshot(self.producers))

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
        return read_segments(self._segments, offset, limit, end, max_bytes, committed=committed)

    # --- durability

    def flush(self, *, rolled_only: bool = False) -> int:
        """Make everything appended so far durable, and say up to which offset that is.

        `rolled_only` leaves the active segment to the operating system, which is all that `durability = "os"` asks.
        """
        with self._flush_lock:
            with self._lock:
                self._filesystem.check()
                segments = self._segments
                target = segments[-1].base_offset if rolled_only else self._end_offset
                names_changed, self._names_changed = self._names_changed, False
            try:
                self._sync(segments, target)
                if names_changed:
                    self._filesystem.sync_directory(self.directory)
            except (OSError, DiskFull, WriteFailed) as error:
                self._names_changed = True
                raise SyncFailed(self.directory, error) from error
            self._durable_offset = max(self._durable_offset, target)
            # All of this can be made again from the batches, so a full disk may hold it up for a while.
            with suppress(OSError):
                self.epochs.save_changes()
                self._side_files.save()
            return self._durable_offset

    def _sync(self, segments: Sequence[Segment], target: int) -> None:
        if target <= self._durable_offset:
            return
        for segment in segments[index_of(segments, self._durable_offset) :]:
            if segment.base_offset < target:
                try:
                    segment.sync(self._durable_offset)
                except RecordsError as error:  # what a failed sync left in doubt is no longer what was written
                    self.truncate_to(self._durable_offset)
                    raise OSError(errno.EIO, f"the unsynced end was lost ({error})") from error

    def close(self) -> None:
        """Make everything durable and leave nothing that the next opening has to rebuild."""
        with self._flush_lock, self._lock:
            active = self._segments[-1]
            active.seal()
            self._side_files.add_segment(active)
            self._snapshot_producers(self._end_offset)
            self.flush()
            try:
                self._finish_swaps()
                self.epochs.save_changes()
                self._side_files.save()
            except OSError as error:
                raise refusal(self.directory, error) from error
            self.abandon()

    def abandon(self) -> None:
        """Let go of the files as they are, as a crash would."""
        for segment in self._segments:
            segment.close()

    def delete(self, move_to: str) -> None:
        """End this log for good: its folder gets another name, and nothing is done to a file after that.

        Whoever holds a part of an open file reads on; everything else is refused with `LogDeleted`.
        """
        with self._lock:
            self._filesystem.shut(self.directory, move_to)

    # --- removing

    def expire(self, now_ms: int) -> int:
        """Move the start to where retention wants it; the new start. The files go with `remove_dead_segments`.

        Appends go on while it looks, which may have to read indexes: what they bring is behind the end it works with.
        """
        with self._lock:
            segments, end = self._segments, self._end_offset
        facts = [SegmentFacts(s.base_offset, s.size, s.largest_timestamp) for s in segments]
        wanted = find_first_retained(facts, self._config, end, now_ms)
        with self._lock:
            return self.advance_start(min(wanted, self._end_offset))

    def expire_producers(self, now_ms: int, expiration_ms: int) -> int:
        """Forget producers that have been silent for this long; how many."""
        with self._lock:
            return self.producers.expire(now_ms, expiration_ms)

    def advance_start(self, offset: int) -> int:
        """Make `offset` the first that can be read, if it is not before the start already (DeleteRecords)."""
        with self._lock:
            self._filesystem.check()
            if offset > self._end_offset:
                raise OffsetOutOfRange(str(self.topic_partition), offset, self._start_offset, self._end_offset)
            self._start_offset = max(self._start_offset, offset)
            return self._start_offset

    def remove_dead_segments(self, now_ms: int) -> list[Segment]:
        """Remove the segments before the start, which must be on disk by then, or a crash brings them back."""
        with self._flush_lock:
            with self._lock:
                if self._start_offset == self._end_offset:
                    with suppress(DiskFull):  # then all but the last goes, and that makes room
                        self.roll(now_ms)
                keep = index_of(self._segments, self._start_offset)
                dead, self._segments = self._segments[:keep], self._segments[keep:]
                base = self._segments[0].base_offset
            if dead:
                self._side_files.forget(dead)
                with suppress(OSError, HeadraceError):  # on a full or broken disk the removal comes first
                    if not self._is_in_memory:
                        self._save_producers(dead, base)
                try:
                    self._forget(dead)
                    self._side_files.remove_snapshots(before=base)
                    self.epochs.drop_before(self._start_offset)
                    self.epochs.save()
                except OSError as error:
                    raise refusal(self.directory, error) from error
            return list(dead)

    def _save_producers(self, dead: Sequence[Segment], base: int) -> None:
        """Have on disk what is known of the producers as of `base`: the batches that say it are about to go."""
        if not self._side_files.has_snapshot(base):
            state = replay(self._filesystem, self.directory, (*dead, *self._segments), base)
            self._side_files.add_snapshot(base, encode_snapshot(state))
        self._side_files.save()

    def _forget(self, segments: Sequence[Segment], *, keep_log: Segment | None = None) -> None:
        self._names_changed = True
        self._side_files.forget(segments)
        self._half_swapped = [(old, new) for old, new in self._half_swapped if new not in segments]
        for segment in segments:
            segment.remove(keep_log=segment is keep_log)
        write_damage(self._filesystem, self.directory, [d for s in self._segments for d in s.damage])

    def swap(self, old: Sequence[Segment], new: Segment) -> bool:
        """Put a compacted segment in the place of those it was made from, unless some of them are gone meanwhile.

        `new` is durable under its `.swap` name. The old files go before it takes their place, so a crash in between
        finds the swap file and finishes the work (`log_loader`).
        """
        with self._flush_lock:
            with self._lock:
                first = self._segments.index(old[0]) if old[0] in self._segments[:-1] else -1
                if first < 0 or self._segments[first : first + len(old)] != tuple(old):
                    return False
                self._segments = (*self._segments[:first], new, *self._segments[first + len(old) :])
            self._half_swapped.append((old, new))
            self.finish_swaps()
            return True

    def finish_swaps(self) -> None:
        """Have the files of compacted segments where they belong, also those for which that failed before."""
        with self._flush_lock:
            try:
                self._finish_swaps()
            except OSError as error:
                raise refusal(self.directory, error) from error

    def _finish_swaps(self) -> None:
        for old, new in list(self._half_swapped):
            self._forget(old, keep_log=old[0])
            self._filesystem.sync_directory(self.directory)
            new.move_to(old[0].path)
            self._side_files.add_segment(new)
            self._half_swapped.remove((old, new))

    def truncate_to(self, offset: int) -> None:
        """Cut off `offset` and all behind it, whole batches, for good; the end is then behind the last that is left.

        The end goes first and each step is synced: a crash in between leaves a shorter log, but never one with a hole,
        nor one that continues with what was cut off.
        """
        with self._flush_lock, self._lock:
            if offset >= self._end_offset:
                return
            self.finish_swaps()
            try:
                while len(self._segments) > 1 and self._segments[-1].base_offset > offset:
                    dead, self._segments = self._segments[-1], self._segments[:-1]
                    self._note_end(dead.base_offset)
                    self._forget([dead])
                    self._filesystem.sync_directory(self.directory)
                active = self._segments[-1]
                self._side_files.forget([active])
                active.truncate(active.position_of(offset), offset)
                self._note_end(active.end_offset)
                self._side_files.remove_snapshots(behind=self._end_offset)
                write_damage(self._filesystem, self.directory, [d for s in self._segments for d in s.damage])
                self.producers = replay(self._filesystem, self.directory, self._segments, self._end_offset)
                self.epochs.truncate_to(self._end_offset)
                self.epochs.save()
                self._filesystem.sync_directory(self.directory)
                active.sync_cut()
            except OSError as error:
                raise refusal(self.directory, error) from error

    def _note_end(self, offset: int) -> None:
        self._end_offset = offset
        self._start_offset = min(self._start_offset, offset)
        self._durable_offset = min(self._durable_offset, offset)
        self.cuts += 1  # last: whoever finds it unchanged finds the end as it was, or a cut that counts later

    def release_indexes(self) -> None:
        """Give back the memory of indexes that are on disk."""
        for segment in self._segments[:-1]:
            segment.release_indexes()
