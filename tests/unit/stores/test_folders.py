"""Versions of a folder: a name always leads to a whole one, whenever somebody is killed."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from headrace.stores.errors import SinkMisconfigured, SinkRefused, TargetReplaced
from headrace.stores.folders import Generations, live_folder, switch_folders


def make(path: Path, text: str) -> None:
    path.mkdir()
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
