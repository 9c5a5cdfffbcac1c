"""Names, handles and the errors for them, without a crash."""

import errno
import gc
import threading

import pytest

from headrace.storage.filesystem import FileSystem
from headrace.testing import FakeClock, MemoryFileSystem


@pytest.fixture
def filesystem() -> MemoryFileSystem:
    filesystem = MemoryFileSystem()
    filesystem.make_directory("data/logs")
    filesystem.open("data/file", create=True).write_at([b"hello"], 0)
    return filesystem


def test_is_a_file_system_and_leading_slashes_mean_nothing(filesystem: FileSystem) -> None:
    assert filesystem.list("/") == ["data"]
    assert filesystem.list("/data/") == filesystem.list("data") == ["file", "logs"]
    assert filesystem.read("/data//./file") == b"hello"
    assert filesystem.read("data/logs/../file") == b"hello"


def test_buffers_are_written_one_after_the_other_with_zeros_in_a_gap(filesystem: MemoryFileSystem) -> None:
    file = filesystem.open("data/file")
    assert file.write_at([b"ab", bytearray(b"c"), memoryview(b"def")], 8) == 6
    assert file.read_at(100, 0) == b"hello\0\0\0abcdef"
    assert file.read_at(2, 9) == b"bc"
    assert file.read_at(10, 14) == b""
    assert file.size() == filesystem.size("data/file") == 14
    assert file.fileno() == -1


def test_writing_nothing_behind_the_end_does_not_grow_the_file(filesystem: MemoryFileSystem) -> None:
    file = filesystem.open("data/file")
    assert file.write_at([b"", b""], 100) == 0
    assert file.write_at([], 100) == 0
    assert file.size() == 5


def test_truncate_cuts_and_grows_with_zeros(filesystem: MemoryFileSystem) -> None:
    file = filesystem.open("data/file")
    file.truncate(2)
    file.truncate(4)
    assert file.read_at(10, 0) == b"he\0\0"


@pytest.mark.parametrize(
    ("operation", "code"),
    [
        (lambda fs: fs.open("data/none"), errno.ENOENT),
        (lambda fs: fs.open("none/file", create=True), errno.ENOENT),
        (lambda fs: fs.open("data/file/x", create=True), errno.ENOTDIR),
        (lambda fs: fs.open("data/logs"), errno.EISDIR),
        (lambda fs: fs.open("data/logs", create=True), errno.EISDIR),
        (lambda fs: fs.open("data/new/", create=True), errno.EISDIR),
        (lambda fs: fs.open("data/" + "x" * 256, create=True), errno.ENAMETOOLONG),
        (lambda fs: fs.open("", create=True), errno.ENOENT),
        (lambda fs: fs.read("data/none"), errno.ENOENT),
        (lambda fs: fs.read("data/logs"), errno.EISDIR),
        (lambda fs: fs.replace("data/none", "data/file"), errno.ENOENT),
        (lambda fs: fs.replace("data/file", "none/file"), errno.ENOENT),
        (lambda fs: fs.replace("data/file", "data/logs"), errno.EISDIR),
        (lambda fs: fs.replace("data/file", "data"), errno.ENOTEMPTY),
        (lambda fs: fs.replace("data/logs", "data/file"), errno.ENOTDIR),
        (lambda fs: fs.replace("data", "data/logs/data"), errno.EINVAL),
        (lambda fs: fs.replace("/", "data/root"), errno.EBUSY),
        (lambda fs: fs.remove("data/none"), errno.ENOENT),
        (lambda fs: fs.remove("data/logs"), errno.EISDIR),
        (lambda fs: fs.remove("data/file/"), errno.ENOTDIR),
        (lambda fs: fs.list("data/none"), errno.ENOENT),
        (lambda fs: fs.list("data/file"), errno.ENOTDIR),
        (lambda fs: fs.size("data/none"), errno.ENOENT),
        (lambda fs: fs.modified_ms("data/none"), errno.ENOENT),
        (lambda fs: fs.make_directory("data/file"), errno.EEXIST),
        (lambda fs: fs.make_directory("data/file/x"), errno.ENOTDIR),
        (lambda fs: fs.remove_directory("data"), errno.ENOTEMPTY),
        (lambda fs: fs.remove_directory("data/file"), errno.ENOTDIR),
        (lambda fs: fs.remove_directory("data/none"), errno.ENOENT),
        (lambda fs: fs.remove_directory("/"), errno.EBUSY),
        (lambda fs: fs.sync_directory("data/file"), errno.ENOTDIR),
        (lambda fs: fs.open("data/file").write_at([b"x"], -2), errno.EINVAL),
        (lambda fs: fs.open("data/file").write_at([b"x"] * 1025, 0), errno.EINVAL),
        (lambda fs: fs.open("data/file").read_at(-1, 0), errno.EINVAL),
        (lambda fs: fs.open("data/file").truncate(-1), errno.EINVAL),
    ],
)
def test_errors_are_those_of_the_operating_system(filesystem, operation, code) -> None:
    with pytest.raises(OSError) as caught:
        operation(filesystem)
    assert errno.errorcode[caught.value.errno] == errno.errorcode[code]
    assert filesystem.read("data/file") == b"hello"
    assert filesystem.list("data") == ["file", "logs"]


def test_a_closed_handle_is_bad_and_closing_twice_is_harmless(filesystem: MemoryFileSystem) -> None:
    file = filesystem.open("data/file")
    file.close()
    file.close()
    for operation in (
        lambda: file.write_at([b"x"], 0),
        lambda: file.read_at(1, 0),
        file.size,
        lambda: file.truncate(0),
        file.sync,
    ):
        with pytest.raises(OSError) as caught:
            operation()
        assert caught.value.errno == errno.EBADF


