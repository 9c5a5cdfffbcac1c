"""Stopping a program at every step, and a program that deserves it."""

from contextlib import suppress
from random import Random

import pytest

from headrace.testing import MemoryFileSystem, SimulatedCrash, crash_points


def write_in_place(filesystem: MemoryFileSystem) -> None:
    file = filesystem.open("a", create=True)
    file.truncate(0)
    file.write_at([b"new"], 0)
    file.sync()
    filesystem.sync_directory("/")


def write_and_replace(filesystem: MemoryFileSystem) -> None:
    file = filesystem.open("a.tmp", create=True)
    file.write_at([b"new"], 0)
    file.sync()
    filesystem.replace("a.tmp", "a")
    filesystem.sync_directory("/")


def write_and_replace_unsynced(filesystem: MemoryFileSystem) -> None:
    filesystem.open("a.tmp", create=True).write_at([b"new"], 0)
    filesystem.replace("a.tmp", "a")
    filesystem.sync_directory("/")


def prepare_old(filesystem: MemoryFileSystem) -> None:
    file = filesystem.open("a", create=True)
    file.write_at([b"old"], 0)
    file.sync()
    filesystem.sync_directory("/")


def contents_after_crashes(run) -> set[bytes]:
    return {
        stopped.crash(Random(seed)).read("a")
        for stopped in crash_points(run, prepare=prepare_old)
        for seed in range(60)
    }


def test_a_right_algorithm_passes() -> None:
    assert contents_after_crashes(write_and_replace) == {b"old", b"new"}


@pytest.mark.parametrize("wrong", [write_in_place, write_and_replace_unsynced])
def test_a_wrong_algorithm_is_caught(wrong) -> None:
    assert contents_after_crashes(wrong) - {b"old", b"new"}


def test_every_step_is_stopped_at_once_and_every_write_also_half_way() -> None:
    stops = [stopped.stopped_at for stopped in crash_points(write_and_replace, prepare=prepare_old)]
    assert stops == [
        "open a.tmp",
        "write a.tmp",
        "write a.tmp",
        "sync a.tmp",
        "replace a",
        "sync_directory /",
        None,
    ]


def test_half_a_write_is_half_written() -> None:
    stopped = [
        each for each in crash_points(write_and_replace, prepare=prepare_old) if each.stopped_at == "write a.tmp"
    ]
    assert [each.crash(mode="keep_everything").read("a.tmp") for each in stopped] == [b"", b"n"]


def test_half_a_write_on_a_full_disk_is_a_crash_all_the_same() -> None:
    filesystem = MemoryFileSystem(capacity_bytes=1)
    file = filesystem.open("a", create=True)
    file.write_at([b"x"], 0)
    filesystem.crash_after(1, halfway=True)
    with pytest.raises(SimulatedCrash):
        file.write_at([b"abcd"], 1)
    assert filesystem.crash(mode="keep_everything").read("a") == b"x"


def test_at_the_end_everything_is_durable() -> None:
    *_, finished = crash_points(write_and_replace, prepare=prepare_old)
    assert finished.stopped_at is None
    assert finished.crash(mode="lose_everything").read("a") == b"new"


def test_no_except_exception_swallows_the_crash_and_everything_after_it_raises_too() -> None:
    filesystem = MemoryFileSystem()
    file = filesystem.open("a", create=True)
    filesystem.crash_after(2)
    assert file.write_at([b"x"], 0) == 1

    def sync_and_swallow() -> None:
        with suppress(Exception):
            file.sync()

    with pytest.raises(SimulatedCrash, match="operation 3: sync a"):
        sync_and_swallow()
    assert filesystem.operations == 3
    for operation in (
        file.size,
        lambda: file.read_at(1, 0),
        lambda: filesystem.open("a"),
        lambda: filesystem.list("/"),
    ):
        with pytest.raises(SimulatedCrash):
            operation()
    assert filesystem.crash(mode="keep_everything").read("a") == b"x"


def test_reading_is_no_step() -> None:
    filesystem = MemoryFileSystem()
    prepare_old(filesystem)
    filesystem.crash_after(1)
    assert filesystem.open("a").read_at(3, 0) == filesystem.read("a") == b"old"
    filesystem.open("a", create=True).close()
    filesystem.make_directory("/")
    assert (filesystem.list("/"), filesystem.size("a"), filesystem.exists("b")) == (["a"], 3, False)
    with pytest.raises(SimulatedCrash):
        filesystem.remove("a")
    assert filesystem.crash(mode="keep_everything").exists("a")


@pytest.mark.parametrize(
    ("stop", "made"), [(1, []), (2, ["a"]), (3, ["a", "a/b"])], ids=["before", "after one", "after two"]
)
def test_each_folder_made_is_a_step(stop, made) -> None:
    filesystem = MemoryFileSystem()
    filesystem.crash_after(stop)
    with pytest.raises(SimulatedCrash):
        filesystem.make_directory("a/b/c")
    after = filesystem.crash(mode="keep_everything")
    assert [path for path in ("a", "a/b", "a/b/c") if after.exists(path)] == made
