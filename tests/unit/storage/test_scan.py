"""Walking a file of batches, wherever the reads that it is made of happen to end."""

import pytest

from headrace.records import CorruptBatch, build_batch, header_at
from headrace.records.batch import prefix
from headrace.storage import scan as scanning
from headrace.storage.scan import find_batch, headers, locate, scan
from headrace.testing import MemoryFileSystem
from tests.small_logs import some_records


def _batches(sizes):
    batches, offset = [], 0
    for count in sizes:
        batch = build_batch(some_records(count))
        batches.append(prefix(offset, header_at(batch).length, 0) + batch[16:])
        offset += count
    return batches


def _file(data):
    file = MemoryFileSystem().open("file", create=True)
    file.write_at([data], 0)
    return file


BATCHES = _batches([1, 5, 2, 9, 1, 3, 30, 1, 1])
DATA = b"".join(BATCHES)
STARTS = [sum(map(len, BATCHES[:n])) for n in range(len(BATCHES))]


@pytest.fixture(params=[1, 61, 62, 100, 137, 500, 10**6])
def small_reads(request, monkeypatch):
    monkeypatch.setattr(scanning, "CHUNK", max(request.param, 61))
    monkeypatch.setattr(scanning, "_PEEK", max(request.param, 61))


def test_every_batch_is_found_however_the_reads_are_cut(small_reads):
    file = _file(DATA)
    scanned = list(scan(file, 0, len(DATA)))
    assert [(each.position, bytes(each.batch)) for each in scanned] == list(zip(STARTS, BATCHES, strict=True))
    assert list(headers(file, 0, len(DATA))) == [(each.position, each.header) for each in scanned]
    assert list(headers(file, STARTS[3], STARTS[6])) == [(e.position, e.header) for e in scanned[3:6]]


def test_every_offset_is_located(small_reads):
    file = _file(DATA)
    place = {
        offset: (at, header.size)
        for at, header in headers(file, 0, len(DATA))
        for offset in range(header.base_offset, header.next_offset)
    }
    assert {offset: locate(file, 0, len(DATA), offset) for offset in place} == place
    assert locate(file, 0, len(DATA), max(place) + 1) is None


@pytest.mark.parametrize("walk", [scan, headers])
def test_a_cut_file_ends_in_an_error_with_the_position(walk):
    file = _file(DATA)
    for end in range(STARTS[-1] + 1, len(DATA)):
        with pytest.raises(CorruptBatch) as caught:
            list(walk(file, 0, end))
        assert caught.value.position == STARTS[-1]
    with pytest.raises(CorruptBatch):
        locate(file, 0, len(DATA) - 1, 10**6)


def test_only_the_scan_reads_the_records():
    wrong = bytearray(DATA)
    wrong[STARTS[3] + 70] ^= 1
    file = _file(wrong)
    assert len(list(headers(file, 0, len(wrong)))) == len(BATCHES)
    with pytest.raises(CorruptBatch, match="checksum") as caught:
        list(scan(file, 0, len(wrong)))
    assert caught.value.position == STARTS[3]


@pytest.mark.parametrize("junk", [0, 1, 60, 61, 62, 200])
def test_the_next_batch_is_found_behind_any_junk(small_reads, junk):
    noise = (b"\x02\x00\xff" * 100)[:junk]  # full of the number of the format
    data = BATCHES[0] + noise + b"".join(BATCHES[1:])
    at = len(BATCHES[0])
    found = find_batch(_file(data), at, len(data), 0, 100)
    assert (found.position, found.header.base_offset) == (at + junk, 1)


def test_a_batch_with_an_offset_out_of_range_is_not_the_one(small_reads):
    file = _file(DATA)
    assert find_batch(file, 0, len(DATA), 6, 100).position == STARTS[2]
    assert find_batch(file, 0, len(DATA), 53, 100) is None
    assert find_batch(file, 1, STARTS[1] + 60, 0, 100) is None