def test_a_removed_file_stays_readable_and_writable_through_its_handles(filesystem: MemoryFileSystem) -> None:
    file = filesystem.open("data/file")
    filesystem.remove("data/file")
    filesystem.open("data/file", create=True).write_at([b"other"], 0)
    file.write_at([b"!"], 5)
    assert file.read_at(10, 0) == b"hello!"
    assert filesystem.read("data/file") == b"other"


def test_a_replaced_file_stays_readable_through_its_handles(filesystem: MemoryFileSystem) -> None:
    old = filesystem.open("data/file")
    filesystem.open("data/new", create=True).write_at([b"new"], 0)
    filesystem.replace("data/new", "data/file")
    assert old.read_at(10, 0) == b"hello"
    assert filesystem.read("data/file") == b"new"
    assert filesystem.list("data") == ["file", "logs"]


def test_replacing_a_file_by_itself_changes_nothing(filesystem: MemoryFileSystem) -> None:
    filesystem.replace("data/file", "data/file")
    assert filesystem.read("data/file") == b"hello"


def test_a_folder_moves_with_what_is_in_it(filesystem: MemoryFileSystem) -> None:
    filesystem.open("data/logs/a", create=True).write_at([b"a"], 0)
    filesystem.make_directory("empty")
    filesystem.replace("data/logs", "empty")
    assert filesystem.read("empty/a") == b"a"
    assert not filesystem.exists("data/logs/a")
    assert filesystem.exists("empty")


def test_modified_is_the_time_of_the_clock_at_the_last_write() -> None:
    clock = FakeClock(1_000)
    filesystem = MemoryFileSystem(clock=clock)
    file = filesystem.open("a", create=True)
    clock.advance(5)
    file.write_at([b"x"], 0)
    clock.advance(5)
    file.read_at(1, 0)
    file.sync()
    assert filesystem.modified_ms("a") == 1_005
    file.truncate(0)
    assert filesystem.modified_ms("a") == 1_010


def test_reads_writes_and_syncs_are_counted_by_path() -> None:
    filesystem = MemoryFileSystem()
    filesystem.make_directory("t-0")
    file = filesystem.open("t-0/0.log.swap", create=True)
    file.write_at([b"abc"], 0)
    filesystem.replace("t-0/0.log.swap", "t-0/0.log")
    file.write_at([b"d"], 3)
    file.sync()
    filesystem.read("/t-0/0.log")
    filesystem.sync_directory("t-0")
    swap, log, everything = (filesystem.counts(path) for path in ("*.swap", "/t-0/0.log", "*"))
    assert (swap.reads, swap.writes, swap.syncs) == (0, 1, 0)
    assert (log.reads, log.writes, log.syncs) == (1, 1, 1)
    assert (everything.reads, everything.writes, everything.syncs) == (1, 2, 2)


def test_threads_do_not_lose_each_others_writes() -> None:
    filesystem = MemoryFileSystem(capacity_bytes=1_000_000)
    files = [filesystem.open(f"f{number}", create=True) for number in range(4)]
    shared = filesystem.open("shared", create=True)

    def work(number: int) -> None:
        for step in range(500):
            files[number].write_at([b"x" * 10], step * 10)
            shared.write_at([bytes([number])], step * 4 + number)
            files[number].sync()

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert shared.read_at(2_000, 0) == bytes([0, 1, 2, 3]) * 500
    assert filesystem.used_bytes == 4 * 5_000 + 2_000
    assert filesystem.counts("f*").syncs == 2_000


def test_a_forgotten_handle_is_closed() -> None:
    filesystem = MemoryFileSystem()
    file = filesystem.open("a", create=True)
    file.write_at([b"abc"], 0)
    filesystem.remove("a")
    assert filesystem.used_bytes == 3
    del file
    gc.collect()
    assert filesystem.used_bytes == 0


def test_a_file_opened_to_read_can_be_read_and_not_changed(filesystem: MemoryFileSystem) -> None:
    before = filesystem.operations
    file = filesystem.open_to_read("data/file")
    assert file.read_at(10, 0) == b"hello"
    with pytest.raises(OSError, match="Bad file descriptor"):
        file.write_at([b"x"], 0)
    with pytest.raises(OSError, match="Invalid argument"):
        file.truncate(0)
    assert filesystem.operations == before
    assert filesystem.read("data/file") == b"hello"
    with pytest.raises(FileNotFoundError):
        filesystem.open_to_read("data/none")
    with pytest.raises(IsADirectoryError):
        filesystem.open_to_read("data/logs")


def test_a_lock_keeps_others_out_until_it_is_given_back(filesystem: MemoryFileSystem) -> None:
    unlock = filesystem.lock("data/.lock")
    assert filesystem.exists("data/.lock")
    with pytest.raises(BlockingIOError):
        filesystem.lock("/data//.lock")
    filesystem.lock("data/logs/.lock")
    unlock()
    unlock_again = filesystem.lock("data/.lock")
    unlock_again()
    with pytest.raises(FileNotFoundError):
        filesystem.lock("none/.lock")


@pytest.mark.parametrize("mode", ["lose_everything", "keep_everything"])
def test_the_lock_of_a_dead_process_is_free(filesystem: MemoryFileSystem, mode) -> None:
    filesystem.sync_directory("/")
    unlock = filesystem.lock("data/.lock")
    after = filesystem.crash(mode=mode)
    after.lock("data/.lock")
    unlock()
    with pytest.raises(BlockingIOError):
        after.lock("data/.lock")
