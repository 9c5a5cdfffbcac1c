"""A log's producers in a file: Kafka's `.snapshot`, named after the offset up to which it holds.

`version i16, crc u32 of all that follows, count i32`, then per producer `id i64, epoch i16, last sequence i32, last
offset i64, offset delta i32, timestamp i64, coordinator epoch i32, open transaction's first offset i64`.

Kafka's format keeps a producer's last batch alone, and a client may send any of its last five again: refused, it would
send them under a new epoch, and they would be stored twice. So the older ones stand behind Kafka's entries, where a
Kafka broker does not look: `count i32`, then per batch `producer id i64, last sequence i32, last offset i64, offset
delta i32, timestamp i64`, oldest first. The checksum covers them, as it covers everything up to the end of the file.
"""

import struct
from collections.abc import Sequence
from struct import Struct

from headrace.records import BatchHeader, Buffer, control_type_of
from headrace.records.checksum import crc32c
from headrace.storage.atomic_file import write_atomically
from headrace.storage.filesystem import FileSystem
from headrace.storage.indexes import AbortedTransaction
from headrace.storage.names import SNAPSHOT, file_name, offset_of
from headrace.storage.producer_state import BATCHES_REMEMBERED, Producer, ProducerState, SeenBatch
from headrace.storage.scan import scan
from headrace.storage.segment import Segment

_VERSION = 1
_HEAD = Struct(">hI")
_COUNT = Struct(">i")
_ENTRY = Struct(">qhiqiqiq")
_OLDER = Struct(">qiqiq")


def encode_snapshot(state: ProducerState) -> bytes:
    older = [
        _OLDER.pack(producer.producer_id, *batch)
        for producer in state.producers.values()
        for batch in list(producer.batches)[:-1]
    ]
    entries = [_COUNT.pack(len(state))]
    for producer in state.producers.values():
        delta = producer.batches[-1].offset_delta if producer.batches else 0
        start = -1 if producer.transaction_start is None else producer.transaction_start
        entries.append(
            _ENTRY.pack(
                producer.producer_id,
                producer.epoch,
                producer.last_sequence,
                producer.last_offset,
                delta,
                producer.last_timestamp,
                producer.coordinator_epoch,
                start,
            )
        )
    if older:
        entries += [_COUNT.pack(len(older)), *older]
    body = b"".join(entries)
    return _HEAD.pack(_VERSION, crc32c(body)) + body


def decode_snapshot(data: bytes) -> ProducerState | None:
    """The state in a file, or None if the file is no whole snapshot: the log is then replayed from an older one."""
    if len(data) < _HEAD.size + _COUNT.size:
        return None
    version, crc = _HEAD.unpack_from(data)
    body = data[_HEAD.size :]
    if version != _VERSION or crc32c(body) != crc:
        return None
    try:
        entries, rest = _split(body, _ENTRY)
        older, rest = _split(rest, _OLDER) if rest else ([], b"")
    except struct.error:
        return None
    if rest:
        return None
    state = ProducerState()
    for entry in entries:
        producer_id, epoch, sequence, offset, delta, timestamp, coordinator_epoch, start = entry
        producer = Producer(producer_id, epoch)
        if sequence >= 0:
            producer.batches.append(SeenBatch(sequence, offset, delta, timestamp))
        producer.last_timestamp = timestamp
        producer.coordinator_epoch = coordinator_epoch
        producer.transaction_start = None if start < 0 else start
        state.add(producer)
    for producer_id, *batch in reversed(older):
        if producer_id not in state.producers:
            return None
        batches = state.producers[producer_id].batches
        if len(batches) < BATCHES_REMEMBERED:  # a full one would push out the last batch
            batches.appendleft(SeenBatch(*batch))
    return state


def _split(data: bytes, entry: Struct) -> tuple[list[tuple[int, ...]], bytes]:
    """The entries that stand behind their count, and what stands behind them."""
    (count,) = _COUNT.unpack_from(data)
    end = _COUNT.size + count * entry.size
    if not _COUNT.size <= end <= len(data):
        raise struct.error(f"{count} entries are announced")
    return list(entry.iter_unpack(data[_COUNT.size : end])), data[end:]


def snapshot_offsets(filesystem: FileSystem, directory: str) -> list[int]:
    """The offsets for which a snapshot is there, ascending."""
    offsets = (offset_of(name, SNAPSHOT) for name in filesystem.list(directory))
    return [offset for offset in offsets if offset is not None]


def load_snapshot(filesystem: FileSystem, directory: str, at_most: int) -> tuple[int, ProducerState] | None:
    """The newest readable snapshot not behind `at_most`, with its offset; unreadable ones are removed."""
    for offset in reversed(snapshot_offsets(filesystem, directory)):
        path = f"{directory}/{file_name(offset, SNAPSHOT)}"
        if offset <= at_most:
            state = decode_snapshot(filesystem.read(path))
            if state is not None:
                return offset, state
            filesystem.remove(path)
    return None


def save_snapshot(filesystem: FileSystem, directory: str, offset: int, state: ProducerState) -> None:
    """Write the state as of `offset`, durably."""
    write_atomically(filesystem, f"{directory}/{file_name(offset, SNAPSHOT)}", encode_snapshot(state))


def remove_snapshots(filesystem: FileSystem, directory: str, *, before: int = -1, behind: int = 2**63) -> None:
    """Remove the snapshots for offsets under `before` or over `behind`."""
    for offset in snapshot_offsets(filesystem, directory):
        if offset < before or offset > behind:
            filesystem.remove(f"{directory}/{file_name(offset, SNAPSHOT)}")


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
