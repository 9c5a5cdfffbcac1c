"""From batches in a log to the state of its producers: at append, at recovery, and after a cut."""

from collections.abc import Sequence

from headrace.records import BatchHeader, Buffer, control_type_of
from headrace.storage.filesystem import FileSystem
from headrace.storage.producer_snapshot import load_snapshot
from headrace.storage.producer_state import ProducerState
from headrace.storage.scan import scan
from headrace.storage.segment import Segment
from headrace.storage.transaction_index import AbortedTransaction


def apply_batch(producers: ProducerState, header: BatchHeader, batch: Buffer) -> AbortedTransaction | None:
    """Take in a batch that is in the log; the transaction that it aborted, for the segment's index."""
    if header.producer_id < 0:
        return None
    if not header.is_control:
        producers.apply(header)
        return None
    if not header.record_count:  # all that compaction left of a marker whose transaction is gone
        producers.apply_epoch(header)
        return None
    marker = control_type_of(batch)
    return producers.apply_marker(header, *marker) if marker else None


def replay(filesystem: FileSystem, directory: str, segments: Sequence[Segment], end_offset: int) -> ProducerState:
    """The producers as of `end_offset`: the newest snapshot before it, and the batches since then."""
    offset, producers = load_snapshot(filesystem, directory, end_offset) or (0, ProducerState())
    for index, segment in enumerate(segments):
        behind = segments[index + 1].base_offset if index + 1 < len(segments) else end_offset
        if segment.base_offset >= end_offset or behind <= offset:
            continue
        for start, stop in segment.readable(segment.position_of(offset)):
            for _, header, batch in scan(segment.file, start, stop):
                if offset <= header.base_offset < end_offset:
                    apply_batch(producers, header, batch)
    return producers
