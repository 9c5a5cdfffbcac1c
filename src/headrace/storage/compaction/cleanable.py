"""Whether a log is worth cleaning, and how far it may be cleaned. Pure: facts in, a decision out."""

from collections.abc import Sequence
from typing import NamedTuple

from headrace.storage.config import LogConfig


class CompactionFacts(NamedTuple):
    """What the decision looks at, of one segment."""

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
        """How much of what may be cleaned is dirty."""
        return self.dirty_bytes / max(self.dirty_bytes + self.clean_bytes, 1)


def decide(
    segments: Sequence[CompactionFacts],
    config: LogConfig,
    *,
    checkpoint: int,
    stable_offset: int,
    now_ms: int,
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
