"""Kafka's four codecs, as its clients write them.

Batches keep the producer's compression; we decompress where records must be seen, and compress only what we write
ourselves (a compacted batch, a record from the command line).
"""

import zlib
from collections.abc import Iterator
from enum import IntEnum

import cramjam

from headrace.records.errors import CorruptBatch, InvalidRecord


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


def decompress(codec: int, data: bytes | memoryview) -> bytes:
    """The records of a batch as plain bytes."""
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


def _decompress_snappy(data: bytes) -> bytes:
    if not data.startswith(_XERIAL_MAGIC):
        return bytes(cramjam.snappy.decompress_raw(data))
    out = bytearray()
    position = len(_XERIAL_HEADER)
    while position + 4 <= len(data):
        size = int.from_bytes(data[position : position + 4], "big")
        block = data[position + 4 : position + 4 + size]
        if len(block) != size:
            raise CorruptBatch("a snappy block is cut short")
        out += bytes(cramjam.snappy.decompress_raw(block))
        position += 4 + size
    return bytes(out)


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
