"""The records inside a batch: walking them, and showing them as values.

A record is `length, attributes i8, timestamp delta, offset delta, key, value, headers`, every number but the
attributes a zig-zag varint, a length of -1 standing for null. Walking is the one loop in the project that runs once
per record in Python (about a microsecond each), so it is done only where it must be.
"""

from collections.abc import Container, Generator, Iterator
from typing import NamedTuple

from headrace.records.batch import HEADER_SIZE, BatchHeader, Buffer, header_at
from headrace.records.compression import MAX_BODY_BYTES, decompress, decompress_up_to
from headrace.records.errors import CorruptBatch, InvalidRecord

_MIN_LONG = -(2**63)
_MAX_LONG = 2**63 - 1


def write_varint(out: bytearray, value: int) -> None:
    """Append `value`, zig-zag encoded, seven bits a byte, the lowest first."""
    if not _MIN_LONG <= value <= _MAX_LONG:
        raise InvalidRecord(f"{value} does not fit into 64 bits: check the record's offset and timestamp")
    value = (value << 1) ^ (value >> 63)
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)


def read_varint(data: bytes, position: int) -> tuple[int, int]:
    """The value at `position`, and the position behind it; IndexError or ValueError if there is none."""
    byte = data[position]
    position += 1
    if byte < 0x80:
        return (byte >> 1) ^ -(byte & 1), position
    value = byte & 0x7F
    shift = 7
    while True:
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            if shift == 63 and byte > 1:
                raise ValueError("a varint of more than 64 bits")
            return (value >> 1) ^ -(value & 1), position
        shift += 7
        if shift > 63:
            raise ValueError("a varint of more than ten bytes")


# Kafka never looks into a header's name: one that is no UTF-8 may be in a log and has to survive being written again.
_NAME_ERRORS = "surrogateescape"


class Header(NamedTuple):
    key: str
    value: bytes | None

    @property
    def name(self) -> str:
        """The key for what holds text alone: what is no UTF-8 in it is replaced."""
        return self.key if self.key.isascii() else self.key.encode(errors=_NAME_ERRORS).decode(errors="replace")


class Record(NamedTuple):
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...] = ()


class RawRecord(NamedTuple):
    """Where a record and its parts stand in the batch's uncompressed bytes; a length of -1 is null."""

    start: int
    end: int
    timestamp_delta: int
    offset_delta: int
    key_at: int
    key_size: int
    value_at: int
    value_size: int
    headers_at: int


def body_of(batch: Buffer, header: BatchHeader, limit: int | None = None) -> bytes:
    """The records of a batch, uncompressed; raises `BodyTooLarge` if they are more than `limit` bytes."""
    return decompress(header.codec, memoryview(batch)[HEADER_SIZE : header.size], limit)


def bounded_body_of(batch: Buffer, header: BatchHeader) -> Generator[None, None, bytes]:
    """As `body_of`, in steps, for a batch from anybody: raises `BodyTooLarge` if it is more than is looked into."""
    return decompress_up_to(MAX_BODY_BYTES, header.codec, memoryview(batch)[HEADER_SIZE : header.size])


def walk(body: bytes, count: int) -> Iterator[RawRecord]:
    """Each record's place in an uncompressed body; raises `CorruptBatch` where the bytes do not add up."""
    position = 0
    limit = len(body)
    try:
        for _ in range(count):
            start = position
            size, position = read_varint(body, position)
            end = position + size
            if size < 0 or end > limit:
                raise CorruptBatch(f"a record of {size} bytes does not fit", start)
            timestamp_delta, position = read_varint(body, position + 1)
            offset_delta, position = read_varint(body, position)
            key_size, key_at = read_varint(body, position)
            value_size, value_at = read_varint(body, key_at + key_size if key_size > 0 else key_at)
            headers_at = value_at + value_size if value_size > 0 else value_at
            if headers_at >= end:
                raise CorruptBatch("a key or value is longer than its record", start)
            yield RawRecord(
                start, end, timestamp_delta, offset_delta, key_at, key_size, value_at, value_size, headers_at
            )
            position = end
    except (IndexError, ValueError) as error:
        raise CorruptBatch(f"a record is cut short ({error})", position) from error
    if position != limit:
        raise CorruptBatch(f"{limit - position} bytes follow the last record", position)


