"""`headrace status`: a table, JSON, and an exit code that tells whether all is up."""

import json
import os
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from headrace.cli.main import cli
from headrace.cli.status_view import View, sync_table
from headrace.stack import state_file
from headrace.stack.errors import StackError
from headrace.stack.state_file import STATE_FOLDER, MemberState, StackState
from headrace.stack.usage import process_of
from headrace.status import Status


def written(folder: Path, *members: MemberState) -> None:
    own = process_of(os.getpid())
    assert own is not None
    (folder / STATE_FOLDER).mkdir(parents=True)
    state_file.write(folder, StackState(own.pid, own.began_ticks, 0, "headrace.toml", "127.0.0.1:9092", members))


def shown(folder: Path, *options: str) -> Result:
    return CliRunner().invoke(
        cli, ["status", "--config", str(folder / "headrace.toml"), *options], catch_exceptions=False
    )


def test_a_part_that_waits_says_so_once_whatever_the_error_is_called(capsys: pytest.CaptureFixture[str]) -> None:
    with View(sync_table, as_json=False) as view:
        for process in (1, 2):
            problem = f"the file is locked by process {process}"
            view.show([Status.of("copy", "duckdb", "waiting", waiting="for the lock on a file", problem=problem)])
        view.show([Status.of("copy", "duckdb", "running")])
    said = capsys.readouterr().err.splitlines()
    assert said == ["copy is waiting: for the lock on a file: the file is locked by process 1", "copy is running"]


BROKER = MemberState("broker", "broker", "running", 7)
CAPTURE = MemberState("cdc.shop", "cdc", "running", 8, restarts=2, facts={"per_s": 1234.0})
PIPELINE = MemberState("pipelines.sums", "pipelines", "waiting", note="waits for topic orders")


def test_all_is_up(tmp_path: Path) -> None:
    written(tmp_path, BROKER, CAPTURE)
    found = shown(tmp_path)
    assert found.exit_code == 0
    assert [line.split()[:2] for line in found.output.splitlines()[1:]] == [
        ["broker", "running"],
        ["cdc.shop", "running"],
    ]
    assert "1,234" in found.output


def test_one_is_not(tmp_path: Path) -> None:
    written(tmp_path, BROKER, PIPELINE)
    found = shown(tmp_path)
    assert found.exit_code == 1
    assert "waits for topic orders" in found.output
    found = shown(tmp_path, "--json")
    assert found.exit_code == 1
    told = json.loads(found.output)
    assert told["fine"] is False
    assert [member["phase"] for member in told["members"]] == ["running", "waiting"]


def test_what_never_ran_is_told_how_to(tmp_path: Path) -> None:
    with pytest.raises(StackError, match="does not run: start it with headrace up"):
        shown(tmp_path)
