"""Opening a partition's folder: finishing what a crash interrupted, and cutting off what it tore.

After a clean shutdown nothing is read but names, sizes and the last batch, unless that little cannot be read or the log
does not end where it was closed. After a crash, or then, everything behind the recovery point is checked batch by
batch, by length and checksum:
- what is behind the recovery point and not whole was never acknowledged as durable: it is cut off, with all behind it,
  and so is what follows a hole between two segments, which a crash leaves where the earlier file lost its end;
- what is before the recovery point was durable once, so it is damage: it is reported with file and position, kept, and
  never served, and reading goes on behind it.
Missing indexes are made anew from the batches.
"""

from contextlib import suppress
from dataclasses import dataclass, field

from headrace.model import TopicPartition
from headrace.records import BatchHeader, CorruptBatch
from headrace.storage.checkpoint import CorruptCheckpoint, Damage, LeaderEpochs, read_damage, write_damage
from headrace.storage.config import MAX_INT, MAX_LONG, LogConfig
from headrace.storage.errors import InconsistentStart
from headrace.storage.fence import Fence
from headrace.storage.filesystem import FileSystem
from headrace.storage.log import Log
from headrace.storage.names import CLEANED, DELETED, INDEX_SUMS, INDEXES, LOG, SWAP, TEMPORARY, file_name, offset_of
from headrace.storage.producer_snapshot import apply_batch, remove_snapshots, replay, save_snapshot, snapshot_offsets
from headrace.storage.producer_state import ProducerState
from headrace.storage.scan import batch_at, find_batch, scan
from headrace.storage.segment import Segment


@dataclass(slots=True)
class Recovery:
    """What opening a log found and did, for the log line and for tests."""

    topic_partition: TopicPartition
    scanned_bytes: int = 0
    cut_bytes: int = 0
    cut_at: str = ""
    cut_reason: str = ""
    removed_segments: int = 0
    damage: list[Damage] = field(default_factory=list)

    @property
    def is_clean(self) -> bool:
        return not (self.cut_bytes or self.removed_segments or self.damage)


def open_log(
    filesystem: FileSystem,
    directory: str,
    topic_partition: TopicPartition,
    config: LogConfig,
    *,
    now_ms: int,
    start_offset: int = 0,
    recovery_point: int | None = None,
    cleaned_to: int = 0,
    was_clean: bool = False,
) -> tuple[Log, Recovery]:
    """Open (or begin) the log in `directory`, recovered; and what that took.

    Everything before `recovery_point` was durable, if that is known; compaction, which leaves holes, went no further
    than that and `cleaned_to`.
    """
    filesystem = Fence(filesystem, str(topic_partition))
    epochs = LeaderEpochs(filesystem, directory)
    epochs.load()
    loader = _Loader(filesystem, directory, topic_partition, config, epochs, recovery_point, cleaned_to)
    loader.finish_interrupted_work()
    segments = loader.open_segments(start_offset)
    first = loader.first_to_check(segments, was_clean=was_clean)
    try:
        if first == len(segments):
            end_offset = segments[-1].end_offset
            loader.check_end(segments[-1], recovery_point)
            producers = replay(filesystem, directory, segments, end_offset)
    except CorruptBatch:  # it was whole when it was closed, so this is damage
        first = 0
    if first < len(segments):
        segments, producers, end_offset = loader.recover(segments, first)
    if start_offset > end_offset:
        raise InconsistentStart(directory, start_offset, end_offset)
    epochs.truncate_to(end_offset)
    remove_snapshots(filesystem, directory, behind=end_offset)
    log = Log(
        filesystem,
        directory,
        topic_partition,
        config,
        segments=segments,
        producers=producers,
        epochs=epochs,
        start_offset=max(start_offset, segments[0].base_offset),
        end_offset=end_offset,
        durable_offset=end_offset if was_clean else min(recovery_point or 0, end_offset),
        opened_ms=now_ms,
    )
    return log, loader.found


