"""The codecs: ours read by the field's own libraries, theirs read by us, and nonsense refused."""

import gzip
import random
from contextlib import suppress

import cramjam
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.records import Codec, CorruptBatch, InvalidRecord, compress, decompress

CHANCE = random.Random(4)
SAMPLES = {
    "empty": b"",
    "one byte": b"x",
    "text": b"the quick brown fox " * 50,
    "64 KiB": b"ab" * 32 * 1024,
    "64 KiB and one": b"ab" * 32 * 1024 + b"c",
    "several blocks": b"".join(b"%d," % n for n in range(40_000)),
    "noise": CHANCE.randbytes(150_000),
}


@pytest.mark.parametrize("codec", Codec)
@pytest.mark.parametrize("sample", SAMPLES)
def test_round_trip(codec, sample):
    data = SAMPLES[sample]
    packed = compress(codec, data)
    assert decompress(codec, packed) == data
    assert decompress(codec, memoryview(packed)) == data
    assert isinstance(packed, bytes)


def test_no_compression_is_the_bytes_themselves():
    assert compress(Codec.NONE, b"abc") == b"abc"


def test_gzip_is_everybodys_gzip():
    data = SAMPLES["several blocks"]
    assert gzip.decompress(compress(Codec.GZIP, data)) == data
    assert decompress(Codec.GZIP, gzip.compress(data)) == data


def test_zstd_with_and_without_the_size_in_its_frame():
    data = SAMPLES["several blocks"]
    assert bytes(cramjam.zstd.decompress(compress(Codec.ZSTD, data))) == data
    stream = cramjam.zstd.Compressor()
    stream.compress(data)
    assert decompress(Codec.ZSTD, bytes(stream.finish())) == data


def test_snappy_is_written_as_the_java_client_writes_it():
    data = SAMPLES["several blocks"]
    packed = compress(Codec.SNAPPY, data)
    assert packed[:16] == b"\x82SNAPPY\0" + b"\0\0\0\1" * 2
    position, blocks = 16, []
    while position < len(packed):
        size = int.from_bytes(packed[position : position + 4], "big")
        blocks.append(bytes(cramjam.snappy.decompress_raw(packed[position + 4 : position + 4 + size])))
        position += 4 + size
    assert b"".join(blocks) == data
    assert len(blocks) > 1


@pytest.mark.parametrize("sample", SAMPLES)
def test_snappy_is_read_as_librdkafka_writes_it_too(sample):
    """One bare block, without any stream format around it."""
    data = SAMPLES[sample]
    assert decompress(Codec.SNAPPY, bytes(cramjam.snappy.compress_raw(data))) == data


def test_snappy_by_hand():
    # The length (5), then a literal of 1 and a copy of 4 bytes from 1 back (offset in the tag's top bits and a byte).
    assert decompress(Codec.SNAPPY, bytes([5, 0 << 2, ord("a"), 0b0000_0001, 1])) == b"aaaaa"


@pytest.mark.parametrize("sample", SAMPLES)
def test_lz4_frames_are_read_by_others(sample):
    assert bytes(cramjam.lz4.decompress(compress(Codec.LZ4, SAMPLES[sample]))) == SAMPLES[sample]


def test_lz4_frames_have_independent_blocks_of_64_kib_as_the_java_client_demands():
    data = SAMPLES["several blocks"] + SAMPLES["noise"]
    frame = compress(Codec.LZ4, data)
    assert frame[:4] == bytes.fromhex("04224d18")
    version, independent = frame[4] >> 6, frame[4] & 0x20
    assert (version, bool(independent), frame[5] >> 4 & 7) == (1, True, 4)
    position, plain, stored = 7, b"", 0
    while True:
        size = int.from_bytes(frame[position : position + 4], "little")
        if not size:
            break
        block = frame[position + 4 : position + 4 + (size & 0x7FFFFFFF)]
        stored += size >> 31
        # Each block by itself, without the ones before it: that is what independent means.
        plain += block if size >> 31 else bytes(cramjam.lz4.decompress_block(block, output_len=64 * 1024))
        position += 4 + (size & 0x7FFFFFFF)
    assert plain == data
    assert stored, "noise does not get larger by compression"
    assert position + 4 == len(frame)


def test_lz4_frames_with_blocks_that_depend_on_each_other_are_read_too():
    data = SAMPLES["several blocks"]
    frame = bytes(cramjam.lz4.compress(data))
    assert not frame[4] & 0x20, "the library writes linked blocks"
    assert decompress(Codec.LZ4, frame) == data


@pytest.mark.parametrize("codec", [5, 6, 7])
def test_codecs_that_do_not_exist(codec):
    for work in (compress, decompress):
        with pytest.raises(CorruptBatch, match=rf"codec {codec} does not exist"):
            work(codec, b"")


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD])
def test_what_does_not_decompress_is_named(codec):
    packed = compress(codec, SAMPLES["text"])
    for wrong in (b"nonsense, not " * 3, packed[: len(packed) // 2]):
        with pytest.raises(CorruptBatch, match=r"does not decompress|cut short"):
            decompress(codec, wrong)


@given(st.sampled_from(list(Codec)), st.data())
def test_altered_data_never_raise_anything_else(codec, data):
    packed = bytearray(compress(codec, SAMPLES["text"]))
    for _ in range(data.draw(st.integers(1, 3))):
        packed[data.draw(st.integers(0, len(packed) - 1))] = data.draw(st.integers(0, 255))
    del packed[data.draw(st.integers(0, len(packed))) :]
    with suppress(CorruptBatch):
        assert isinstance(decompress(codec, bytes(packed)), bytes)


def test_codecs_have_kafkas_names():
    assert [Codec.named(name) for name in ("none", "gzip", "snappy", "lz4", "ZSTD")] == list(Codec)
    with pytest.raises(
        InvalidRecord, match="unknown compression 'brotli': choose one of none, gzip, snappy, lz4, zstd"
    ):
        Codec.named("brotli")
