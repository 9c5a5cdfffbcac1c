"""Which records are old enough, or many enough, to go. Pure: facts in, an offset out.

Whole segments go, oldest first, as in Kafka: by age when a segment's youngest record is older than `retention.ms`, by
size while what remains is still at least `retention.bytes`.
"""

from collections.abc import Sequence
from typing import NamedTuple

from headrace.storage.config import LogConfig


class SegmentFacts(NamedTuple):
    base_offset: int
    size: int
    largest_timestamp: int


def find_first_retained(segments: Sequence[SegmentFacts], config: LogConfig, end_offset: int, now_ms: int) -> int:
    """The offset at which the log should begin; `end_offset` if all of it has expired."""
    if not config.deletes:
        return segments[0].base_offset
    starts = [segment.base_offset for segment in segments] + [end_offset]
    return starts[max(_count_expired(segments, config, now_ms), _count_surplus(segments, config))]


def _count_expired(segments: Sequence[SegmentFacts], config: LogConfig, now_ms: int) -> int:
    """How many of the oldest segments are past their time; the last one only counts if it holds anything."""
    if config.retention_ms < 0:
        return 0
    for index, segment in enumerate(segments):
        is_empty_tail = index == len(segments) - 1 and not segment.size
        if is_empty_tail or now_ms - segment.largest_timestamp <= config.retention_ms:
            return index
    return len(segments)


def _count_surplus(segments: Sequence[SegmentFacts], config: LogConfig) -> int:
    """How many of the oldest segments the log can lose and still hold `retention.bytes`; never the last one."""
    if config.retention_bytes < 0:
        return 0
    surplus = sum(segment.size for segment in segments) - config.retention_bytes
    for index, segment in enumerate(segments[:-1]):
        surplus -= segment.size
        if surplus < 0:
            return index
    return len(segments) - 1
