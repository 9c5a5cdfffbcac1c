"""Kafka's four codecs, as its clients write them.

Batches keep the producer's compression; we decompress where records must be seen, and compress only what we write
ourselves (a compacted batch, a record from the command line).

A few kilobytes can decompress to gigabytes. A broker takes batches from anybody, so where it looks inside it does so in
steps and up to a limit, `MAX_BODY_BYTES`; a reader of its own data need not.
"""

import zlib
from collections.abc import Callable, Generator, Iterator
from enum import IntEnum

import cramjam

from headrace.records.errors import BodyTooLarge, CorruptBatch, InvalidRecord

MAX_BODY_BYTES = 32 * 1024 * 1024  # clients fill a batch by its size before compression, to a megabyte or so


class Codec(IntEnum):
    """The number that stands in a batch's attributes."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4

    @classmethod
    def named(cls, name: str) -> "Codec":
        """The codec a user wrote, by Kafka's name for it."""
        try:
            return cls[name.upper()]
        except KeyError:
            names = ", ".join(codec.name.lower() for codec in cls)
            raise InvalidRecord(f"unknown compression {name!r}: choose one of {names}") from None


def compress(codec: int, data: bytes) -> bytes:
    """The records of a batch, compressed so that every Kafka client can read them."""
    match codec:
        case Codec.NONE:
            return data
        case Codec.GZIP:
            return bytes(cramjam.gzip.compress(data))
        case Codec.SNAPPY:
            return _compress_snappy(data)
        case Codec.LZ4:
            return _compress_lz4(data)
        case Codec.ZSTD:
            return bytes(cramjam.zstd.compress(data))
        case _:
            raise CorruptBatch(f"compression codec {codec} does not exist")


def decompress(codec: int, data: bytes | memoryview, limit: int | None = None) -> bytes:
    """The records of a batch as plain bytes; raises `BodyTooLarge` if they are more than `limit`."""
    if limit is not None:
        steps = decompress_up_to(limit, codec, data)
        while True:
            try:
                next(steps)
            except StopIteration as end:
                return bytes(end.value)
    try:
        match codec:
            case Codec.NONE:
                return bytes(data)
            case Codec.GZIP:
                return zlib.decompress(data, wbits=31)
            case Codec.SNAPPY:
                return _decompress_snappy(bytes(data))
            case Codec.LZ4:
                return bytes(cramjam.lz4.decompress(data))
            case Codec.ZSTD:
                return bytes(cramjam.zstd.decompress(data))
    except (cramjam.DecompressionError, zlib.error) as error:
        raise CorruptBatch(f"{Codec(codec).name.lower()} data does not decompress ({error})") from error
    raise CorruptBatch(f"compression codec {codec} does not exist")


def decompress_up_to(limit: int, codec: int, data: bytes | memoryview) -> Generator[None, None, bytes]:
    """As `decompress`, in steps; raises `BodyTooLarge` rather than to make more than `limit` bytes of it."""
    try:
        match codec:
            case Codec.NONE:
                return _within(limit, bytes(data))
            case Codec.GZIP:
                return (yield from _gunzip_up_to(limit, data))
            case Codec.SNAPPY:
                return _decompress_snappy(bytes(data), limit)
            case Codec.LZ4:
                return (yield from _decompress_into(limit, cramjam.lz4.decompress_into, data))
            case Codec.ZSTD:
                return (yield from _decompress_into(limit, cramjam.zstd.decompress_into, data))
    except (cramjam.DecompressionError, zlib.error) as error:
        raise CorruptBatch(f"{Codec(codec).name.lower()} data does not decompress ({error})") from error
    raise CorruptBatch(f"compression codec {codec} does not exist")


_STEP_BYTES = 1024 * 1024


def _within(limit: int, data: bytes) -> bytes:
    if len(data) > limit:
        raise BodyTooLarge(limit)
    return data


