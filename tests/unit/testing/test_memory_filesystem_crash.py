"""What a crash leaves: the promise, and every nasty way of keeping no more than it."""

from collections.abc import Callable, Iterator
from random import Random

import pytest

from headrace.testing import MemoryFileSystem, SimulatedCrash

PAGE = 4096


def after_crashes(filesystem: MemoryFileSystem, crashes: int = 400) -> Iterator[MemoryFileSystem]:
    for seed in range(crashes):
        yield filesystem.crash(Random(seed))


def outcomes(filesystem: MemoryFileSystem, look: Callable[[MemoryFileSystem], object]) -> set[object]:
    return {look(after) for after in after_crashes(filesystem)}


def durable_file(content: bytes, **options: int) -> MemoryFileSystem:
    filesystem = MemoryFileSystem(**options)
    file = filesystem.open("a", create=True)
    file.write_at([content], 0)
    file.sync()
    filesystem.sync_directory("/")
    return filesystem


def names(filesystem: MemoryFileSystem) -> str:
    return " ".join(filesystem.list("/"))


def test_what_is_synced_survives_every_crash() -> None:
    filesystem = durable_file(b"x" * 10_000)
    assert outcomes(filesystem, lambda after: after.read("a")) == {b"x" * 10_000}
    assert filesystem.crash(mode="lose_everything").read("a") == b"x" * 10_000
    assert filesystem.crash(mode="keep_everything").read("a") == b"x" * 10_000


def test_lose_everything_leaves_only_what_is_synced() -> None:
    filesystem = durable_file(b"old")
    filesystem.open("a").write_at([b"new!"], 0)
    filesystem.open("b", create=True).sync()
    after = filesystem.crash(mode="lose_everything")
    assert after.list("/") == ["a"]
    assert after.read("a") == b"old"


def test_keep_everything_keeps_the_page_cache_and_it_is_still_not_on_the_disk() -> None:
    filesystem = durable_file(b"old")
    filesystem.open("a").write_at([b"new!"], 0)
    filesystem.open("b", create=True).write_at([b"b"], 0)
    killed = filesystem.crash(mode="keep_everything")
    assert killed.list("/") == ["a", "b"]
    assert (killed.read("a"), killed.read("b")) == (b"new!", b"b")
    lost = killed.crash(mode="lose_everything")
    assert lost.list("/") == ["a"]
    assert lost.read("a") == b"old"


def test_the_same_seed_leaves_the_same() -> None:
    filesystem = durable_file(b"x" * 5 * PAGE)
    filesystem.open("a").write_at([b"y" * 7 * PAGE], 0)
    for name in "bcdef":
        filesystem.open(name, create=True).write_at([b"z" * 9000], 0)

    def look(after: MemoryFileSystem) -> dict[str, bytes]:
        return {name: after.read(name) for name in after.list("/")}

    for seed in range(20):
        assert look(filesystem.crash(Random(seed))) == look(filesystem.crash(Random(seed)))


def test_any_subset_of_the_unsynced_pages_survives() -> None:
    filesystem = durable_file(b"o" * 3 * PAGE)
    filesystem.open("a").write_at([b"n" * 3 * PAGE], 0)

    def pages(after: MemoryFileSystem) -> str:
        content = after.read("a")
        assert len(content) == 3 * PAGE
        chunks = [content[start : start + PAGE] for start in range(0, 3 * PAGE, PAGE)]
        return "".join(chr(chunk[0]) if len(set(chunk)) == 1 else "t" for chunk in chunks)

    seen = outcomes(filesystem, pages)
    assert {"ooo", "oon", "ono", "onn", "noo", "non", "nno", "nnn"} <= seen
    assert any("t" in outcome for outcome in seen if isinstance(outcome, str))


def test_a_torn_page_is_torn_between_sectors_and_only_there() -> None:
    filesystem = durable_file(b"o" * PAGE)
    filesystem.open("a").write_at([b"n" * PAGE], 0)
    torn = 0
    for after in after_crashes(filesystem):
        content = after.read("a")
        sectors = [content[start : start + 512] for start in range(0, PAGE, 512)]
        assert all(sector in (b"o" * 512, b"n" * 512) for sector in sectors)
        torn += len(set(sectors)) == 2
    assert torn > 10


