"""The header of a record batch, format v2, and what can be learnt from it alone.

    0 base offset i64 | 8 length i32 | 12 leader epoch i32 | 16 magic i8 | 17 crc u32 | 21 attributes i16
    23 last offset delta i32 | 27 base timestamp i64 | 35 max timestamp i64 | 43 producer id i64
    51 producer epoch i16 | 53 base sequence i32 | 57 record count i32 | 61 records …

The checksum (CRC-32C) covers everything from the attributes on, so the first 16 bytes, base offset, length and leader
epoch, can be rewritten without touching it. That is what makes appending a batch cheap.
"""

from collections.abc import Iterator
from struct import Struct, error
from typing import NamedTuple

from headrace.records.checksum import crc32c
from headrace.records.errors import CorruptBatch, InvalidRecord, UnsupportedFormat

Buffer = bytes | bytearray | memoryview

HEADER_SIZE = 61
LENGTH_OVERHEAD = 12  # base offset and length itself are not counted in the length field
MAGIC = 2
PREFIX_SIZE = 16  # base offset, length, leader epoch: what an append rewrites
ATTRIBUTES_AT = 21  # where the checksummed part begins

_HEADER = Struct(">qiibIhiqqqhii")
_PREFIX = Struct(">qii")
_CHECKSUMMED = Struct(">hiqqqhii")
_SIGNED = Struct(">bI")
_PLACE = Struct(">qi11xi")  # base offset, length, last offset delta

CODEC_MASK = 0x07
LOG_APPEND_TIME = 0x08
TRANSACTIONAL = 0x10
CONTROL = 0x20
DELETE_HORIZON = 0x40
COPY_SEQUENCE = -2  # of a batch without a producer, in place of -1: only the broker writes it, for what it has copied


class BatchHeader(NamedTuple):
    """The thirteen fields of a header, in their order on the wire."""

    base_offset: int
    length: int
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def size(self) -> int:
        return self.length + LENGTH_OVERHEAD

    @property
    def last_offset(self) -> int:
        """The offset of the batch's last record, or of the last it had before compaction."""
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        return self.base_offset + self.last_offset_delta + 1

    @property
    def codec(self) -> int:
        return self.attributes & CODEC_MASK

    @property
    def is_log_append_time(self) -> bool:
        """Whether the broker's clock, not the producer's, gave the timestamps."""
        return bool(self.attributes & LOG_APPEND_TIME)

    @property
    def is_transactional(self) -> bool:
        return bool(self.attributes & TRANSACTIONAL)

    @property
    def is_copy(self) -> bool:
        """Whether the broker made the batch, of records that clients wrote elsewhere; no client can claim that."""
        return self.base_sequence == COPY_SEQUENCE and self.producer_id < 0

    @property
    def is_control(self) -> bool:
        """Whether the batch holds a marker of the broker's instead of a user's records."""
        return bool(self.attributes & CONTROL)

    @property
    def delete_horizon_ms(self) -> int | None:
        """When compaction may drop the batch's tombstones and markers (KIP-534); it stands in the base timestamp."""
        return self.base_timestamp if self.attributes & DELETE_HORIZON else None

    @property
    def last_sequence(self) -> int:
        """The last record's sequence number; sequences wrap at 2³¹."""
        if self.base_sequence < 0:
            return -1
        return (self.base_sequence + self.last_offset_delta) & 0x7FFFFFFF


_new_header = tuple.__new__  # a third of what BatchHeader(*fields) costs, and this runs for every batch


def header_at(data: Buffer, position: int = 0) -> BatchHeader:
    """The header that starts at `position`; the caller knows that 61 bytes are there."""
    return _new_header(BatchHeader, _HEADER.unpack_from(data, position))


def place_at(data: Buffer, position: int) -> tuple[int, int]:
    """A batch's last offset and its size: all that looking for an offset needs."""
    base_offset, length, last_offset_delta = _PLACE.unpack_from(data, position)
    return base_offset + last_offset_delta, length + LENGTH_OVERHEAD


def headers_in(data: Buffer, position: int = 0) -> Iterator[tuple[int, BatchHeader]]:
    """Each whole batch in `data` with its position; an unfinished batch at the end is left out.

    A fetch may end in the middle of a batch, so a short end is no error; a length that cannot be is one.
    """
    end = len(data)
    while position + HEADER_SIZE <= end:
        header = header_at(data, position)
        check_shape(header, position)
        if position + header.size > end:
            return
        yield position, header
        position += header.size


def check_shape(header: BatchHeader, position: int = 0) -> None:
    """Refuse a header that cannot begin a batch, whatever follows it."""
    if header.magic != MAGIC:
        if header.magic in (0, 1):
            raise UnsupportedFormat(header.magic)
        raise CorruptBatch(f"format number {header.magic} does not exist", position)
    if header.size < HEADER_SIZE:
        raise CorruptBatch(f"length {header.length} is shorter than a header", position)


def crc_of(batch: Buffer) -> int:
    return crc32c(memoryview(batch)[ATTRIBUTES_AT:])


def prefix(base_offset: int, length: int, leader_epoch: int) -> bytes:
    """The 16 bytes that an append puts in front of a batch in place of the producer's own."""
    return _PREFIX.pack(base_offset, length, leader_epoch)


def assemble(header: BatchHeader, body: Buffer) -> bytes:
    """A whole batch from a header and its records, with length and checksum made right."""
    try:
        signed = _CHECKSUMMED.pack(
            header.attributes,
            header.last_offset_delta,
            header.base_timestamp,
            header.max_timestamp,
            header.producer_id,
            header.producer_epoch,
            header.base_sequence,
            header.record_count,
        )
    except error as misfit:
        raise InvalidRecord(f"a number is too large for a batch's header ({misfit}): {header}") from misfit
    crc = crc32c(body, crc32c(signed))
    length = HEADER_SIZE - LENGTH_OVERHEAD + len(body)
    return b"".join(
        (_PREFIX.pack(header.base_offset, length, header.leader_epoch), _SIGNED.pack(MAGIC, crc), signed, body)
    )
