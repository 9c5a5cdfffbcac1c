"""A disk that fills up, and gets room again."""

import errno

import pytest

from headrace.testing import MemoryFileSystem


def raises_no_space():
    return pytest.raises(OSError, match="No space left on device")


def test_a_write_is_short_when_a_part_fits_and_fails_when_nothing_does() -> None:
    filesystem = MemoryFileSystem(capacity_bytes=100)
    file = filesystem.open("a", create=True)
    assert file.write_at([b"x" * 60], 0) == 60
    assert file.write_at([b"y" * 30, b"z" * 30], 60) == 40
    assert file.read_at(200, 0) == b"x" * 60 + b"y" * 30 + b"z" * 10
    with raises_no_space() as caught:
        file.write_at([b"!"], 100)
    assert caught.value.errno == errno.ENOSPC
    assert file.size() == filesystem.used_bytes == 100


def test_overwriting_needs_no_room() -> None:
    filesystem = MemoryFileSystem(capacity_bytes=10)
    file = filesystem.open("a", create=True)
    file.write_at([b"x" * 10], 0)
    assert file.write_at([b"y" * 10], 0) == 10
    assert file.write_at([b"z" * 10], 5) == 5
    assert file.read_at(10, 0) == b"yyyyyzzzzz"


def test_a_gap_takes_room() -> None:
    filesystem = MemoryFileSystem(capacity_bytes=10)
    file = filesystem.open("a", create=True)
    assert file.write_at([b"xxxx"], 8) == 2
    filesystem.capacity_bytes = 20
    with raises_no_space():
        file.write_at([b"x"], 20)
    with raises_no_space():
        file.truncate(21)
    assert file.size() == 10


def test_a_full_disk_takes_no_new_file_nor_folder_but_renames() -> None:
    filesystem = MemoryFileSystem(capacity_bytes=10)
    file = filesystem.open("a", create=True)
    file.write_at([b"x" * 10], 0)
    with raises_no_space():
        filesystem.open("b", create=True)
    with raises_no_space():
        filesystem.make_directory("c")
    assert filesystem.open("a", create=True).size() == 10
    filesystem.replace("a", "a.deleted")
    assert filesystem.list("/") == ["a.deleted"]


def test_room_can_be_added() -> None:
    filesystem = MemoryFileSystem(capacity_bytes=10)
    file = filesystem.open("a", create=True)
    assert file.write_at([b"x" * 15], 0) == 10
    filesystem.capacity_bytes = 12
    assert file.write_at([b"x" * 5], 10) == 2
    filesystem.capacity_bytes = None
    assert file.write_at([b"x" * 1_000], 12) == 1_000


def test_a_disk_that_shrinks_below_what_it_holds_still_lets_one_overwrite() -> None:
    filesystem = MemoryFileSystem()
    file = filesystem.open("a", create=True)
    file.write_at([b"x" * 10], 0)
    filesystem.capacity_bytes = 5
    assert file.write_at([b"y" * 20], 8) == 2
    with raises_no_space():
        file.write_at([b"y"], 10)


def test_truncating_frees_room() -> None:
    filesystem = MemoryFileSystem(capacity_bytes=10)
    file = filesystem.open("a", create=True)
    file.write_at([b"x" * 10], 0)
    file.truncate(4)
    assert filesystem.used_bytes == 4
    assert file.write_at([b"x" * 10], 4) == 6


def test_a_removed_file_frees_room_with_its_last_handle() -> None:
    filesystem = MemoryFileSystem(capacity_bytes=10)
    first = filesystem.open("a", create=True)
    second = filesystem.open("a")
    first.write_at([b"x" * 10], 0)
    filesystem.remove("a")
    first.close()
    with raises_no_space():
        filesystem.open("b", create=True)
    second.close()
    assert filesystem.used_bytes == 0
    assert filesystem.open("b", create=True).write_at([b"x" * 10], 0) == 10


def test_a_replaced_file_frees_its_room() -> None:
    filesystem = MemoryFileSystem(capacity_bytes=10)
    for name in ("old", "new"):
        file = filesystem.open(name, create=True)
        file.write_at([b"x" * 4], 0)
        file.close()
    filesystem.replace("new", "old")
    assert filesystem.used_bytes == 4


def test_capacity_outlives_a_crash_and_what_was_lost_takes_no_room() -> None:
    filesystem = MemoryFileSystem(capacity_bytes=10)
    kept = filesystem.open("kept", create=True)
    kept.write_at([b"x" * 4], 0)
    kept.sync()
    filesystem.sync_directory("/")
    kept.write_at([b"x" * 6], 4)
    after = filesystem.crash(mode="lose_everything")
    assert (after.capacity_bytes, after.used_bytes) == (10, 4)
    assert after.open("kept").write_at([b"x" * 20], 4) == 6