def test_a_file_may_grow_with_zeros_where_pages_are_missing() -> None:
    filesystem = durable_file(b"o" * PAGE)
    filesystem.open("a").write_at([b"n" * 3 * PAGE], PAGE)
    contents = outcomes(filesystem, lambda after: after.read("a"))
    assert b"o" * PAGE in contents
    assert b"o" * PAGE + b"n" * 3 * PAGE in contents
    assert b"o" * PAGE + b"n" * PAGE + bytes(PAGE) + b"n" * PAGE in contents
    assert b"o" * PAGE + bytes(3 * PAGE) in contents
    lengths = {len(content) for content in contents if isinstance(content, bytes)}
    assert len(lengths) > 10
    assert all(PAGE <= length <= 4 * PAGE for length in lengths)


def test_a_cut_may_be_lost_and_old_pages_show_between_new_ones() -> None:
    filesystem = durable_file(b"o" * 3 * PAGE)
    file = filesystem.open("a")
    file.truncate(0)
    assert outcomes(filesystem, lambda after: after.size("a")) == {0, 3 * PAGE}
    file = (filesystem := filesystem.crash(mode="keep_everything")).open("a")
    file.write_at([b"n" * 3 * PAGE], 0)
    contents = outcomes(filesystem, lambda after: after.read("a"))
    assert b"o" * PAGE + b"n" * PAGE + b"o" * PAGE in contents
    assert b"n" * 3 * PAGE in contents
    assert b"" in contents


def test_a_synced_cut_stays_cut() -> None:
    filesystem = durable_file(b"o" * 3 * PAGE)
    file = filesystem.open("a")
    file.truncate(100)
    file.truncate(200)
    file.sync()
    assert outcomes(filesystem, lambda after: after.read("a")) == {b"o" * 100 + bytes(100)}


def test_pages_that_were_cut_away_are_never_written() -> None:
    filesystem = durable_file(b"o" * 3 * PAGE)
    file = filesystem.open("a")
    file.write_at([b"n" * PAGE], PAGE)
    file.truncate(0)
    assert outcomes(filesystem, lambda after: after.read("a")) == {b"", b"o" * 3 * PAGE}


def test_a_page_may_be_written_with_the_zeros_behind_the_end_while_the_cut_is_lost() -> None:
    filesystem = durable_file(b"o" * 512, page_bytes=512)
    file = filesystem.open("a")
    file.truncate(0)
    file.write_at([b"n"], 0)
    contents = outcomes(filesystem, lambda after: after.read("a"))
    assert contents == {b"o" * 512, b"n" + bytes(511), b"", b"\0", b"n"}


def test_a_hole_left_by_a_cut_is_synced_as_zeros_however_often_the_file_was_cut() -> None:
    filesystem = durable_file(b"o" * 3 * PAGE)
    file = filesystem.open("a")
    file.truncate(0)
    file.write_at([b"n"], 9_000)
    file.truncate(8_000)
    file.sync()
    assert filesystem.crash(mode="lose_everything").read("a") == bytes(8_000)


def test_a_cut_that_was_lost_does_not_come_back() -> None:
    filesystem = durable_file(b"old")
    filesystem.open("a").truncate(0)
    after = filesystem.crash(mode="lose_everything")
    file = after.open("a")
    file.write_at([b"!"], 3)
    file.sync()
    assert after.crash(mode="lose_everything").read("a") == b"old!"


def test_a_killed_process_does_not_lose_a_length_that_grew_without_data() -> None:
    filesystem = durable_file(b"old")
    filesystem.open("a").truncate(5)
    killed = filesystem.crash(mode="keep_everything")
    killed.open("a").sync()
    assert killed.crash(mode="lose_everything").read("a") == b"old\0\0"


def test_an_early_write_back_leaves_older_versions_of_a_page() -> None:
    filesystem = durable_file(b"1", page_bytes=512)
    file = filesystem.open("a")
    file.write_at([b"2"], 0)
    for seed in range(20):
        filesystem.write_back(Random(seed))
    file.write_at([b"3"], 0)
    assert file.read_at(1, 0) == b"3"
    assert outcomes(filesystem, lambda after: after.read("a")) == {b"2", b"3"}
    killed = filesystem.crash(mode="keep_everything")
    killed.open("a").sync()
    assert killed.crash(mode="lose_everything").read("a") == b"3"


