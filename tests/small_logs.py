"""Making and reading small logs, for tests of all kinds: records in, records out, nothing clever between."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.model import TopicPartition
from headrace.records import (
    BatchHeader,
    ControlType,
    Record,
    build_batch,
    build_marker,
    control_type_of,
    headers_in,
    records_of,
)
from headrace.storage.config import LogConfig
from headrace.storage.log_loader import open_log

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from headrace.storage.filesystem import FileSystem
    from headrace.storage.log import AppendInfo, Log
    from headrace.storage.log_loader import Recovery

EPOCH_MS = 1_700_000_000_000
PARTITION = TopicPartition("orders", 0)
FOLDER = "data/orders-0"


def open_small_log(filesystem: FileSystem, config: LogConfig | None = None, **options: object) -> tuple[Log, Recovery]:
    """The log `orders-0` on `filesystem`, made if it is not there."""
    filesystem.make_directory(FOLDER)
    return open_log(filesystem, FOLDER, PARTITION, config or LogConfig(), **{"now_ms": EPOCH_MS, **options})


def new_log(filesystem: FileSystem, **config: object) -> Log:
    """The same, where only the log matters."""
    return open_small_log(filesystem, LogConfig(**config))[0]


def some_records(count: int, *, first: int = 0, size: int = 20, at_ms: int = EPOCH_MS) -> list[Record]:
    """Records of one size, numbered from 0 as a producer numbers them; what they say is numbered from `first`."""
    return [
        Record(n, at_ms + first + n, b"key-%04d" % (first + n), (b"value-%d " % (first + n)).ljust(size, b"."))
        for n in range(count)
    ]


def append(
    log: Log, records: Iterable[Record], *, now_ms: int = EPOCH_MS, epoch: int = 0, **options: object
) -> AppendInfo:
    """Append one batch."""
    return log.append(build_batch(records, **options), now_ms=now_ms, leader_epoch=epoch)


def end_transaction(
    log: Log,
    kind: ControlType,
    producer_id: int,
    *,
    producer_epoch: int = 0,
    coordinator_epoch: int = 0,
    now_ms: int = EPOCH_MS,
) -> AppendInfo:
    """Append a marker, as the transaction coordinator does."""
    marker = build_marker(
        kind,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        coordinator_epoch=coordinator_epoch,
        timestamp=now_ms,
    )
    return log.append(marker, now_ms=now_ms, from_client=False)


def batches_from(
    log: Log, offset: int | None = None, *, max_bytes: int = 64 * 1024
) -> Iterator[tuple[BatchHeader, bytes]]:
    """Each batch from `offset` on, read as a fetch reads."""
    offset = log.start_offset if offset is None else offset
    while offset < log.end_offset:
        found = log.read(offset, max_bytes).slice
        if found is None:
            return
        data = found.read()
        for position, header in headers_in(data):
            yield header, data[position : position + header.size]
            offset = header.next_offset


def records_from(log: Log, offset: int | None = None) -> list[Record]:
    """Every record from `offset` on, without markers."""
    return [
        record for header, batch in batches_from(log, offset) if not header.is_control for record in records_of(batch)
    ]


def committed_from(log: Log, offset: int | None = None, *, max_bytes: int = 64 * 1024) -> list[Record]:
    """What a consumer with `isolation.level=read_committed` makes of the log, by the consumer's own procedure."""
    offset = log.start_offset if offset is None else offset
    records: list[Record] = []
    while offset < log.end_offset:
        found, aborted = log.read(offset, max_bytes, committed=True)
        if found is None:
            break
        data = found.read()
        coming = sorted(aborted, key=lambda entry: entry.first_offset)
        skipped: set[int] = set()
        for position, header in headers_in(data):
            batch = data[position : position + header.size]
            while coming and coming[0].first_offset <= header.last_offset:
                skipped.add(coming.pop(0).producer_id)
            if header.is_control:
                marker = control_type_of(batch)
                if marker and marker[0] is ControlType.ABORT:
                    skipped.discard(header.producer_id)
            elif not (header.is_transactional and header.producer_id in skipped):
                records += [record for record in records_of(batch) if record.offset >= offset]
            offset = header.next_offset
    return records
