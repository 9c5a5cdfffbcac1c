"""A batch of a few kilobytes may decompress to gigabytes: where there is a limit, no more than that is made of it."""

import pytest

from headrace.records import BodyTooLarge, Codec, CorruptBatch, compress, decompress
from headrace.records.compression import decompress_up_to

SIZES = [0, 1, 1000, 65_536, 1_000_000]
PACKED = [codec for codec in Codec if codec is not Codec.NONE]


@pytest.mark.parametrize("codec", Codec)
@pytest.mark.parametrize("size", SIZES)
def test_what_is_within_the_limit_is_the_same_as_without_one(codec: Codec, size: int) -> None:
    data = (b"some records, " * (size // 14 + 1))[:size]
    packed = compress(codec, data)
    assert decompress(codec, packed, limit=size) == decompress(codec, packed) == data


@pytest.mark.parametrize("codec", Codec)
@pytest.mark.parametrize("size", SIZES[1:])
def test_one_byte_more_is_too_large(codec: Codec, size: int) -> None:
    with pytest.raises(BodyTooLarge):
        decompress(codec, compress(codec, bytes(size)), limit=size - 1)


@pytest.mark.parametrize("codec", PACKED)
def test_what_does_not_decompress_is_corrupt_and_not_too_large(codec: Codec) -> None:
    packed = compress(codec, b"some records, " * 5000)
    for damaged in (packed[: len(packed) // 2], b"\x01\x02" * 50):
        with pytest.raises(CorruptBatch):
            decompress(codec, damaged, limit=10_000_000)


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.LZ4, Codec.ZSTD])
def test_a_large_one_is_decompressed_in_steps(codec: Codec) -> None:
    steps = decompress_up_to(20_000_000, codec, compress(codec, bytes(10_000_000)))
    assert sum(1 for _ in steps) >= 2