def test_a_new_name_without_a_sync_of_its_folder_may_be_lost_with_its_synced_content() -> None:
    filesystem = MemoryFileSystem()
    file = filesystem.open("a", create=True)
    file.write_at([b"x"], 0)
    file.sync()
    assert outcomes(filesystem, names) == {"", "a"}
    assert filesystem.crash(mode="lose_everything").list("/") == []


def test_a_synced_name_of_an_unsynced_file_may_hold_nothing_or_zeros() -> None:
    filesystem = MemoryFileSystem()
    filesystem.open("a", create=True).write_at([b"x" * 10], 0)
    filesystem.sync_directory("/")
    assert {b"", bytes(10), b"x" * 10} <= outcomes(filesystem, lambda after: after.read("a"))


def test_a_replace_without_a_sync_of_its_folder_leaves_the_old_or_the_new_never_neither() -> None:
    filesystem = durable_file(b"old")
    new = filesystem.open("a.tmp", create=True)
    new.write_at([b"new"], 0)
    new.sync()
    filesystem.replace("a.tmp", "a")
    seen = outcomes(filesystem, lambda after: (names(after), after.read("a")))
    assert seen == {("a", b"old"), ("a a.tmp", b"old"), ("a", b"new")}


def test_a_replace_with_a_sync_of_its_folder_but_not_of_the_file_may_leave_an_empty_file() -> None:
    filesystem = durable_file(b"old")
    filesystem.open("a.tmp", create=True).write_at([b"new"], 0)
    filesystem.replace("a.tmp", "a")
    filesystem.sync_directory("/")
    contents = outcomes(filesystem, lambda after: after.read("a"))
    assert {b"", b"new"} <= contents
    assert b"old" not in contents


def test_a_remove_without_a_sync_of_its_folder_may_come_back_whole() -> None:
    filesystem = durable_file(b"old")
    filesystem.remove("a")
    assert outcomes(filesystem, names) == {"", "a"}
    assert filesystem.crash(mode="lose_everything").read("a") == b"old"
    killed = filesystem.crash(mode="keep_everything")
    killed.sync_directory("/")
    assert outcomes(killed, names) == {""}


def test_operations_on_different_names_survive_one_without_the_other() -> None:
    filesystem = durable_file(b"old")
    filesystem.remove("a")
    filesystem.open("b", create=True)
    filesystem.make_directory("c")
    assert outcomes(filesystem, names) == {"", "a", "b", "c", "a b", "a c", "b c", "a b c"}


def test_operations_on_the_same_name_or_file_keep_their_order() -> None:
    filesystem = durable_file(b"old")
    filesystem.replace("a", "b")
    filesystem.replace("b", "c")
    assert outcomes(filesystem, names) == {"a", "b", "c"}
    filesystem = durable_file(b"old")
    filesystem.remove("a")
    filesystem.open("a", create=True)
    assert outcomes(filesystem, names) == {"a", ""}


def test_a_file_that_moves_between_folders_is_always_in_one_of_them() -> None:
    filesystem = durable_file(b"old")
    filesystem.make_directory("d/e")
    filesystem.replace("a", "d/e/a")
    assert outcomes(filesystem, lambda after: (after.exists("a"), after.exists("d/e/a"))) == {
        (True, False),
        (False, True),
    }
    killed = filesystem.crash(mode="keep_everything")
    killed.sync_directory("d/e")
    assert killed.crash(mode="lose_everything").read("d/e/a") == b"old"
    killed = filesystem.crash(mode="keep_everything")
    killed.sync_directory("/")
    after = killed.crash(mode="lose_everything")
    assert not after.exists("a")
    assert after.read("d/e/a") == b"old"


