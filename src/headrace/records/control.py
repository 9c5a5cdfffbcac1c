"""Control batches: the markers that end a transaction in every partition it wrote to.

A marker is a batch of its own with one record. Its key is `version i16, type i16`; the value of a transaction marker
is `version i16, coordinator epoch i32`.
"""

from enum import IntEnum
from struct import Struct, error

from headrace.records.batch import CONTROL, MAGIC, TRANSACTIONAL, BatchHeader, Buffer, assemble
from headrace.records.errors import CorruptBatch
from headrace.records.record import Record, encode, records_of

_KEY = Struct(">hh")
_END_TXN_VALUE = Struct(">hi")


class ControlType(IntEnum):
    """The kinds of marker that a partition's log may hold."""

    ABORT = 0
    COMMIT = 1


def build_marker(
    kind: ControlType,
    *,
    producer_id: int,
    producer_epoch: int,
    coordinator_epoch: int,
    timestamp: int,
) -> bytes:
    """The batch that commits or aborts a producer's open transaction in a partition."""
    record = Record(0, timestamp, _KEY.pack(0, kind), _END_TXN_VALUE.pack(0, coordinator_epoch))
    header = BatchHeader(
        base_offset=0,
        length=0,
        leader_epoch=-1,
        magic=MAGIC,
        crc=0,
        attributes=TRANSACTIONAL | CONTROL,
        last_offset_delta=0,
        base_timestamp=timestamp,
        max_timestamp=timestamp,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=-1,
        record_count=1,
    )
    return assemble(header, encode(record, 0, timestamp))


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
