"""`headrace init`: a file to begin with, never over another."""

from pathlib import Path

import pytest
from click.testing import CliRunner

from headrace.cli.main import cli
from headrace.stack.errors import StackError
from headrace.stack.loading import load


def test_what_is_written_is_in_order(tmp_path: Path) -> None:
    file = tmp_path / "headrace.toml"
    done = CliRunner().invoke(cli, ["init", str(file)])
    assert done.exit_code == 0
    assert f"headrace up --config {file}" in done.output
    assert set(load(file, {}).sections) == {"broker", "topics", "spark", "dashboard"}


def test_a_file_that_is_there_is_left_alone(tmp_path: Path) -> None:
    file = tmp_path / "headrace.toml"
    file.write_text("mine")
    with pytest.raises(StackError, match="is there already"):
        CliRunner().invoke(cli, ["init", str(file)], catch_exceptions=False)
    assert file.read_text() == "mine"
