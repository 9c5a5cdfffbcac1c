"""Failures that a test orders."""

import errno
from random import Random

import pytest

from headrace.testing import MemoryFileSystem


@pytest.fixture
def filesystem() -> MemoryFileSystem:
    """A file `a` that holds `old`, durable with its name."""
    filesystem = MemoryFileSystem()
    file = filesystem.open("a", create=True)
    file.write_at([b"old"], 0)
    file.sync()
    filesystem.sync_directory("/")
    return filesystem


def raises_io_error():
    return pytest.raises(OSError, match="Input/output error")


def test_after_a_failed_sync_the_data_is_readable_but_a_second_sync_does_not_save_it(filesystem) -> None:
    file = filesystem.open("a")
    file.write_at([b"new and longer"], 0)
    fault = filesystem.fail_sync("a")
    with raises_io_error() as caught:
        file.sync()
    assert caught.value.errno == errno.EIO
    assert fault.hits == 1
    assert file.read_at(100, 0) == b"new and longer"
    file.sync()
    for seed in range(30):
        assert filesystem.crash(Random(seed)).read("a") == b"old"
    assert filesystem.crash(mode="lose_everything").read("a") == b"old"
    assert filesystem.crash(mode="keep_everything").read("a") == b"new and longer"


def test_after_a_failed_sync_a_killed_process_does_not_change_what_the_power_failure_takes(filesystem) -> None:
    file = filesystem.open("a")
    file.write_at([b"new"], 0)
    filesystem.fail_sync()
    with raises_io_error():
        file.sync()
    restarted = filesystem.crash(mode="keep_everything")
    assert restarted.read("a") == b"new"
    restarted.open("a").sync()
    assert restarted.crash(mode="lose_everything").read("a") == b"old"


def test_what_is_written_again_after_a_failed_sync_is_saved_by_the_next(filesystem) -> None:
    file = filesystem.open("a")
    file.write_at([b"new and longer"], 0)
    filesystem.fail_sync()
    with raises_io_error():
        file.sync()
    file.write_at([b"new and longer"], 0)
    file.sync()
    assert filesystem.crash(mode="lose_everything").read("a") == b"new and longer"


def test_a_failed_sync_leaves_a_hole_under_what_is_synced_later() -> None:
    filesystem = MemoryFileSystem()
    file = filesystem.open("a", create=True)
    filesystem.sync_directory("/")
    file.write_at([b"x" * 8192], 0)
    filesystem.fail_sync()
    with raises_io_error():
        file.sync()
    file.write_at([b"y" * 4096], 8192)
    file.sync()
    assert file.read_at(20_000, 0) == b"x" * 8192 + b"y" * 4096
    assert filesystem.crash(mode="lose_everything").read("a") == bytes(8192) + b"y" * 4096


def test_only_the_pages_that_are_written_again_are_saved_after_a_failed_sync() -> None:
    filesystem = MemoryFileSystem()
    file = filesystem.open("a", create=True)
    filesystem.sync_directory("/")
    file.write_at([b"x" * 12_000], 0)
    filesystem.fail_sync()
    with raises_io_error():
        file.sync()
    file.write_at([b"y"], 4096)
    file.sync()
    assert filesystem.crash(mode="lose_everything").read("a") == bytes(4096) + b"y" + b"x" * 4095


def test_faults_choose_paths_and_skip_and_end(filesystem) -> None:
    other = filesystem.open("b.index", create=True)
    file = filesystem.open("a")
    filesystem.fail_sync("*.index", times=2, skip=1)
    file.sync()
    other.sync()
    for _ in range(2):
        with raises_io_error():
            other.sync()
        file.sync()
    other.sync()


def test_a_fault_without_end_lasts_until_it_is_healed(filesystem) -> None:
    file = filesystem.open("a")
    sync_fault = filesystem.fail_sync(times=None)
    write_fault = filesystem.fail_write(times=None)
    for _ in range(5):
        with raises_io_error():
            file.sync()
    filesystem.heal(sync_fault)
    file.sync()
    with raises_io_error():
        file.write_at([b"x"], 0)
    filesystem.heal()
    assert file.write_at([b"x"], 0) == 1
    assert (sync_fault.hits, write_fault.hits) == (5, 1)


