"""What a log ought to hold: a list of batches, and everything else worked out from it without cleverness."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from hypothesis import HealthCheck, Phase, settings

from headrace.records import BatchHeader, ControlType, Record, control_type_of, crc_of, headers_in, records_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from headrace.storage.log import Log

EXAMPLES = float(os.environ.get("HEADRACE_EXAMPLES", "0.3"))


def count_examples(count: int) -> int:
    """So many, times what HEADRACE_EXAMPLES says; never the first alone, which is always the simplest there is."""
    return max(2, round(count * EXAMPLES))


def examples(count: int, **options: object) -> settings:
    """Settings for `count_examples` of these; a failure prints the blob that replays it."""
    return settings(
        max_examples=count_examples(count),
        deadline=None,
        print_blob=True,
        phases=[Phase.explicit, Phase.reuse, Phase.generate, Phase.shrink],
        suppress_health_check=list(HealthCheck),
        **options,
    )


@dataclass
class Batch:
    """A batch that was appended."""

    base: int
    records: list[Record]
    max_timestamp: int = -1
    producer_id: int = -1
    epoch: int = -1
    sequence: int = -1
    transactional: bool = False
    marker: ControlType | None = None
    coordinator_epoch: int = -1
    count: int = 0
    horizon: int | None = None

    def __post_init__(self) -> None:
        self.count = self.count or len(self.records)

    @property
    def is_data(self) -> bool:
        return self.marker is None

    @property
    def next(self) -> int:
        return self.base + self.count

    @property
    def last_sequence(self) -> int:
        return self.sequence + self.count - 1


@dataclass
class ProducerFacts:
    """What must be known of a producer."""

    epoch: int
    last_sequence: int = -1
    last_offset: int = -1
    transaction_start: int | None = None


@dataclass
class Derived:
    """What follows from a list of batches."""

    producers: dict[int, ProducerFacts] = field(default_factory=dict)
    aborted: set[int] = field(default_factory=set)  # base offsets of batches that were rolled back
    open: set[int] = field(default_factory=set)  # base offsets of batches that are undecided


def derive(batches: list[Batch]) -> Derived:
    """Walk the batches once, in order."""
    state = Derived()
    pending: dict[int, list[int]] = {}
    for batch in batches:
        if batch.producer_id < 0:
            continue
        facts = state.producers.get(batch.producer_id)
        if facts is None or facts.epoch != batch.epoch:
            start = facts.transaction_start if facts else None
            facts = state.producers[batch.producer_id] = ProducerFacts(batch.epoch, transaction_start=start)
        if batch.marker is None:
            facts.last_sequence, facts.last_offset = batch.last_sequence, batch.next - 1
            if batch.transactional:
                pending.setdefault(batch.producer_id, []).append(batch.base)
                if facts.transaction_start is None:
                    facts.transaction_start = batch.base
        else:
            ended = pending.pop(batch.producer_id, [])
            facts.transaction_start = None
            if batch.marker is ControlType.ABORT:
                state.aborted.update(ended)
    state.open = {base for bases in pending.values() for base in bases}
    return state


def stable_offset(state: Derived, end: int) -> int:
    starts = [facts.transaction_start for facts in state.producers.values() if facts.transaction_start is not None]
    return min(starts, default=end)


def compact(batches: list[Batch], upto: int, now_ms: int, delete_retention_ms: int) -> None:
    """Keep what compaction of everything before `upto` keeps."""
    state = derive(batches)
    latest: dict[bytes | None, int] = {}
    data = [b for b in batches if b.marker is None and b.base < upto]
    for batch in data:
        if batch.base not in state.aborted:
            latest.update({record.key: record.offset for record in batch.records})
    for batch in data:
        if batch.base in state.aborted:
            batch.records = []
            continue
        is_past = batch.horizon is not None and batch.horizon <= now_ms
        batch.records = [
            record
            for record in batch.records
            if record.key is not None and latest[record.key] == record.offset
            if record.value is not None or not is_past
        ]
        if batch.horizon is None and any(record.value is None for record in batch.records):
            batch.horizon = now_ms + delete_retention_ms


# --- reading a log as a client does


def read_batches(log: Log, offset: int | None = None, max_bytes: int = 700) -> Iterator[tuple[BatchHeader, bytes]]:
    """Each batch from `offset` on; each is whole, unaltered, and behind the one before."""
    offset = log.start_offset if offset is None else offset
    expected = -1
    while offset < log.end_offset:
        found = log.read(offset, max_bytes).slice
        if found is None:
            return
        data = found.read()
        assert len(data) == found.size == len(found)
        served = list(headers_in(data))
        assert served, "a fetch holds at least one whole batch"
        assert served[0][1].last_offset >= offset
        for position, header in served:
            batch = data[position : position + header.size]
            assert crc_of(batch) == header.crc
            assert header.base_offset >= expected
            expected = offset = header.next_offset
            yield header, batch


def read_records(log: Log, offset: int | None = None, max_bytes: int = 700) -> list[Record]:
    """Every record from `offset` on, without markers."""
    first = log.start_offset if offset is None else offset
    return [
        record
        for header, batch in read_batches(log, first, max_bytes)
        if not header.is_control
        for record in records_of(batch)
        if record.offset >= first
    ]


def read_committed(log: Log, offset: int | None = None, max_bytes: int = 700) -> list[Record]:
    """What a consumer with `isolation.level=read_committed` sees, by the consumer's own procedure."""
    offset = log.start_offset if offset is None else offset
    records: list[Record] = []
    while offset < log.end_offset:
        found, aborted = log.read(offset, max_bytes, committed=True)
        if found is None:
            break
        data = found.read()
        coming = sorted(aborted, key=lambda entry: entry.first_offset)
        skipped: set[int] = set()
        first = offset
        for position, header in headers_in(data):
            batch = data[position : position + header.size]
            while coming and coming[0].first_offset <= header.last_offset:
                skipped.add(coming.pop(0).producer_id)
            if header.is_control:
                marker = control_type_of(batch) if header.record_count else None
                if marker and marker[0] is ControlType.ABORT:
                    skipped.discard(header.producer_id)
            elif not (header.is_transactional and header.producer_id in skipped):
                records += [record for record in records_of(batch) if record.offset >= first]
            offset = header.next_offset
    return records


def producer_facts(log: Log) -> dict[int, ProducerFacts]:
    """What the log knows of its producers."""
    return {
        producer.producer_id: ProducerFacts(
            producer.epoch, producer.last_sequence, producer.last_offset, producer.transaction_start
        )
        for producer in log.producers.producers.values()
    }
