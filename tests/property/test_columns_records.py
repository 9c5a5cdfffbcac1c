"""The compiled walk over record batches against `headrace.records`, also over bytes that were altered on purpose."""

from struct import pack_into

import numpy as np
import pyarrow as pa
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st

from headrace.pipelines.columns import arrow
from headrace.pipelines.columns.records import RecordColumns, columns_of
from headrace.records import HEADER_SIZE, Codec, CorruptBatch, Header, Record, build_batch, header_at, records_of

maybe_bytes = st.none() | st.binary(max_size=40)
headers = st.lists(st.builds(Header, st.text(max_size=8), maybe_bytes), max_size=3).map(tuple)


any_codec = st.sampled_from(list(Codec))


@st.composite
def batches(draw: st.DrawFn, codecs: st.SearchStrategy[int] = any_codec) -> bytes:
    offset = draw(st.integers(0, 2**40))
    records = []
    for _ in range(draw(st.integers(1, 6))):
        stamp = draw(st.integers(0, 2**41))
        records.append(Record(offset, stamp, draw(maybe_bytes), draw(maybe_bytes), draw(headers)))
        offset += draw(st.integers(1, 3))
    return build_batch(records, codec=draw(codecs), log_append_time=draw(st.booleans()))


def shown(columns: RecordColumns) -> list[Record]:
    arena = columns.arena
    keys = arrow.spans(pa.binary(), arena, columns.key_at, columns.key_size).to_pylist()
    values = arrow.spans(pa.binary(), arena, columns.value_at, columns.value_size).to_pylist()
    lists = arrow.headers(columns)
    lists.validate(full=True)
    return [
        Record(offset, stamp, key, value, tuple(Header(pair["key"], pair["value"]) for pair in pairs or ()))
        for offset, stamp, key, value, pairs in zip(
            columns.offset.tolist(), columns.timestamp.tolist(), keys, values, lists.to_pylist(), strict=True
        )
    ]


def walked(data: list[bytes], first: int = 0, until: int = 2**63 - 1) -> RecordColumns:
    return columns_of([(header_at(batch), memoryview(batch)) for batch in data], first_offset=first, until_offset=until)


@given(st.lists(batches(), max_size=4))
def test_every_record_is_read_as_the_plain_reader_reads_it(data: list[bytes]) -> None:
    columns = walked(data)
    expected = [record for batch in data for record in records_of(batch)]
    assert shown(columns) == expected
    times = [header_at(batch).is_log_append_time for batch in data for _ in records_of(batch)]
    assert columns.is_append_time.tolist() == times


@given(st.data())
def test_offsets_may_begin_and_end_in_the_middle_of_a_batch(data: st.DataObject) -> None:
    parts = sorted(data.draw(st.lists(batches(), min_size=1, max_size=3)), key=lambda part: header_at(part).base_offset)
    last = -1
    apart = []
    for part in parts:  # batches of one partition never overlap
        if header_at(part).base_offset > last:
            apart.append(part)
            last = header_at(part).last_offset
    everything = [(record, header_at(part).is_log_append_time) for part in apart for record in records_of(part)]
    offsets = [record.offset for record, _ in everything]
    first = data.draw(st.sampled_from(offsets)) + data.draw(st.integers(-1, 1))
    until = data.draw(st.sampled_from(offsets)) + data.draw(st.integers(-1, 1))
    columns = walked(apart, first, until)
    wanted = [pair for pair in everything if first <= pair[0].offset < until]
    assert shown(columns) == [record for record, _ in wanted]
    assert columns.is_append_time.tolist() == [is_append for _, is_append in wanted]


def with_right_checksum(batch: bytearray) -> bytes:
    pack_into(">I", batch, 17, crc32c(bytes(batch[21:])))
    return bytes(batch)


@st.composite
def altered(draw: st.DrawFn) -> bytes:
    """A batch whose records were altered and whose checksum is right again, so that the walk itself has to notice."""
    batch = bytearray(draw(batches(st.sampled_from([Codec.NONE, Codec.NONE, Codec.LZ4, Codec.ZSTD, Codec.GZIP]))))
    for _ in range(draw(st.integers(1, 4))):
        place = draw(st.integers(HEADER_SIZE - 4, len(batch) - 1))
        batch[place] = draw(st.integers(0, 255) | st.sampled_from([0x00, 0x01, 0x7F, 0x80, 0xFF]))
    if draw(st.booleans()):
        del batch[draw(st.integers(HEADER_SIZE, len(batch))) :]
        pack_into(">i", batch, 8, len(batch) - 12)
    return with_right_checksum(batch)


@given(altered())
def test_altered_records_are_refused_or_read_as_the_plain_reader_reads_them(batch: bytes) -> None:
    try:
        found = shown(walked([batch]))
    except CorruptBatch:
        return
    expected = [
        record._replace(headers=tuple(Header(_as_java(header.key), header.value) for header in record.headers))
        for record in records_of(batch)
    ]
    assert [record._replace(offset=0, timestamp=0) for record in found] == [
        record._replace(offset=0, timestamp=0) for record in expected
    ]
    # A delta may be so large that the sum leaves 64 bits, where the arrays begin again.
    assert [(record.offset - other.offset) % 2**64 for record, other in zip(found, expected, strict=True)] == [0] * len(
        found
    )


def _as_java(name: str) -> str:
    return name.encode(errors="surrogateescape").decode(errors="replace")


@given(batches(st.just(Codec.NONE)), st.data())
def test_no_place_points_outside_its_record(batch: bytes, data: st.DataObject) -> None:
    columns = walked([batch])
    assert (columns.key_at + np.maximum(columns.key_size, 0) <= columns.value_at).all()
    assert (columns.value_at + np.maximum(columns.value_size, 0) <= columns.headers_at).all()
    assert (columns.headers_at < columns.end).all()
    assert (columns.end <= len(columns.arena)).all()
