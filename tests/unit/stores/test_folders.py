"""Versions of a folder: a name always leads to a whole one, whenever somebody is killed."""

import itertools
import os
import shutil
import signal
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from headrace.stores.delta.batch import delta
from headrace.stores.errors import SinkMisconfigured, SinkRefused, TargetReplaced
from headrace.stores.folders import (
    Generations,
    live_folder,
    make_scratch_folder,
    path_beside,
    refuse_in_use,
    switch_folders,
)


def make(path: Path, text: str) -> None:
    path.mkdir(parents=True)
    (path / "file").write_text(text)


def read(path: Path) -> str:
    return (live_folder(path) / "file").read_text()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "t"


def beside(path: Path, number: int) -> Path:
    return path.with_name(f"t.v{number}")


def test_a_version_takes_the_name_and_the_one_before_is_kept(path: Path) -> None:
    make(path, "first")
    for number in (2, 3):
        make(beside(path, number), f"version {number}")
        switch_folders(path, number)
        switch_folders(path, number)  # once more changes nothing
        assert (path / "file").read_text() == read(path) == f"version {number}"
    assert [(beside(path, number) / "file").read_text() for number in (1, 2)] == ["first", "version 2"]


def test_a_delta_table_named_with_a_slash_at_its_end_switches_to_what_was_built(path: Path) -> None:
    make(path, "first")
    for scheme in ("", "file://"):
        sink = delta(f"{scheme}{path}/")
        number = 2 if not scheme else 3
        make(Path(sink.beside(number).uri.removeprefix("file://")), f"version {number}")
        sink.switch(number)
        assert read(path) == f"version {number}"
        assert path.is_symlink()


def test_a_version_stands_beside_its_folder_in_an_object_store_too() -> None:
    assert path_beside("s3://lake/orders/", 2) == path_beside("s3://lake/orders", 2) == "s3://lake/orders.v2"
    assert path_beside("s3://lake/", 2) == "s3://lake/.v2"  # the bucket is ours, its neighbour is not


