"""No value ends the process that reads it: values written to hurt, read by a process whose death is seen."""

import subprocess
import sys

import pytest

from tests.property.hostile_values import READERS


@pytest.mark.parametrize("name", READERS)
def test_every_hostile_value_is_read_or_refused(name: str) -> None:
    ran = subprocess.run(
        [sys.executable, "-X", "faulthandler", "-m", "tests.property.hostile_values", name],
        capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    last = ran.stdout.splitlines()[-1:]
    assert (ran.returncode, last) == (0, ["all read"]), f"at {last}: {ran.stderr[-3000:]}"
