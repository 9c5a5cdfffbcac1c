"""`headrace changes`."""

import json
import os
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from headrace.cli import changes as command
from headrace.connect.changes import Changes, PositionLost, RowChange
from tests.integration.changes.test_sqlite import SqliteStand
from tests.integration.waiting import wait_until


@pytest.fixture
def stand(tmp_path: Path) -> SqliteStand:
    return SqliteStand(tmp_path / "shop.db")


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "headrace.cli.main", "changes", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def lines(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


def test_lines_of_json_go_on_where_the_last_run_was(stand: SqliteStand, tmp_path: Path) -> None:
    place = tmp_path / "place"
    arguments = [stand.url, "--table", "t", "--slot", "mine", "--position", str(place), "--for", "0.5"]
    stand.put({1: "a"})
    first = lines(run(*arguments, "--snapshot").stdout)
    assert [(one["op"], one["key"], one["after"]) for one in first] == [("r", {"id": 1}, {"id": 1, "v": "a"})]
    assert place.read_text().strip() == first[-1]["position"]
    stand.put({2: "b"})
    stand.remove(1)
    second = lines(run(*arguments).stdout)
    assert [(one["op"], one["key"]) for one in second] == [("c", {"id": 2}), ("d", {"id": 1})]
    again = run(stand.url, "--table", "t", "--slot", "mine", "--resume", first[0]["position"], "--for", "0.5")
    assert again.returncode == 1
    assert "begin anew without resume" in again.stderr
    assert run(*arguments).stdout == ""


def test_it_chooses_ends_and_beats(stand: SqliteStand) -> None:
    stand.put({1: "a", 2: "b", 3: "c"})
    found = lines(run(stand.url, "--snapshot", "--limit", "2", "--column", "v").stdout)
    assert [one["after"] for one in found] == [{"v": "a"}, {"v": "b"}]
    assert run(stand.url, "--snapshot", "--op", "d", "--for", "0.3").stdout == ""
    beats = lines(run(stand.url, "--heartbeat", "0.1", "--limit", "2").stdout)
    assert [one["op"] for one in beats] == ["h", "h"]


def test_ctrl_c_ends_it_quietly_and_leaves_nothing(stand: SqliteStand) -> None:
    before = stand.tables_there()
    command = [sys.executable, "-m", "headrace.cli.main", "changes", stand.url]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # a job in the background has it ignored
    ) as process:  # fmt: skip
        wait_until(lambda: len(stand.tables_there()) > len(before) + 4, "it did not begin")
        stand.put({1: "a"})
        assert process.stdout is not None
        assert json.loads(process.stdout.readline())["key"] == {"id": 1}
        os.kill(process.pid, signal.SIGINT)
        _, said = process.communicate(timeout=30)
    assert (process.returncode, said) == (0, "")
    assert stand.tables_there() - before <= {"sqlite_sequence"}


def test_mistakes_get_a_sentence(stand: SqliteStand, tmp_path: Path) -> None:
    for arguments, said in (
        ([stand.url, "--resume", "nonsense"], "the resume token cannot be used"),
        (["ftp://nowhere/x"], "changes are read from"),
        ([stand.url, "--table", "nothing"], "there is no table"),
        ([stand.url, "--set", "nonsense=1"], "there is no such setting"),
        ([stand.url, "--op", "x"], "choose among"),
        ([f"sqlite:///{tmp_path}/none.db"], "there is no database"),
    ):
        done = run(*arguments)
        assert done.returncode == 1, arguments
        assert said in done.stderr
        assert len(done.stderr.strip().splitlines()) == 1
    place = tmp_path / "place"
    for arguments in ([stand.url, "--position", str(place)], [stand.url, "--position", "a", "--resume", "b"]):
        done = run(*arguments)
        assert done.returncode == 2
    assert not place.exists()
    with closing(sqlite3.connect(stand.path)) as db:
        assert db.execute("SELECT count(*) FROM sqlite_master WHERE type = 'trigger'").fetchone() == (0,)


def test_nothing_is_forgotten_before_the_file_says_that_it_was_printed(
    stand: SqliteStand, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tmp_path / "place"
    arguments = [stand.url, "--table", "t", "--slot", "mine", "--position", str(place), "--for", "0.5"]
    assert run(*arguments).returncode == 0
    for number in range(1, 10):
        stand.put({number: "a"})
    stored = place.read_text()
    wait_for_next, store = Changes.next, command._store
    monkeypatch.setattr(Changes, "next", lambda stream, _: wait_for_next(stream, 2))  # all that there is at once

    def dies(path: Path, token: str) -> None:
        if token != stored.strip():
            raise OSError(28, "No space left on device")
        store(path, token)

    monkeypatch.setattr(command, "_store", dies)
    with pytest.raises(OSError, match="space"):
        command.changes.main([*arguments, "--set", "batch_rows=1"], standalone_mode=False)
    assert place.read_text() == stored
    assert [one["key"]["id"] for one in lines(run(*arguments).stdout)] == [*range(1, 10)]


def test_what_is_printed_nowhere_does_not_hold_up_the_database(stand: SqliteStand, tmp_path: Path) -> None:
    place = tmp_path / "place"
    arguments = [stand.url, "--slot", "mine", "--position", str(place), "--op", "d", "--for", "2.5"]
    assert run(*arguments).returncode == 0
    stored = place.read_text()
    stand.put({1: "a"})
    assert run(*arguments).stdout == ""
    assert place.read_text() != stored
    with closing(sqlite3.connect(stand.path)) as db:
        assert db.execute("SELECT count(*) FROM mine_changes").fetchone() == (0,)


def test_an_error_comes_behind_the_lines_before_it(capsys: pytest.CaptureFixture[str]) -> None:
    class Broken:
        is_over = False
        told = iter([RowChange("c", "t", {"id": 1}, None, {"id": 1}, None, 0)])

        def next(self, _: float) -> RowChange:
            for change in self.told:
                return change
            raise PositionLost("it is gone", "begin anew")

    with pytest.raises(PositionLost):
        command._print(Broken(), None, None, None)  # type: ignore[arg-type]
    assert [one["key"] for one in lines(capsys.readouterr().out)] == [{"id": 1}]
