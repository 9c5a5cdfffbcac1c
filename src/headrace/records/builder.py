"""Making a batch from records: for what we write ourselves, and for tests."""

from collections.abc import Iterable

from headrace.records.batch import LOG_APPEND_TIME, MAGIC, TRANSACTIONAL, BatchHeader, assemble
from headrace.records.compression import Codec, compress
from headrace.records.errors import InvalidRecord
from headrace.records.record import Record, encode


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
    base_timestamp = records[0].timestamp
    body = b"".join([encode(record, first, base_timestamp) for record in records])
    header = BatchHeader(
        base_offset=first,
        length=0,
        leader_epoch=leader_epoch,
        magic=MAGIC,
        crc=0,
        attributes=codec | (TRANSACTIONAL if transactional else 0) | (LOG_APPEND_TIME if log_append_time else 0),
        last_offset_delta=records[-1].offset - first,
        base_timestamp=base_timestamp,
        max_timestamp=max(record.timestamp for record in records),
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        record_count=len(records),
    )
    return assemble(header, compress(codec, body))
