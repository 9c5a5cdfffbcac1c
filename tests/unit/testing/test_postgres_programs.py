"""Which PostgreSQL is meant by a variable."""

from pathlib import Path

import pytest

from headrace.errors import HeadraceError
from headrace.testing.postgres import VARIABLE, named_programs, version_of


def programs(folder: Path, told: str) -> Path:
    for name in ("initdb", "pg_ctl", "postgres"):
        (folder / name).write_text(f"#!/bin/sh\necho '{told}'\n")
        (folder / name).chmod(0o755)
    return folder


def test_a_folder_is_named_or_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    assert named_programs() is None
    monkeypatch.setenv(VARIABLE, str(tmp_path))
    with pytest.raises(HeadraceError, match=r"has no initdb and no pg_ctl and no postgres: name the folder of"):
        named_programs()
    assert programs(tmp_path, "") == named_programs()


@pytest.mark.parametrize(("told", "version"), [("14.24", 14), ("18.6 (Debian 18.6-1)", 18), ("19devel", 19)])
def test_the_version_is_what_the_server_tells(tmp_path: Path, told: str, version: int) -> None:
    assert version_of(programs(tmp_path, f"postgres (PostgreSQL) {told}")) == version


def test_another_program_of_that_name(tmp_path: Path) -> None:
    with pytest.raises(HeadraceError, match="is not a PostgreSQL server: its version reads 'hello'"):
        version_of(programs(tmp_path, "hello"))
