"""One file of batches and its indexes."""

import errno
import itertools
import time

import pytest

from headrace.records import headers_in
from headrace.storage.errors import DiskFull, WriteFailed
from headrace.storage.indexes import Indexes, IndexFiles
from headrace.storage.segment import Segment
from headrace.testing import MemoryFileSystem
from tests.small_logs import EPOCH_MS, append, batches_from, new_log, some_records


@pytest.fixture
def filesystem():
    return MemoryFileSystem()


def _log(filesystem, batches=50, **config):
    log = new_log(filesystem, **{"index_interval_bytes": 256, **config})
    for n in range(batches):
        append(log, some_records(3, first=n * 3))
    return log


def test_it_finds_every_offset_through_its_index(filesystem):
    segment = _log(filesystem).segments[0]
    assert len(segment.indexes.offsets) > 10
    places = {header.base_offset + n: (at, header.size) for at, header in segment.headers() for n in range(3)}
    assert {offset: segment.find(offset) for offset in range(150)} == places
    assert segment.find(150) is None
    assert segment.position_of(150) == segment.size
    assert segment.position_of(0) == 0


def test_an_index_entry_names_a_batch_by_its_last_offset_and_its_place(filesystem):
    segment = _log(filesystem).segments[0]
    ends = {header.last_offset: at for at, header in segment.headers()}
    data = segment.indexes.offsets.encode()
    entries = [
        (int.from_bytes(data[i : i + 4], "big"), int.from_bytes(data[i + 4 : i + 8], "big"))
        for i in range(0, len(data), 8)
    ]
    assert entries
    assert all(ends[offset] == at for offset, at in entries)
    gaps = [b - a for (_, a), (_, b) in itertools.pairwise(entries)]
    assert min(gaps) > 256


def test_a_slice_has_the_whole_first_batch_and_no_more_than_asked(filesystem):
    segment = _log(filesystem).segments[0]
    position, size = segment.find(30)
    assert len(segment.slice_from(position, size, 1, segment.size).read()) == size
    assert segment.slice_from(position, size, size * 2 + 5, segment.size).size == size * 2 + 5
    assert segment.slice_from(position, size, 10**9, segment.size).size == segment.size - position


def test_a_slice_outlives_its_segment(filesystem):
    log = _log(filesystem)
    log.roll(EPOCH_MS)
    segment = log.segments[0]
    held = segment.slice_from(0, 1, 10**9, segment.size)
    expected = held.read()
    segment.remove()
    assert not filesystem.exists(segment.path)
    assert held.read() == expected
    assert [header.base_offset for _, header in headers_in(held.read())] == list(range(0, 150, 3))


def test_saved_indexes_are_what_the_next_one_reads(filesystem):
    log = _log(filesystem)
    log.close()
    names = filesystem.list(log.directory)
    assert {name.rpartition(".")[2] for name in names if "." in name} >= {"log", "index", "timeindex"}
    again = Segment(filesystem, log.directory, 0, interval_bytes=256)
    before = filesystem.counts("*.log").reads
    assert again.indexes.offsets.encode() == log.segments[0].indexes.offsets.encode()
    assert (again.largest_timestamp, again.max_timestamp_offset) == (EPOCH_MS + 149, 149)
    assert filesystem.counts("*.log").reads == before, "nothing of the log itself is read"


def test_an_insane_index_is_made_anew(filesystem):
    log = _log(filesystem)
    log.close()
    good = filesystem.read(f"{log.directory}/00000000000000000000.index")
    filesystem.corrupt(f"{log.directory}/00000000000000000000.index", 0, b"\xff\xff\xff\xff")
    again = Segment(filesystem, log.directory, 0, interval_bytes=256)
    assert again.indexes.offsets.encode() == good
    assert again.find(100)


def test_an_insane_time_index_is_made_anew(filesystem):
    """An offset behind the segment would hide its records from a look-up by time."""
    log = _log(filesystem)
    log.close()
    path = f"{log.directory}/00000000000000000000.timeindex"
    good = filesystem.read(path)
    filesystem.corrupt(path, 8, b"\x7f\xff\xff\xff")
    again = Segment(filesystem, log.directory, 0, interval_bytes=256)
    assert again.indexes.times.encode() == good


def test_cutting_takes_the_indexes_along(filesystem):
    segment = _log(filesystem).segments[0]
    position, _ = segment.find(60)
    segment.truncate(position, 60)
    assert (segment.size, filesystem.size(segment.path)) == (position, position)
    assert segment.last_header().next_offset == 60
    assert segment.indexes.offsets.lookup(10**6) < position
    assert segment.indexes.times.last[1] < 60
    assert segment.largest_timestamp == EPOCH_MS + 59
    assert segment.find(60) is None


def test_released_indexes_are_read_again(filesystem):
    log = _log(filesystem)
    log.roll(EPOCH_MS)
    segment = log.segments[0]
    segment.release_indexes()
    assert segment._indexes is not None, "what is not saved is not given back"
    log.flush()
    log.release_indexes()
    assert segment._indexes is None
    assert segment.find(100) is not None


@pytest.mark.parametrize(
    ("code", "error"), [(errno.ENOSPC, DiskFull), (errno.EDQUOT, DiskFull), (errno.EIO, WriteFailed)]
)
def test_a_refused_write_leaves_nothing_behind(filesystem, code, error):
    log = _log(filesystem, batches=2)
    segment = log.segments[0]
    size = segment.size
    filesystem.fail_write("*.log", error=code, written_bytes=40)
    with pytest.raises(error, match=r"data/orders-0/0+\.log"):
        append(log, some_records(3))
    assert (segment.size, filesystem.size(segment.path), log.end_offset) == (size, size, 6)
    assert append(log, some_records(1)).base_offset == 6


def test_a_short_write_is_finished(filesystem):
    log = _log(filesystem, batches=1)
    filesystem.short_write("*.log", at_most_bytes=10)
    append(log, some_records(3, first=3))
    assert [header.base_offset for header, _ in batches_from(log)] == [0, 3]


def test_a_tail_that_could_not_be_cut_is_cut_before_the_next_write(filesystem):
    log = _log(filesystem, batches=1)
    size = log.segments[0].size
    filesystem.fail_write("*.log", error=errno.EIO, written_bytes=40)
    filesystem.fail("truncate", "*.log")
    with pytest.raises(WriteFailed):
        append(log, some_records(3))
    assert filesystem.size(log.segments[0].path) == size + 40
    append(log, some_records(1))
    assert [header.base_offset for header, _ in batches_from(log)] == [0, 3]
    assert filesystem.size(log.segments[0].path) == log.segments[0].size


# --- what everybody waits for


def test_the_indexes_of_a_full_segment_are_read_in_a_moment():
    """A reader that lags has them read on the event loop: a gigabyte in batches of four kilobytes, here."""
    filesystem = MemoryFileSystem()
    filesystem.make_directory("log")
    full = Indexes(0)
    for number in range(262_144):
        full.offsets.append(5 * number + 4, 4096 * number)
        full.times.append(EPOCH_MS + number, 5 * number + 4)
    files = IndexFiles(filesystem, "log", 0)
    files.save(full)
    began = time.thread_time()
    loaded = files.load(2**30, full.transactions)
    assert time.thread_time() - began < 0.05
    assert loaded.offsets.lookup(700_004) == 4096 * 140_000
    assert loaded.times.lookup(EPOCH_MS + 140_001) == 700_004
    assert (loaded.offsets.encode(), loaded.times.encode()) == (full.offsets.encode(), full.times.encode())
