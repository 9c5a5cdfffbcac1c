"""Batches that we write ourselves: from records, and the markers that end a transaction in every partition it wrote to.

A marker is a batch of its own with one record. Its key is `version i16, type i16`; the value of a transaction marker
is `version i16, coordinator epoch i32`.
"""

from collections.abc import Iterable
from enum import IntEnum
from struct import Struct, error

from headrace.records.batch import CONTROL, LOG_APPEND_TIME, MAGIC, TRANSACTIONAL, BatchHeader, Buffer, assemble
from headrace.records.compression import Codec, compress
from headrace.records.errors import CorruptBatch, InvalidRecord
from headrace.records.record import Record, encode, records_of


def build_batch(
    records: Iterable[Record],
    *,
    codec: int = Codec.NONE,
    base_offset: int | None = None,
    leader_epoch: int = -1,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    transactional: bool = False,
    log_append_time: bool = False,
) -> bytes:
    """One batch with these records, whose offsets must ascend; a producer counts them from 0."""
    records = list(records)
    if not records:
        raise InvalidRecord("a batch holds at least one record")
    first = records[0].offset if base_offset is None else base_offset
    attributes = codec | (TRANSACTIONAL if transactional else 0) | (LOG_APPEND_TIME if log_append_time else 0)
    return _assemble(records, attributes, first, leader_epoch, producer_id, producer_epoch, base_sequence)


def _assemble(
    records: list[Record],
    attributes: int,
    base_offset: int,
    leader_epoch: int,
    producer_id: int,
    producer_epoch: int,
    base_sequence: int,
) -> bytes:
    base_timestamp = records[0].timestamp
    body = b"".join([encode(record, base_offset, base_timestamp) for record in records])
    header = BatchHeader(
        base_offset=base_offset,
        length=0,
        leader_epoch=leader_epoch,
        magic=MAGIC,
        crc=0,
        attributes=attributes,
        last_offset_delta=records[-1].offset - base_offset,
        base_timestamp=base_timestamp,
        max_timestamp=max(record.timestamp for record in records),
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        record_count=len(records),
    )
    return assemble(header, compress(header.codec, body))


_KEY = Struct(">hh")
_END_TXN_VALUE = Struct(">hi")


class ControlType(IntEnum):
    """The kinds of marker that a partition's log may hold."""

    ABORT = 0
    COMMIT = 1


def build_marker(
    kind: ControlType, *, producer_id: int, producer_epoch: int, coordinator_epoch: int, timestamp: int
) -> bytes:
    """The batch that commits or aborts a producer's open transaction in a partition."""
    record = Record(0, timestamp, _KEY.pack(0, kind), _END_TXN_VALUE.pack(0, coordinator_epoch))
    return _assemble([record], TRANSACTIONAL | CONTROL, 0, -1, producer_id, producer_epoch, -1)


def control_type_of(batch: Buffer) -> tuple[ControlType, int] | None:
    """The marker's kind and its coordinator's epoch; None for control records that end no transaction.

    None as well where compaction has taken the record out and left the batch for its producer's sake.
    """
    records = records_of(batch)
    return marker_in(records[0]) if records else None


def marker_in(record: Record) -> tuple[ControlType, int] | None:
    """The same, of a control record that is decoded already."""
    try:
        _, kind = _KEY.unpack_from(record.key or b"")
        if kind not in (ControlType.ABORT, ControlType.COMMIT):
            return None
        _, coordinator_epoch = _END_TXN_VALUE.unpack_from(record.value or b"")
    except error as short:
        raise CorruptBatch(f"a control record does not decode ({short})") from short
    return ControlType(kind), coordinator_epoch
