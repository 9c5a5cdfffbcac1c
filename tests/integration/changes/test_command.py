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