def test_a_failed_sync_of_a_folder_saves_no_name_until_the_next_one(filesystem) -> None:
    filesystem.make_directory("d")
    filesystem.sync_directory("/")
    filesystem.open("d/b", create=True)
    filesystem.fail("sync_directory", "d")
    with raises_io_error():
        filesystem.sync_directory("d")
    restarted = filesystem.crash(mode="keep_everything")
    assert filesystem.crash(mode="lose_everything").list("d") == []
    restarted.sync_directory("d")
    assert restarted.crash(mode="lose_everything").list("d") == ["b"]


def test_a_failed_write_writes_nothing_or_the_part_that_was_asked_for(filesystem) -> None:
    file = filesystem.open("a")
    filesystem.fail_write("a")
    with raises_io_error():
        file.write_at([b"new"], 0)
    assert file.read_at(10, 0) == b"old"
    filesystem.fail_write("a", written_bytes=2, error=errno.ENOSPC)
    with pytest.raises(OSError, match="No space left"):
        file.write_at([b"new"], 0)
    assert file.read_at(10, 0) == b"ned"
    assert file.write_at([b"new"], 0) == 3


def test_a_short_write_says_how_much_it_wrote(filesystem) -> None:
    file = filesystem.open("a")
    filesystem.short_write(at_most_bytes=4)
    assert file.write_at([b"abc"], 0) == 3
    assert file.write_at([b"ab", b"cdef"], 3) == 4
    assert file.read_at(100, 0) == b"abcabcd"
    assert file.write_at([b"ef"], 7) == 2
    filesystem.short_write(times=2)
    assert [file.write_at([b"12345678"], 0) for _ in range(3)] == [4, 4, 8]


def test_a_bad_sector_fails_the_reads_that_touch_it(filesystem) -> None:
    file = filesystem.open("a")
    file.write_at([b"0123456789"], 0)
    fault = filesystem.fail_read("a", start=4, end=6)
    assert file.read_at(4, 0) == b"0123"
    assert file.read_at(100, 6) == b"6789"
    assert file.read_at(100, 10) == b""
    for size, position in ((5, 0), (1, 5), (100, 0), (1, 4)):
        with raises_io_error():
            file.read_at(size, position)
    with raises_io_error():
        filesystem.read("a")
    filesystem.heal(fault)
    assert filesystem.read("a") == b"0123456789"


@pytest.mark.parametrize(
    ("kind", "path", "operation"),
    [
        ("open", "a", lambda fs: fs.open("a")),
        ("truncate", "a", lambda fs: fs.open("a").truncate(0)),
        ("replace", "b", lambda fs: fs.replace("a", "/b")),
        ("replace", "a", lambda fs: fs.replace("a", "b")),
        ("remove", "a", lambda fs: fs.remove("//a")),
        ("list", "", lambda fs: fs.list("/")),
        ("make_directory", "d/*", lambda fs: fs.make_directory("d/e")),
        ("remove_directory", "*", lambda fs: fs.remove_directory("d")),
    ],
)
def test_every_other_operation_can_fail_and_then_changes_nothing(filesystem, kind, path, operation) -> None:
    filesystem.fail(kind, path, error=errno.EACCES)
    with pytest.raises(PermissionError):
        operation(filesystem)
    assert filesystem.list("/") == ["a"]
    assert filesystem.read("a") == b"old"


def test_bit_rot_changes_what_is_read_and_what_is_on_the_disk(filesystem) -> None:
    filesystem.corrupt("a", 1, b"L")
    assert filesystem.read("a") == b"oLd"
    assert filesystem.crash(mode="lose_everything").read("a") == b"oLd"


def test_bit_rot_beyond_what_is_on_the_disk_is_only_in_the_page_cache(filesystem) -> None:
    filesystem.open("a").write_at([b"1234"], 3)
    filesystem.corrupt("a", 2, b"DX")
    assert filesystem.read("a") == b"olDX234"
    assert filesystem.crash(mode="lose_everything").read("a") == b"olD"


@pytest.mark.parametrize("position", [-1, 2, 50])
def test_only_bytes_that_are_there_can_rot(filesystem, position) -> None:
    with pytest.raises(ValueError, match="cannot rot"):
        filesystem.corrupt("a", position, b"xx")


@pytest.mark.parametrize(
    "order",
    [
        lambda fs: fs.fail_sync(times=0),
        lambda fs: fs.fail_sync(skip=-1),
        lambda fs: fs.short_write(at_most_bytes=0),
        lambda fs: fs.crash_after(0),
        lambda fs: fs.crash(),
        lambda fs: MemoryFileSystem(page_bytes=1000),
    ],
)
def test_senseless_orders_are_refused(filesystem, order) -> None:
    with pytest.raises(ValueError):
        order(filesystem)