def test_a_file_that_leaves_a_removed_folder_is_not_removed_with_it() -> None:
    filesystem = MemoryFileSystem()
    for folder in ("d", "e"):
        filesystem.make_directory(folder)
    filesystem.open("d/a", create=True)
    for folder in ("d", "/"):
        filesystem.sync_directory(folder)
    filesystem.replace("d/a", "e/a")
    filesystem.remove_directory("d")
    assert outcomes(filesystem, lambda after: (after.exists("d/a"), after.exists("e/a"), after.exists("d"))) == {
        (True, False, True),
        (False, True, True),
        (False, True, False),
    }
    killed = filesystem.crash(mode="keep_everything")
    killed.sync_directory("/")
    assert killed.crash(mode="lose_everything").exists("e/a")


def test_syncing_a_folder_does_not_sync_its_own_name() -> None:
    filesystem = MemoryFileSystem()
    filesystem.make_directory("d/e")
    filesystem.open("d/e/a", create=True)
    filesystem.sync_directory("d/e")
    filesystem.sync_directory("d")
    assert filesystem.crash(mode="lose_everything").list("/") == []
    killed = filesystem.crash(mode="keep_everything")
    killed.sync_directory("/")
    assert killed.crash(mode="lose_everything").list("d/e") == ["a"]


def test_syncing_a_folder_does_not_sync_the_names_in_another() -> None:
    filesystem = MemoryFileSystem()
    for folder in ("d", "e"):
        filesystem.make_directory(folder)
        filesystem.open(f"{folder}/a", create=True)
    filesystem.sync_directory("/")
    filesystem.sync_directory("d")
    after = filesystem.crash(mode="lose_everything")
    assert (after.list("d"), after.list("e")) == (["a"], [])


def test_a_renamed_folder_is_under_one_name_with_any_part_of_what_was_new_in_it() -> None:
    filesystem = MemoryFileSystem()
    filesystem.make_directory("d")
    filesystem.sync_directory("/")
    filesystem.replace("d", "e")
    filesystem.open("e/a", create=True)

    def look(after: MemoryFileSystem) -> str:
        (folder,) = after.list("/")
        return folder + "".join(after.list(folder))

    assert outcomes(filesystem, look) == {"d", "da", "e", "ea"}


def test_a_folder_never_ends_up_inside_itself() -> None:
    filesystem = MemoryFileSystem()
    filesystem.make_directory("b/x/a/k")
    for folder in ("b/x/a", "b/x", "b", "/"):
        filesystem.sync_directory(folder)
    filesystem.replace("b/x/a", "a")
    filesystem.replace("b", "a/k/b")

    def look(after: MemoryFileSystem) -> str | None:
        return next((path for path in ("b/x/a/k", "b/x", "a/k/b/x") if after.exists(path)), None)

    assert outcomes(filesystem, look) == {"b/x/a/k", "b/x", "a/k/b/x"}


def test_syncing_a_folder_into_which_a_folder_moved_syncs_all_that_came_before() -> None:
    filesystem = MemoryFileSystem()
    filesystem.make_directory("b/x/a/k")
    for folder in ("b/x/a", "b/x", "b", "/"):
        filesystem.sync_directory(folder)
    filesystem.replace("b/x/a", "a")
    filesystem.replace("b", "a/k/b")
    filesystem.sync_directory("a/k")
    assert outcomes(filesystem, lambda after: (names(after), after.exists("a/k/b/x"))) == {("a", True)}


def test_the_crashed_file_system_and_its_handles_are_dead_and_the_new_one_is_not() -> None:
    filesystem = durable_file(b"old")
    file = filesystem.open("a")
    after = filesystem.crash(mode="lose_everything")
    for operation in (
        lambda: file.write_at([b"x"], 0),
        lambda: file.read_at(1, 0),
        file.size,
        file.sync,
        lambda: filesystem.list("/"),
        lambda: filesystem.exists("a"),
    ):
        with pytest.raises(SimulatedCrash):
            operation()
    file.close()
    after.open("a").write_at([b"new"], 0)
    assert after.read("a") == b"new"
    assert filesystem.crash(mode="lose_everything").read("a") == b"old"


def test_a_removed_file_that_was_open_is_gone_after_a_kill() -> None:
    filesystem = durable_file(b"old")
    file = filesystem.open("a")
    filesystem.remove("a")
    killed = filesystem.crash(mode="keep_everything")
    assert killed.list("/") == []
    assert killed.used_bytes == 0
    file.close()