class _Loader:
    """One opening of one log: holds what its steps share."""

    def __init__(
        self,
        filesystem: FileSystem,
        directory: str,
        topic_partition: TopicPartition,
        config: LogConfig,
        epochs: LeaderEpochs,
        recovery_point: int | None,
        cleaned_to: int,
    ) -> None:
        self._filesystem = filesystem
        self._directory = directory
        self._config = config
        self._epochs = epochs
        self._recovery_point = recovery_point or 0
        # Where nobody wrote down what was durable, nobody can tell a crash's hole from one that compaction left.
        self._holes_from = MAX_LONG if recovery_point is None else max(recovery_point, cleaned_to)
        self._check_all = False
        self.found = Recovery(topic_partition)

    # --- before the segments are opened

    def finish_interrupted_work(self) -> None:
        """Remove what was never finished, and put finished compactions in place."""
        names = self._filesystem.list(self._directory)
        for name in names:
            if name.endswith((TEMPORARY, CLEANED, DELETED)):
                self._filesystem.remove(f"{self._directory}/{name}")
        for name in names:
            base = offset_of(name.removesuffix(SWAP), LOG)
            if name.endswith(SWAP) and base is not None:
                self._finish_swap(base)

    def _finish_swap(self, base: int) -> None:
        """A compacted segment replaces the segments whose offsets it covers."""
        swap = self._segment(base, suffix=SWAP)
        swap.begin_rebuild()  # the index files with this base belong to the segment that is being replaced
        last = swap.last_header()
        behind = last.next_offset if last else base + 1
        for name in self._filesystem.list(self._directory):
            for suffix in (*INDEXES, INDEX_SUMS, LOG):
                offset = offset_of(name, suffix)
                if (
                    offset is not None
                    and (offset == base or base < offset < behind)
                    and (suffix != LOG or offset != base)
                ):
                    self._filesystem.remove(f"{self._directory}/{name}")
        self._filesystem.sync_directory(self._directory)
        swap.move_to(f"{self._directory}/{file_name(base, LOG)}")
        swap.close()

    # --- opening

    def _segment(self, base: int, suffix: str = "") -> Segment:
        interval = self._config.index_interval_bytes
        return Segment(self._filesystem, self._directory, base, interval_bytes=interval, suffix=suffix)

    def open_segments(self, start_offset: int) -> list[Segment]:
        """A segment for every log file, oldest first, without those that lie before the start; at least one."""
        names = self._filesystem.list(self._directory)
        bases = [base for base in (offset_of(name, LOG) for name in names) if base is not None]
        for name in names:
            for suffix in (*INDEXES, INDEX_SUMS):
                base = offset_of(name, suffix)
                if base is not None and base not in bases:
                    self._filesystem.remove(f"{self._directory}/{name}")
        segments = [self._segment(base) for base in bases]
        try:
            damage = read_damage(self._filesystem, self._directory)
        except CorruptCheckpoint:
            damage, self._check_all = [], True  # where the damage is can be found out again
        for segment in segments:
            segment.damage = tuple(entry for entry in damage if entry.segment == segment.base_offset)
        # What is damaged was durable once, whatever a checkpoint says that is older than the damage.
        self._recovery_point = max([self._recovery_point, *(entry.next_offset for entry in damage)])
        return self._without_dead(segments, start_offset) or [self._segment(start_offset)]

    def _without_dead(self, segments: list[Segment], start_offset: int) -> list[Segment]:
        """Remove the segments before the start, once what they say of producers is in a snapshot."""
        count = sum(segment.base_offset <= start_offset for segment in segments[1:])
        if count:
            base = segments[count].base_offset
            if base not in snapshot_offsets(self._filesystem, self._directory):
                with suppress(CorruptBatch):
                    producers = replay(self._filesystem, self._directory, segments, base)
                    save_snapshot(self._filesystem, self._directory, base, producers)
            for dead in segments[:count]:
                dead.remove()
        return segments[count:]

    def first_to_check(self, segments: list[Segment], *, was_clean: bool) -> int:
        for index, segment in enumerate(segments):
            is_last = index == len(segments) - 1
            if self._check_all:
                return index
            if not was_clean and (is_last or segments[index + 1].base_offset > self._recovery_point):
                return index
            if segment.size and not segment.has_indexes:
                return index
        return len(segments)

    def check_end(self, last: Segment, recovery_point: int | None) -> None:
        """Raise `CorruptBatch` unless the log ends where it was closed.

        Its end is read from its last batch's offset, which no checksum covers: what is appended behind a wrong one is
        cut off as torn at the next opening.
        """
        end = last.end_offset
        if end < last.base_offset or (recovery_point is not None and end != recovery_point):
            raise CorruptBatch(f"the log ends at offset {end}, and was closed at {recovery_point}", last.size)

    # --- recovering

    def recover(self, segments: list[Segment], first: int) -> tuple[list[Segment], ProducerState, int]:
        """Check the segments from `first` on; the segments that are left, the producers, and the end offset."""
        expected = segments[first].base_offset
        try:
            producers = replay(self._filesystem, self._directory, segments[:first], expected)
        except CorruptBatch:  # the snapshot of the producers is lost, and batches that would have been passed over too
            return self.recover(segments, 0)
        for index in range(first, len(segments)):
            segment = segments[index]
            behind = segments[index + 1].base_offset if index + 1 < len(segments) else None
            expected, tear = self._check(segment, max(expected, segment.base_offset), behind, producers)
            if tear or self._is_hole(expected, behind):
                self._drop(segments[index + 1 :])
                if tear:
                    self._cut(segment, tear.position, expected, tear.reason)
                segments = segments[: index + 1]
                break
        if segments[-1].damage and segments[-1].damage[-1].next_offset >= expected:
            # The damage reaches to the end: leave the file as it is, and write on in a new one.
            segments.append(self._segment(expected))
        write_damage(self._filesystem, self._directory, [entry for segment in segments for entry in segment.damage])
        for segment in segments[first:]:
            # A process may have died, and the machine not: then its last cut is only in the page cache, and so is what
            # a sync failed to write, which the kernel takes for written. The next flush writes it again.
            segment.sync_cut()
            segment.in_doubt = segment.size > 0
        return segments, producers, expected

    def _is_hole(self, expected: int, behind: int | None) -> bool:
        """Whether the offsets from `expected` to the next segment are missing, and not because they were cleaned."""
        return behind is not None and behind > expected >= self._holes_from

    def _drop(self, segments: list[Segment]) -> None:
        """Remove what follows a tear, from the end and for good, before the tear itself is mended.

        A second crash would otherwise find a whole segment, and those that should be gone behind it.
        """
        for dead in reversed(segments):
            self.found.removed_segments += 1
            self.found.cut_bytes += dead.size
            dead.remove()
            self._filesystem.sync_directory(self._directory)

    def _check(
        self, segment: Segment, expected: int, behind: int | None, producers: ProducerState
    ) -> tuple[int, CorruptBatch | None]:
        """Check a segment's batches and index them; the offset behind the last, and where it has to be cut if so."""
        indexes = segment.begin_rebuild()
        segment.damage = ()
        position = 0
        while position < segment.size:
            try:
                for at, header, batch in scan(segment.file, position, segment.size):
                    if self._is_misplaced(segment, at, header, expected, behind):
                        raise CorruptBatch(f"offset {header.base_offset} where {expected} was due", at)
                    segment.note(at, header)
                    self._epochs.note(header.leader_epoch, header.base_offset)
                    aborted = apply_batch(producers, header, batch)
                    if aborted:
                        indexes.transactions.append(aborted)
                    expected = header.next_offset
                    position = at + header.size
                    self.found.scanned_bytes += header.size
            except CorruptBatch as error:
                if expected >= self._recovery_point:
                    return expected, CorruptBatch(error.reason, position)
                position, expected = self._step_over(segment, position, expected, behind)
        segment.seal()
        return expected, None

    def _is_misplaced(self, segment: Segment, at: int, header: BatchHeader, expected: int, behind: int | None) -> bool:
        """Whether a batch cannot be where it stands; no checksum covers its offset.

        Compaction leaves holes between batches, so an offset that is too large is judged by what follows: a batch, or
        an end, that would fit if there were no hole. So is a batch that reaches over the recovery point, where one
        ended: what follows it was durable, and would be cut off.
        """
        reaches_over = expected < self._recovery_point < header.next_offset
        if header.base_offset == expected and (behind is None or header.next_offset <= behind) and not reaches_over:
            return False
        if header.base_offset < expected or (behind is not None and header.next_offset > behind):
            return True
        if header.last_offset - segment.base_offset > MAX_INT:  # Kafka begins another segment before that
            return True
        behind_it = at + header.size, segment.size, expected, MAX_LONG
        following = batch_at(segment.file, *behind_it) or find_batch(segment.file, *behind_it)
        if following:
            return following.header.base_offset < header.next_offset
        end = self._recovery_point if behind is None else behind
        return header.next_offset != end and expected + header.last_offset_delta + 1 == end

    def _cut(self, segment: Segment, position: int, next_offset: int, reason: str) -> None:
        self.found.cut_bytes += segment.size - position
        self.found.cut_at = f"{segment.path} at byte {position}"
        self.found.cut_reason = reason
        segment.truncate(position, next_offset)
        segment.sync_cut()

    def _step_over(self, segment: Segment, position: int, expected: int, behind: int | None) -> tuple[int, int]:
        """Note damage at `position`; where reading goes on, and the offset that comes next."""
        limit = self._recovery_point if behind is None else behind
        found = find_batch(segment.file, position + 1, segment.size, expected, limit + 2**31)
        end = found.position if found else segment.size
        next_offset = found.header.base_offset if found else limit
        damage = Damage(segment.base_offset, position, end - position, expected, next_offset)
        segment.damage = (*segment.damage, damage)
        self.found.damage.append(damage)
        return end, next_offset
