"""Record batches of the log's format, built from many small records at once.

What `records.build_batch` does for a few records, with less for each of many: sizes come from a table, and nothing is
made into an object in between.
"""

from collections.abc import Sequence

from headrace.connect.envelope import Headers
from headrace.records.batch import MAGIC, TRANSACTIONAL, BatchHeader, assemble
from headrace.records.compression import Codec, compress
from headrace.records.record import write_varint

Entry = tuple[bytes | None, bytes | None, int, Headers]  # key, value, timestamp, headers


def _varint(value: int) -> bytes:
    out = bytearray()
    write_varint(out, value)
    return bytes(out)


_TABLE = [_varint(value) for value in range(1 << 14)]
_NULL = _varint(-1)


def _size(value: int) -> bytes:
    return _TABLE[value] if value < 16384 else _varint(value)


def _headers(headers: Headers) -> bytes:
    parts = [_size(len(headers))]
    for name, value in headers:
        encoded = name.encode()
        parts += [_size(len(encoded)), encoded, _size(len(value)), value]
    return b"".join(parts)


def build(
    entries: Sequence[Entry], *, producer_id: int, producer_epoch: int, base_sequence: int, codec: Codec = Codec.NONE
) -> bytes:
    """One transactional batch of these records."""
    base = entries[0][2]
    newest = base
    table = _TABLE
    last_time, delta = base, b"\x00"
    out: list[bytes] = []
    push = out.append
    for index, (key, value, timestamp, headers) in enumerate(entries):
        if timestamp != last_time:
            last_time, delta = timestamp, _varint(timestamp - base)
            newest = max(newest, timestamp)
        key_size = _NULL if key is None else table[len(key)] if len(key) < 16384 else _varint(len(key))
        value_size = _NULL if value is None else table[len(value)] if len(value) < 16384 else _varint(len(value))
        body = b"".join(
            (
                b"\x00",
                delta,
                table[index] if index < 16384 else _varint(index),
                key_size,
                key or b"",
                value_size,
                value or b"",
                _headers(headers) if headers else b"\x00",
            )
        )
        push(_size(len(body)))
        push(body)
    header = BatchHeader(
        base_offset=0,
        length=0,
        leader_epoch=-1,
        magic=MAGIC,
        crc=0,
        attributes=int(codec) | TRANSACTIONAL,
        last_offset_delta=len(entries) - 1,
        base_timestamp=base,
        max_timestamp=newest,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        record_count=len(entries),
    )
    return assemble(header, compress(codec, b"".join(out)))
