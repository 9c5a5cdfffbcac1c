"""What is in a folder besides ordinary logs: it harms nobody, and what is read stays exact."""

import os
import threading
from collections.abc import Collection
from pathlib import Path

import pytest

from headrace.gateways.files import reading
from headrace.gateways.files.following import Identity, Seen, Tracked, look
from headrace.gateways.files.reading import Files


def tracked(path: Path, offset: int, head: bytes) -> Tracked:
    about = path.stat()
    return Tracked(Identity(about.st_dev, about.st_ino), str(path), str(path), offset, head)


def test_what_is_no_regular_file_is_named_and_never_opened(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.log")
    (tmp_path / "folder.log").mkdir()
    (tmp_path / "dangling.log").symlink_to(tmp_path / "nothing")
    (tmp_path / "real.log").write_bytes(b"a\n")
    named = Files([str(tmp_path / "pipe.log"), str(tmp_path / "folder.log"), "/dev/zero"])
    assert named.seen() == []
    assert {Path(path).name for path in named.problems} == {"pipe.log", "folder.log", "zero"}
    assert "name a regular file" in named.problems["/dev/zero"]
    by_pattern = Files([str(tmp_path / "*.log")])
    assert [Path(one.path).name for one in by_pattern.seen()] == ["real.log"]
    assert by_pattern.problems == {}, "a pattern may match what is not a log"


def test_a_pipe_that_takes_the_name_of_a_file_holds_nothing_up(tmp_path: Path) -> None:
    path = tmp_path / "a.log"
    path.write_bytes(b"a\n")
    file = tracked(path, 0, b"")
    path.unlink()
    os.mkfifo(path)
    found: list[object] = []
    thread = threading.Thread(target=lambda: found.append(Files([str(path)]).read(file, 10, b"")), daemon=True)
    thread.start()
    thread.join(5)
    assert found == [None]


def test_a_disk_that_fails_is_a_problem_until_it_does_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.log"
    path.write_bytes(b"a\n")
    files, file = Files([str(path)]), tracked(path, 0, b"")
    with monkeypatch.context() as patched:

        def fail(*_: int) -> bytes:
            raise OSError(5, "Input/output error")

        patched.setattr(os, "pread", fail)
        assert files.read(file, 10, b"a\n") is None
        assert list(files.problems.values()) == [f"{path} cannot be read: Input/output error"]
    piece = files.read(file, 10, b"a\n")
    assert piece is not None
    assert piece.data == b"a\n"


def test_a_file_of_several_names_and_patterns_is_one_file(tmp_path: Path) -> None:
    for name in ("z.log", "m.log"):
        (tmp_path / name).write_bytes(name.encode())
    (tmp_path / "b.log").symlink_to(tmp_path / "z.log")
    os.link(tmp_path / "m.log", tmp_path / "c.log")
    patterns = [str(tmp_path / "*.log"), str(tmp_path / "z.log"), str(tmp_path / "[a-z].log")]
    assert sorted(Path(one.base).name for one in Files(patterns).seen()) == ["b.log", "c.log"], "the first by name"


def test_a_file_that_may_not_be_read_is_a_problem_until_it_may(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.log").write_bytes(b"a\n")
    files = Files([str(tmp_path / "a.log")])
    with monkeypatch.context() as patched:

        def refuse(path: str, flags: int) -> int:
            raise PermissionError(13, "Permission denied", path)

        patched.setattr(reading, "_without_waiting", refuse)
        assert files.seen() == []
        assert list(files.problems.values()) == [f"{tmp_path / 'a.log'} cannot be read: Permission denied"]
    assert [one.head for one in files.seen()] == [b"a\n"]
    assert files.problems == {}


def test_a_shorter_file_of_the_same_name_and_beginning_begins_anew(tmp_path: Path) -> None:
    path, head = tmp_path / "a.log", b"h" * 1024
    path.write_bytes(head + b"\nold\nolder\n")
    files = Files([str(path)])
    before = tracked(path, path.stat().st_size, head)
    path.write_bytes(head + b"\nnew\n")
    found = look({before.identity: before}, files.seen(), begun=files.patterns)
    assert [file.offset for file in found.tracked.values()] == [0]
    assert files.read(before, 10, head) is not None, "its bytes tell nothing, so its size has to"


def test_a_look_is_taken_again_while_names_change_within_a_tick(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a row of renamed files one is missed where it had its new name behind us; the folder's time is the same."""
    for number in (1, 2):
        (tmp_path / f"a.log.{number}").write_bytes(b"%d\n" % number)
    files = Files([str(tmp_path / "a.log")])
    whole = files._scan
    turns: list[int] = []

    def scan(known: Collection[str]) -> list[Seen]:
        turns.append(1)
        found = whole(known)
        return [one for one in found if not one.path.endswith("2")] if len(turns) == 1 else found

    monkeypatch.setattr(files, "_scan", scan)
    assert len(files.seen()) == 2
