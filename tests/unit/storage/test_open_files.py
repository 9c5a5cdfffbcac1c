"""Files of segments that are opened when they are needed, and let go of when others need room."""

import errno
import gc
import os

import pytest

from headrace.storage.config import LogConfig
from headrace.storage.directory import LogDirectory
from headrace.storage.errors import LogDeleted, SyncFailed
from headrace.storage.filesystem import OPEN_FILES
from headrace.testing import FakeClock, MemoryFileSystem
from tests.small_logs import EPOCH_MS, FOLDER, PARTITION, append, new_log, records_from, some_records

CONFIG = LogConfig(segment_bytes=300, retention_ms=-1)


@pytest.fixture
def two_files(monkeypatch):
    """No more than two files of segments are open, where that does no harm."""
    gc.collect()
    for holder in list(OPEN_FILES._holders):
        holder.release_file()
        OPEN_FILES.forget(holder)
    monkeypatch.setattr(OPEN_FILES, "limit", 2)


def _open_count(log):
    return sum(segment._file is not None for segment in log.segments)


def _after_power_cut(filesystem):
    for folder in (FOLDER, "data", "."):
        filesystem.sync_directory(folder)
    return filesystem.crash(mode="lose_everything")


def _filled(filesystem, **config):
    log = new_log(filesystem, segment_bytes=300, **config)
    for number in range(20):
        append(log, some_records(2, first=2 * number))
        log.flush()
    assert len(log.segments) > 5
    return log


def test_segments_that_rest_let_go_of_their_files_and_are_read_all_the_same(two_files):
    log = _filled(MemoryFileSystem())
    assert _open_count(log) <= 2
    assert [record.key for record in records_from(log)] == [b"key-%04d" % number for number in range(40)]
    assert _open_count(log) <= 2


def test_what_is_not_synced_stays_open_until_it_is(two_files, monkeypatch):
    monkeypatch.setattr(OPEN_FILES, "limit", 8)
    filesystem = MemoryFileSystem()
    log = new_log(filesystem, segment_bytes=300)
    for number in range(20):
        append(log, some_records(2, first=2 * number))
    assert _open_count(log) == len(log.segments) == 10
    filesystem.fail_sync(f"{FOLDER}/*.log")
    with pytest.raises(SyncFailed):
        log.flush()
    in_doubt = [segment for segment in log.segments if segment.in_doubt]
    assert len(in_doubt) == 1
    assert in_doubt[0]._file is not None
    log.flush()
    monkeypatch.setattr(OPEN_FILES, "limit", 2)
    log.roll(EPOCH_MS)  # somebody needs room
    assert _open_count(log) <= 2


def test_where_nobody_syncs_a_file_it_is_synced_before_it_is_let_go_of(two_files):
    """`durability = os`: the next file has to be opened all the same."""
    filesystem = MemoryFileSystem()
    log = new_log(filesystem, segment_bytes=300)
    for number in range(20):
        append(log, some_records(2, first=2 * number))
    let_go = [segment for segment in log.segments if segment._file is None]
    assert len(let_go) >= len(log.segments) - 3
    crashed = _after_power_cut(filesystem)
    assert all(crashed.size(segment.path) == segment.size > 0 for segment in let_go)


def test_a_sync_that_fails_where_a_file_was_to_be_let_go_of_is_not_forgotten(two_files):
    filesystem = MemoryFileSystem()
    log = new_log(filesystem, segment_bytes=300)
    filesystem.fail_sync(f"{FOLDER}/*.log")
    for number in range(20):
        append(log, some_records(2, first=2 * number))
    assert len([segment for segment in log.segments if segment.in_doubt]) == 1
    log.flush()
    crashed = _after_power_cut(filesystem)
    assert [record.key for record in records_from(new_log(crashed))] == [b"key-%04d" % number for number in range(40)]


def test_a_segment_that_was_removed_is_read_by_whoever_holds_it(two_files, monkeypatch):
    log = _filled(MemoryFileSystem())
    monkeypatch.setattr(OPEN_FILES, "limit", 20)
    held = log.segments
    log.advance_start(30)
    assert log.remove_dead_segments(EPOCH_MS)
    records_from(log)
    assert held[0].find(1) is not None
    assert held[0].slice_from(0, 10, 10, 10).read()


def test_many_segments_that_are_removed_at_once_do_not_take_all_the_files_there_are(two_files):
    log = _filled(MemoryFileSystem())
    held = log.segments
    log.advance_start(36)
    assert len(log.remove_dead_segments(EPOCH_MS)) > 6
    assert sum(segment._file is not None for segment in held) <= 3
    with pytest.raises(OSError, match="removed"):
        _ = held[0].file
    assert records_from(log)


def test_a_removed_segment_whose_file_could_not_be_opened_is_not_read_from_its_successors(two_files):
    """Compaction puts another file under its name; whoever found the segment before would read that at its places."""
    filesystem = MemoryFileSystem()
    log = _filled(filesystem)
    held = log.segments[0]
    assert held._file is None
    filesystem.fail("open", f"{FOLDER}/{0:020d}.log", error=errno.EMFILE, times=2)
    held.remove(keep_log=True)
    with pytest.raises(OSError, match="removed"):
        _ = held.file


def test_a_slice_is_read_after_its_log_was_deleted_and_a_closed_file_is_not_opened_in_its_successor(two_files):
    filesystem = MemoryFileSystem()
    directory = LogDirectory.open("data", filesystem=filesystem, clock=FakeClock(EPOCH_MS), config_for=lambda _: CONFIG)
    log = directory.create(PARTITION, CONFIG)
    for number in range(20):
        append(log, some_records(2, first=2 * number))
        log.flush()
    part = log.read(0, 100).slice
    expected = part.read()
    directory.delete(PARTITION)
    successor = directory.create(PARTITION, CONFIG)
    append(successor, some_records(2, first=7000))
    successor.flush()
    assert part.read() == expected
    closed = [segment for segment in log.segments if segment._file is None]
    assert closed
    for segment in closed:
        with pytest.raises(LogDeleted):
            _ = segment.file


def test_when_the_process_has_no_descriptor_left_those_that_rest_make_room():
    filesystem = MemoryFileSystem()
    log = _filled(filesystem)
    assert _open_count(log) == len(log.segments)
    log.segments[0].release_file()
    filesystem.fail("open", f"{FOLDER}/*.log", error=errno.EMFILE)
    assert log.read(0, 10).slice.read()
    assert _open_count(log) < len(log.segments)


def test_a_closed_segment_stays_closed():
    log = new_log(MemoryFileSystem())
    segment = log.segments[0]
    log.abandon()
    with pytest.raises(OSError, match="closed"):
        segment.sync(0)


def test_more_segments_than_the_process_may_open(tmp_path, few_files):
    path = str(tmp_path / "data")
    with LogDirectory.open(path, config_for=lambda _: CONFIG) as directory:
        log = directory.create(PARTITION, CONFIG)
        for number in range(150):
            append(log, some_records(2, first=2 * number))
            if number % 7 == 0:
                log.flush()
        assert len(log.segments) > 60
    for is_clean in (True, False):
        directory = LogDirectory.open(path, config_for=lambda _: CONFIG)
        assert len(records_from(directory.log(PARTITION))) == 300
        assert len(os.listdir("/proc/self/fd")) < few_files
        if is_clean:
            directory.close()
        else:
            directory.abandon()
