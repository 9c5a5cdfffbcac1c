"""A pass of compaction over one log: decide, do the work, swap the result in."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import NamedTuple

from headrace.storage.compaction.job import CleanedGroup, CleaningJob, CleaningResult, run, run_in_process
from headrace.storage.compaction.retained import LastRecord
from headrace.storage.config import LogConfig
from headrace.storage.errors import LogDeleted, refusal
from headrace.storage.filesystem import FileSystem
from headrace.storage.log import Log
from headrace.storage.names import CLEANED, LOG, SWAP, file_name
from headrace.storage.reading import collect_aborted
from headrace.storage.segment import Segment


class CompactionFacts(NamedTuple):
    base_offset: int
    size: int
    first_timestamp: int
    largest_timestamp: int


class Cleanable(NamedTuple):
    """The part of a log between the clean and the still untouchable."""

    dirty_offset: int
    uncleanable_offset: int
    dirty_bytes: int
    clean_bytes: int
    is_due: bool

    @property
    def dirty_ratio(self) -> float:
        return self.dirty_bytes / max(self.dirty_bytes + self.clean_bytes, 1)


def decide(
    segments: Sequence[CompactionFacts], config: LogConfig, *, checkpoint: int, stable_offset: int, now_ms: int
) -> Cleanable:
    """How much there is to clean, and whether it is time.

    Never touched: the active segment, what is not decided yet (open transactions), what is younger than
    `min.compaction.lag.ms`.
    """
    start = segments[0].base_offset
    active = segments[-1].base_offset
    dirty_offset = checkpoint if start <= checkpoint <= active else start
    uncleanable = min(active, stable_offset)
    if config.min_compaction_lag_ms > 0:
        for segment in segments[:-1]:
            too_young = now_ms - segment.largest_timestamp < config.min_compaction_lag_ms
            if segment.base_offset >= dirty_offset and too_young:
                uncleanable = min(uncleanable, segment.base_offset)
                break
    # Whole segments only: one that holds an undecided transaction waits with all of its records.
    uncleanable = max(segment.base_offset for segment in segments if segment.base_offset <= max(uncleanable, start))
    dirty = [segment for segment in segments if dirty_offset <= segment.base_offset < uncleanable]
    dirty_bytes = sum(segment.size for segment in dirty)
    clean_bytes = sum(segment.size for segment in segments if segment.base_offset < min(dirty_offset, uncleanable))
    overdue = any(now_ms - segment.first_timestamp > config.max_compaction_lag_ms for segment in dirty if segment.size)
    found = Cleanable(dirty_offset, uncleanable, dirty_bytes, clean_bytes, is_due=False)
    is_dirty_enough = dirty_bytes > 0 and found.dirty_ratio >= config.min_cleanable_dirty_ratio
    return found._replace(is_due=config.compacts and (is_dirty_enough or overdue))


MAX_KEYS = 1_000_000  # of one pass; about 200 MB of map while it runs, 50 if it is the compiled one
OWN_PROCESS_BYTES = 16 * 1024 * 1024  # from here on a job is worth a process

Runner = Callable[[CleaningJob, FileSystem], CleaningResult]


@dataclass(frozen=True, slots=True)
class Cleaned:
    end_offset: int
    bytes_before: int
    bytes_after: int


def run_where_it_fits(job: CleaningJob, filesystem: FileSystem) -> CleaningResult:
    """Large jobs in a process of their own, small ones and those on other file systems here."""
    is_large = sum(size for _, size in job.segments) >= OWN_PROCESS_BYTES
    folder = filesystem.open_directory(job.directory) if is_large else None
    if folder is None:
        return run(job, filesystem)
    try:
        return run_in_process(job, folder)
    finally:
        folder.close()


def cleanable(log: Log, checkpoint: int, now_ms: int) -> Cleanable:
    facts = [CompactionFacts(s.base_offset, s.size, s.first_timestamp or 0, s.largest_timestamp) for s in log.segments]
    return decide(facts, log.config, checkpoint=checkpoint, stable_offset=log.last_stable_offset, now_ms=now_ms)


def clean(
    log: Log,
    *,
    checkpoint: int,
    now_ms: int,
    max_keys: int = MAX_KEYS,
    runner: Runner = run_where_it_fits,
    before_swap: Callable[[], None] = lambda: None,
) -> Cleaned | None:
    """Clean the log as far as it may be cleaned; None if there is nothing to do.

    `before_swap` writes down how far the log is durable: recovery takes a hole behind that for a crash's.
    Appends and reads go on all the while: the work is done on files that no longer change, and readers keep the
    segments they hold. A log with damage is left alone, so that nothing of what is left is lost; one that is deleted
    meanwhile ends the pass with `LogDeleted`.
    """
    filesystem = log.filesystem
    log.finish_swaps()
    cuts = log.cuts
    found = cleanable(log, checkpoint, now_ms)
    by_base = {segment.base_offset: segment for segment in log.segments}
    segments = [segment for base, segment in by_base.items() if base < found.uncleanable_offset]
    if not segments or any(segment.damage for segment in segments):
        return None
    log.flush()  # what is cleaned, and the markers that decide it, must not come back torn from a crash
    job = CleaningJob(
        directory=log.directory,
        segments=tuple((segment.base_offset, segment.size) for segment in segments),
        dirty_offset=found.dirty_offset,
        uncleanable_offset=found.uncleanable_offset,
        segment_bytes=log.config.segment_bytes,
        delete_retention_ms=log.config.delete_retention_ms,
        now_ms=now_ms,
        max_keys=max_keys,
        aborted=tuple(collect_aborted(log.segments, segments[0].base_offset, found.uncleanable_offset)),
        producers={
            producer.producer_id: LastRecord(producer.last_offset, producer.epoch)
            for producer in list(log.producers.producers.values())
        },
    )
    try:
        result = runner(job, filesystem)
        before_swap()
        for group in result.groups:
            if log.cuts == cuts:
                swap_in(log, group, [by_base[base] for base in group.segments])
    except BaseException as error:
        with suppress(OSError, LogDeleted):
            _remove_leftovers(job, filesystem)
        filesystem.check()  # the files may have been removed under the work
        if isinstance(error, OSError):
            raise refusal(log.directory, error) from error
        raise
    if log.cuts != cuts:
        _remove_leftovers(job, filesystem)
        return None
    return Cleaned(result.end_offset, result.bytes_read, result.bytes_written)


def swap_in(log: Log, group: CleanedGroup, old: list[Segment]) -> None:
    """Put a file that is whole and durable in the place of the segments it was made from."""
    filesystem = log.filesystem
    base = group.segments[0]
    path = f"{log.directory}/{file_name(base, LOG)}"
    cleaned = path + CLEANED
    new = Segment(filesystem, log.directory, base, interval_bytes=log.config.index_interval_bytes, suffix=CLEANED)
    new.rebuild_indexes(group.aborted)
    new.move_to(path + SWAP)
    try:
        filesystem.sync_directory(log.directory)
    except OSError:
        new.move_to(cleaned)  # or the next opening would put it in place, whatever has become of the log by then
        raise
    if not log.swap(old, new):
        filesystem.remove(new.path)


def _remove_leftovers(job: CleaningJob, filesystem: FileSystem) -> None:
    """A failed job must not keep the space that it may have failed for want of."""
    for base, _ in job.segments:
        path = f"{job.directory}/{file_name(base, LOG)}{CLEANED}"
        if filesystem.exists(path):
            filesystem.remove(path)