def _gunzip_up_to(limit: int, data: bytes | memoryview) -> Generator[None, None, bytes]:
    inflating = zlib.decompressobj(wbits=31)
    out = bytearray()
    left: bytes | memoryview = data
    while not inflating.eof:
        piece = inflating.decompress(left, _STEP_BYTES)
        left = inflating.unconsumed_tail
        if not piece and not left and not inflating.eof:
            raise CorruptBatch("gzip data is cut short")
        out += piece
        if len(out) > limit:
            raise BodyTooLarge(limit)
        yield
    return bytes(out)


def _decompress_into(
    limit: int, decompress_into: Callable[[bytes | memoryview, bytearray], int], data: bytes | memoryview
) -> Generator[None, None, bytes]:
    """Decompress into a buffer that is nearly always large enough, and into larger ones while it is not."""
    size = min(max(4 * len(data), 16 * 1024), limit)
    while True:
        buffer = bytearray(size)
        try:
            count = decompress_into(data, buffer)
        except cramjam.DecompressionError as error:
            if _NO_ROOM not in str(error):
                raise
            if size == limit:
                raise BodyTooLarge(limit) from None
        else:
            return bytes(memoryview(buffer)[:count])
        size = min(4 * size, limit)
        yield


_NO_ROOM = "whole buffer"  # in the library's words for a buffer that is too small


# Java's snappy stream ("xerial"): a header of 16 bytes, then blocks with a length in front of each. librdkafka
# writes a bare snappy block instead; readers take both.
_XERIAL_MAGIC = b"\x82SNAPPY\x00"
_XERIAL_HEADER = _XERIAL_MAGIC + b"\x00\x00\x00\x01\x00\x00\x00\x01"
_BLOCK_SIZE = 64 * 1024


def _blocks(data: bytes) -> Iterator[bytes]:
    for start in range(0, len(data), _BLOCK_SIZE):
        yield data[start : start + _BLOCK_SIZE]


def _compress_snappy(data: bytes) -> bytes:
    out = bytearray(_XERIAL_HEADER)
    for block in _blocks(data):
        packed = bytes(cramjam.snappy.compress_raw(block))
        out += len(packed).to_bytes(4, "big") + packed
    return bytes(out)


def _decompress_snappy(data: bytes, limit: int | None = None) -> bytes:
    if not data.startswith(_XERIAL_MAGIC):
        return _unsnap(data, limit)
    out = bytearray()
    position = len(_XERIAL_HEADER)
    while position + 4 <= len(data):
        size = int.from_bytes(data[position : position + 4], "big")
        block = data[position + 4 : position + 4 + size]
        if len(block) != size:
            raise CorruptBatch("a snappy block is cut short")
        out += _unsnap(block, None if limit is None else limit - len(out))
        position += 4 + size
    return bytes(out)


def _unsnap(block: bytes, limit: int | None) -> bytes:
    if limit is not None and cramjam.snappy.decompress_raw_len(block) > limit:
        raise BodyTooLarge(limit)
    return bytes(cramjam.snappy.decompress_raw(block))


# The Java client refuses frames whose blocks depend on each other, and the library writes no other kind, so the frame
# is put together here: version 1, independent blocks of at most 64 KiB, no checksums; 0x82 is the descriptor's own
# check byte, which never varies.
_LZ4_FRAME_HEADER = b"\x04\x22\x4d\x18\x60\x40\x82"
_LZ4_STORED = 0x80000000


def _compress_lz4(data: bytes) -> bytes:
    out = bytearray(_LZ4_FRAME_HEADER)
    for block in _blocks(data):
        packed = bytes(cramjam.lz4.compress_block(block, store_size=False))
        if len(packed) < len(block):
            out += len(packed).to_bytes(4, "little") + packed
        else:
            out += (len(block) | _LZ4_STORED).to_bytes(4, "little") + block
    out += b"\x00\x00\x00\x00"
    return bytes(out)