def records_of(batch: Buffer) -> list[Record]:
    """The records of one whole batch, with absolute offsets and timestamps."""
    header = header_at(batch)
    return list(decode(header, body_of(batch, header)))


def decode(header: BatchHeader, body: bytes, only: Container[int] | None = None) -> Iterator[Record]:
    """The records of a batch; with `only`, those at these offsets."""
    # With log-append time every record of a batch has the batch's one timestamp.
    stamp = header.max_timestamp if header.is_log_append_time else None
    for raw in walk(body, header.record_count):
        if only is not None and header.base_offset + raw.offset_delta not in only:
            continue
        yield Record(
            header.base_offset + raw.offset_delta,
            header.base_timestamp + raw.timestamp_delta if stamp is None else stamp,
            None if raw.key_size < 0 else body[raw.key_at : raw.key_at + raw.key_size],
            None if raw.value_size < 0 else body[raw.value_at : raw.value_at + raw.value_size],
            _headers(body, raw.headers_at, raw.end),
        )


def _headers(body: bytes, position: int, end: int) -> tuple[Header, ...]:
    if body[position] == 0 and position + 1 == end:
        return ()
    headers = []
    try:
        count, position = read_varint(body, position)
        if count < 0:
            raise CorruptBatch(f"a record announces {count} headers", position)
        for _ in range(count):
            size, position = read_varint(body, position)
            if size < 0:
                raise CorruptBatch(f"a header's name has {size} bytes", position)
            key = body[position : position + size].decode(errors=_NAME_ERRORS)
            size, position = read_varint(body, position + size)
            headers.append(Header(key, None if size < 0 else body[position : position + size]))
            position += max(size, 0)
    except (IndexError, ValueError) as error:
        raise CorruptBatch(f"a record's headers do not decode ({error})", position) from error
    if position != end:
        raise CorruptBatch(f"a record's headers end {position - end:+d} bytes from its end", position)
    return tuple(headers)


def _varint(value: int) -> bytes:
    out = bytearray()
    write_varint(out, value)
    return bytes(out)


_SHORT = tuple(_varint(value) for value in range(256))  # most lengths and deltas are among them
_NULL = _varint(-1)


def encode(record: Record, base_offset: int, base_timestamp: int) -> bytes:
    """One record as it stands in a batch, its length in front."""
    offset, timestamp, key, value, headers = record
    offset -= base_offset
    timestamp -= base_timestamp
    key_size = -1 if key is None else len(key)
    value_size = -1 if value is None else len(value)
    if headers or not (0 <= timestamp < 256 and 0 <= offset < 256 and key_size < 256 and value_size < 256):
        return _encode_any(record, base_offset, base_timestamp)
    inner = b"".join(
        (
            b"\0",  # attributes: none are defined for a record
            _SHORT[timestamp],
            _SHORT[offset],
            _NULL if key is None else _SHORT[key_size],
            key or b"",
            _NULL if value is None else _SHORT[value_size],
            value or b"",
            b"\0",
        )
    )
    size = len(inner)
    return (_SHORT[size] if size < 256 else _varint(size)) + inner


def _encode_any(record: Record, base_offset: int, base_timestamp: int) -> bytes:
    inner = bytearray(1)
    write_varint(inner, record.timestamp - base_timestamp)
    write_varint(inner, record.offset - base_offset)
    _write_nullable(inner, record.key)
    _write_nullable(inner, record.value)
    write_varint(inner, len(record.headers))
    for header in record.headers:
        _write_nullable(inner, header.key.encode(errors=_NAME_ERRORS))
        _write_nullable(inner, header.value)
    out = bytearray()
    write_varint(out, len(inner))
    return bytes(out + inner)


def _write_nullable(out: bytearray, data: bytes | None) -> None:
    if data is None:
        out.append(1)  # -1, zig-zag encoded
    else:
        write_varint(out, len(data))
        out += data