def test_a_name_that_is_a_link_never_has_a_moment_without_a_folder(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make(beside(path, 2), "second")
    make(beside(path, 3), "third")
    switch_folders(path, 2)
    seen = []

    def look(step: Callable[..., object]) -> Callable[..., object]:
        def stepped(*arguments: object, **more: object) -> object:
            seen.append((path / "file").read_text())
            done = step(*arguments, **more)
            seen.append((path / "file").read_text())
            return done

        return stepped

    for name in ("symlink", "rename", "replace", "unlink", "fsync"):
        monkeypatch.setattr(os, name, look(getattr(os, name)))
    switch_folders(path, 3)
    assert seen[0] == "second"
    assert seen[-1] == "third"
    assert seen == sorted(seen)  # the old one, then the new one


# What a kill -9 leaves of the first switch, before and after each of its steps.
def prepared(path: Path) -> None:
    path.with_name(".t.link").symlink_to("t.v2")


def made_room(path: Path) -> None:
    prepared(path)
    path.rename(beside(path, 1))


def renamed_once(path: Path) -> None:
    """The first of the two renames that once were a switch."""
    path.rename(beside(path, 1))


@pytest.mark.parametrize("cut", [prepared, made_room, renamed_once])
def test_a_switch_that_was_cut_short_is_finished_by_the_next(path: Path, cut: Callable[[Path], None]) -> None:
    make(path, "first")
    make(beside(path, 2), "second")
    cut(path)
    switch_folders(path, 2)
    assert (path / "file").read_text() == "second"
    assert (beside(path, 1) / "file").read_text() == "first"
    assert not path.with_name(".t.link").is_symlink()


def test_whoever_opens_the_folder_after_a_cut_switch_finds_one(path: Path) -> None:
    make(path, "first")
    make(beside(path, 2), "second")
    prepared(path)
    assert read(path) == "first"
    path.rename(beside(path, 1))
    assert read(path) == "second"
    assert (path / "file").read_text() == "second"


def test_a_version_that_took_the_name_by_a_rename_is_one_that_is_there(path: Path) -> None:
    make(path, "second")
    make(beside(path, 1), "first")
    switch_folders(path, 2)
    make(beside(path, 3), "third")
    switch_folders(path, 3)
    assert [read(path), read(beside(path, 2)), read(beside(path, 1))] == ["third", "second", "first"]


def test_what_cannot_be_switched(path: Path) -> None:
    with pytest.raises(SinkMisconfigured, match="build version 2 before"):
        switch_folders(path, 2)
    for folder in (path, beside(path, 1), beside(path, 2)):
        make(folder, folder.name)
    with pytest.raises(SinkMisconfigured, match="is in the way"):
        switch_folders(path, 2)
    assert read(path) == "t"


def test_generations_are_linked_from_the_first(path: Path) -> None:
    generations = Generations(path)
    assert generations.current() is None
    assert generations.ensure() == generations.current() == path.with_name("t.g1")
    built = generations.beside()
    assert built.ensure() == built.current() == path.with_name("t.g2")
    (built.ensure() / "file").write_text("second")
    assert os.readlink(path) == "t.g1"
    generations.switch()
    assert (os.readlink(path), read(path)) == ("t.g2", "second")
    assert path.with_name("t.g1").exists()
    with pytest.raises(TargetReplaced, match="the index was replaced"):
        generations.check_current(path.with_name("t.g1"), "the index")
    generations.check_current(path.with_name("t.g2"), "the index")
    generations.beside()
    generations.switch()
    assert not path.with_name("t.g1").exists()
    with pytest.raises(SinkRefused, match=r"t\.g4 is not there"):
        generations.switch()


def test_a_folder_of_somebody_else_is_no_generation(path: Path) -> None:
    make(path, "theirs")
    with pytest.raises(SinkRefused, match="not a link to a folder that this sink made"):
        Generations(path).ensure()


def die_at(step: int, act: Callable[[], None]) -> bool:
    """Run it in a process that is killed before its step of that number; whether it came to that step."""
    child = os.fork()
    if child == 0:  # pragma: no cover
        left = [step]

        def counted(function: Callable[..., Any]) -> Callable[..., Any]:
            def run(*arguments: Any, **named: Any) -> Any:
                if left[0] == 0:
                    os.kill(os.getpid(), signal.SIGKILL)
                left[0] -= 1
                return function(*arguments, **named)

            return run

        for name in ("rename", "replace", "symlink", "unlink", "rmdir", "fsync"):
            setattr(os, name, counted(getattr(os, name)))
        act()
        os._exit(0)
    return os.WIFSIGNALED(os.waitpid(child, 0)[1])


def switch_twice(path: Path) -> None:
    switch_folders(path, 2)
    make(beside(path, 3), "third")
    switch_folders(path, 3)


def test_a_switch_that_is_killed_at_any_step_loses_no_folder(tmp_path: Path) -> None:
    for step in itertools.count():
        path = tmp_path / str(step) / "t"
        make(path, "first")
        make(beside(path, 2), "second")
        was_killed = die_at(step, partial(switch_twice, path))
        assert read(path) in ("first", "second", "third")
        switch_folders(path, 2)
        if beside(path, 3).exists():
            switch_folders(path, 3)
            assert read(path) == "third"
        assert [read(beside(path, 1)), read(beside(path, 2))] == ["first", "second"]
        if not was_killed:
            break
    assert step > 5


def test_a_generation_that_is_killed_at_any_step_is_the_old_or_the_new(tmp_path: Path) -> None:
    def build_and_switch(path: Path) -> None:
        (Generations(path).beside().ensure() / "file").write_text("second")
        Generations(path).switch()

    for step in itertools.count():
        path = tmp_path / str(step) / "t"
        (Generations(path).ensure() / "file").write_text("first")
        if not die_at(step, partial(build_and_switch, path)):
            break
        assert (path / "file").read_text() in ("first", "second")
        build_and_switch(path)
        assert (path / "file").read_text() == "second"
    assert step > 1


def test_a_name_that_a_user_removed_does_not_come_back(path: Path) -> None:
    make(path, "first")
    make(beside(path, 2), "given up")
    prepared(path)
    shutil.rmtree(path)
    assert live_folder(path) == path
    assert not path.exists()
    path.with_name(".g.link").symlink_to("g.g2")
    assert Generations(path.with_name("g")).current() is None


def test_a_link_of_the_user_is_kept_as_the_version_before(path: Path) -> None:
    make(path.parent / "elsewhere" / "t", "first")
    path.symlink_to("elsewhere/t")
    make(beside(path, 2), "second")
    assert read(path) == "first"
    switch_folders(path, 2)
    assert [read(path), (beside(path, 1) / "file").read_text()] == ["second", "first"]


def test_no_other_query_builds_in_the_folder_that_is_in_use(path: Path) -> None:
    make(path, "first")
    make(beside(path, 2), "second")
    refuse_in_use(path)
    refuse_in_use(beside(path, 2))
    switch_folders(path, 2)
    with pytest.raises(SinkMisconfigured, match=r"t\.v2 is in use, .*t is a link to it"):
        refuse_in_use(beside(path, 2))
    refuse_in_use(beside(path, 1))


def test_folders_that_somebody_else_made_up_do_no_harm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    names = [f"scratch-{owner}-x" for owner in ("9" * 20, "²", "x", "", "0", os.getpid())]
    for name in names:
        (tmp_path / name).mkdir()
    made = make_scratch_folder("scratch-")
    assert sorted(file.name for file in tmp_path.iterdir()) == sorted([*names[1:], made.name])
